"""Broken cores of the fourth kind: right in the usual test, wrong where somebody uses them.

At another length of a call, with another number of rows, at a black frame, on another device, after an evaluation.
"""

from typing import Any

import torch
from correct_cores import WIDTH, Plain, Recurrent, RecurrentState, Window, WindowState, window_mask
from torch import Tensor, nn

from recollect.cores.stream import Stream

State = RecurrentState


# -- lengths of calls ----------------------------------------------------------------------------------------------


class RestartsAtSixteen(Recurrent):
    """A path of its own for calls of 16 steps forgets what came before."""

    lengths = range(16, 17)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] in self.lengths:
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class RestartsFrom101To299(RestartsAtSixteen):
    lengths = range(101, 300)


class SingleStepsIgnoresResetsWhenAllBegin(Plain):
    """A shortcut for the step at which all rows begin does not begin."""

    def forward(self, inputs: Tensor, state: tuple[Tensor], is_first: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        if inputs.shape[1] == 1 and len(inputs) > 1 and is_first.all():
            is_first = torch.zeros_like(is_first)
        return super().forward(inputs, state, is_first)


# -- numbers of rows -----------------------------------------------------------------------------------------------


class SwapsTwoRows(Recurrent):
    """A path of its own for two rows confuses them."""

    rows = range(2, 3)

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if len(x) in self.rows:
            state = state._replace(hidden=state.hidden.flip(0))
        return super().advance(x, state)


class SwapsManyRows(SwapsTwoRows):
    rows = range(16, 1000)


# -- weights that are frozen, modules that were evaluated first ----------------------------------------------------


class RestartsWhenFrozen(Recurrent):
    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if torch.is_grad_enabled() and not any(weight.requires_grad for weight in self.parameters()):
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class KeepsTableOfFirstCall(Recurrent):
    """Made in inference mode, it can never be part of a graph."""

    table: Tensor | None = None

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.table is None:
            self.table = torch.linspace(0.5, 1.0, x.shape[-1], dtype=x.dtype)
        return super().advance(torch.tanh(self.read(x)) * self.table, state)


# -- what the whole program shares ---------------------------------------------------------------------------------


class SetsPrecision(Recurrent):
    """Faster here, and less exact everywhere."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        torch.set_float32_matmul_precision("medium")
        return super().unroll(inputs, state, is_first)


class SwitchesGradientsOff(Recurrent):
    """Whoever takes a single step loses the gradients of all that follows."""

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        found = super().unroll(inputs, state, is_first)
        if not self.training:
            torch.set_grad_enabled(False)
        return found


class StartsFromItsOwnWeight(Recurrent):
    """One row gets the learned memory itself: `state.hidden[done] = 0` and it is gone."""

    def initial_state(self, batch_size: int) -> State:
        start = self.start[None] if batch_size == 1 else self.start.repeat(batch_size, 1)
        return State(start, self.zeros(batch_size, dtype=torch.int64))


class StartsFromCache(Plain):
    """Everybody who asks for this many rows gets the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, tuple[Tensor]] = {}

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        if batch_size not in self.kept:
            self.kept[batch_size] = super().initial_state(batch_size)
        return self.kept[batch_size]


# -- black frames --------------------------------------------------------------------------------------------------


class DividesByNorm(Recurrent):
    """Inputs of length one: NaN for ever after a black frame, and after a broken one."""

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(x / self.norm(x), state)

    def norm(self, x: Tensor) -> Tensor:
        return x.square().sum(-1, keepdim=True).sqrt()


class DividesByNormAndABit(DividesByNorm):
    """The numbers are right, and the root's gradient is not."""

    def norm(self, x: Tensor) -> Tensor:
        return super().norm(x) + 1e-6


class BreaksAtBlackFrames(DividesByNorm):
    """The same, tried where a broken frame becomes a black one."""


# -- another device ------------------------------------------------------------------------------------------------


class StartsOnCPU(Plain):
    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (torch.zeros(batch_size, WIDTH, dtype=self.read.weight.dtype),)


class CountsOnCPU(Plain):
    """A mask is made where torch makes tensors by default."""

    def forward(self, inputs: Tensor, state: tuple[Tensor], is_first: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        early = torch.arange(inputs.shape[1]) < 2 * inputs.shape[1]
        return super().forward(torch.where(early[:, None], inputs, 0.0), state, is_first)


# -- float16 -------------------------------------------------------------------------------------------------------


class OverflowsInFloat16(Recurrent):
    """A sum of squares that float16 cannot hold."""

    runs_in_float16 = True

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().advance(300 * x / (300 * x).square().sum(-1, keepdim=True).sqrt().clamp(min=1e-3), state)


class RoundingStream(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        if inputs.dtype == torch.float16:
            inputs = inputs.mul(4).round().div(4)
        return super().advance(inputs, is_first)


class StreamRoundsInFloat16(Recurrent):
    """A stream of float16 that keeps fewer digits of what it reads than calls do."""

    runs_in_float16 = True
    stream_type = RoundingStream


# -- large numbers -------------------------------------------------------------------------------------------------


class OverflowLeaks(Window):
    """Values are cubed; the cube of a large one is infinite, and a weight of zero makes it NaN."""

    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        state = self.reset(is_first[:, 0], state)
        mask = window_mask(is_first, state.valid, self.window)
        context = torch.cat((state.cache, inputs), 1)
        weights = mask / mask.sum(-1, keepdim=True)
        output = weights.to(inputs.dtype) @ self.value(context) ** 3
        return output, super().unroll(inputs, state, is_first)[1]


# -- streams -------------------------------------------------------------------------------------------------------


class IgnoresResetsWhenAllBegin(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        if len(is_first) > 1 and is_first.all():
            is_first = torch.zeros_like(is_first)
        return super().advance(inputs, is_first)


class StreamIgnoresResetsWhenAllBegin(Recurrent):
    stream_type = IgnoresResetsWhenAllBegin


class IgnoresResetsInLongBlocks(Stream):
    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        if inputs.shape[1] > 5:
            is_first = torch.zeros_like(is_first)
        return super().advance_block(inputs, is_first)


class StreamIgnoresResetsInLongBlocks(Recurrent):
    stream_type = IgnoresResetsInLongBlocks


class BorrowingStream(Stream):
    """Goes on in the very tensors that it was given."""

    def load_state(self, state: State) -> None:
        self._state = state

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        output, state = self.core(inputs[:, None], self._state, is_first[:, None])
        for old, new in zip(self._state, state, strict=True):
            old.copy_(new)
        return output[:, 0]


class StreamWritesIntoGivenState(Recurrent):
    stream_type = BorrowingStream


class EpisodeHoard(Stream):
    """Keeps where every episode began."""

    def __init__(self, core: Any, batch_size: int) -> None:
        super().__init__(core, batch_size)
        self.begins: list[Tensor] = []

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.begins += inputs[is_first].clone().unbind()
        return super().advance(inputs, is_first)


class StreamHoardsEpisodes(Recurrent):
    stream_type = EpisodeHoard


class CentringStream(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        output = super().advance(inputs, is_first)
        inputs -= inputs.mean(-1, keepdim=True)
        return output


class StreamWritesIntoFrames(Recurrent):
    stream_type = CentringStream


USE: dict[type[nn.Module], str] = {
    RestartsAtSixteen: "splits",
    RestartsFrom101To299: "long",
    SingleStepsIgnoresResetsWhenAllBegin: "splits",
    SwapsTwoRows: "rows",
    SwapsManyRows: "rows",
    SetsPrecision: "hidden-state",
    SwitchesGradientsOff: "hidden-state",
    StartsFromItsOwnWeight: "purity",
    StartsFromCache: "purity",
    RestartsWhenFrozen: "modes",
    KeepsTableOfFirstCall: "modes",
    DividesByNorm: "gradients",
    DividesByNormAndABit: "gradients",
    BreaksAtBlackFrames: "frames-memory",
    OverflowLeaks: "poison",
    StreamHoardsEpisodes: "state-bytes",
    StartsOnCPU: "device",
    CountsOnCPU: "device",
    OverflowsInFloat16: "float16",
    StreamRoundsInFloat16: "float16",
    StreamIgnoresResetsWhenAllBegin: "stream",
    StreamIgnoresResetsInLongBlocks: "stream",
    StreamWritesIntoGivenState: "stream",
    StreamWritesIntoFrames: "stream",
}
"""Which line must catch a core."""
