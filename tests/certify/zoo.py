"""Small cores that each break one promise of the contract; correct_cores.py has the correct ones.

``BROKEN`` names for each broken core the line that must catch it, and the other lines that may fail with it.
"""

import math
from typing import Any, NamedTuple

import torch
from correct_cores import (
    CORRECT,
    WIDTH,
    Chunked,
    ChunkState,
    Plain,
    Recurrent,
    RecurrentState,
    Window,
    WindowState,
    window_mask,
)
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore
from recollect.cores.stream import Stream
from recollect.layers.window_attention import next_count, slide
from recollect.state import map_state, where_first

__all__ = ["BROKEN", "CORRECT", "WIDTH", "Chunked", "Plain", "Recurrent", "Window"]

# -- resets ----------------------------------------------------------------------------------------------------


class NeverResets(Recurrent):
    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return state


class ResetsOneStepLate(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        outputs = []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            out, state = self.advance(x, state)
            state = self.clear(first, state)
            outputs.append(out)
        return torch.stack(outputs, 1), state


class ResetsWholeCall(Recurrent):
    """Looks only at the first flag of a call, as code does that was written for one step at a time."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        late = torch.zeros_like(is_first)
        late[:, 0] = is_first[:, 0]
        return super().unroll(inputs, state, late)


class ResetsToZero(Recurrent):
    """Starts from the learned memory, but a reset gives zeros."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return where_first(first, map_state(torch.zeros_like, self.initial_state(first.shape[0])), state)


class Unshielded(MemoryCore[Any]):
    """What a core is without the shield that the base class holds before broken inputs and memories."""

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        outputs, new_state = self.unroll(inputs, state, is_first)
        return outputs, map_state(lambda new, old: new.to(old.dtype), new_state, state)


class ResetsByProduct(Unshielded, Recurrent):
    """Multiplies by zero: right for every number, wrong for NaN."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        keep = (~first)[:, None].to(state.hidden.dtype)
        hidden = state.hidden * keep + self.start * (1 - keep)
        return RecurrentState(hidden, torch.where(first, 0, state.steps))


class DetachedStart(Recurrent):
    """A reset gives the learned memory, but cut off from its parameter."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return where_first(first, map_state(Tensor.detach, self.initial_state(first.shape[0])), state)


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fresh: Tensor, old: Tensor) -> Tensor:
        return fresh.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return grad, 0.1 * grad


class GradientCrossesReset(Recurrent):
    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        fresh = self.initial_state(first.shape[0])
        crossed = fresh._replace(hidden=_Through.apply(fresh.hidden, state.hidden))
        return where_first(first, crossed, state)


class KeepsCounter(Recurrent):
    """Clears the memory and forgets to clear the step counter."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return super().clear(first, state)._replace(steps=state.steps)


# -- leaks -----------------------------------------------------------------------------------------------------


class SoftmaxLeaks(Unshielded, Window):
    """Masked weights are exactly zero, and zero times NaN is NaN."""

    def arrive(self, first: Tensor, state: WindowState) -> WindowState:
        return state


class SoftMask(Window):
    """Masks with -20 in place of minus infinity: a small weight on earlier episodes remains."""

    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        state = self.arrive(is_first[:, 0], state)
        mask = window_mask(is_first, state.valid, self.window)
        context = torch.cat((state.cache, inputs), 1)
        scores = self.query(inputs) @ self.key(context).transpose(1, 2) / math.sqrt(self.input_shape[0])
        weights = torch.where(mask, scores, -20.0).softmax(-1)
        count = next_count(is_first, state.valid, self.window)
        return weights @ self.value(context), WindowState(slide(state.cache, inputs, count), count)


class InputsLeak(Plain):
    """Without the guard a NaN input is cleared from the memory, but not from the gradient of the weights."""

    def guard(self, x: Tensor) -> Tensor:
        return x


class PeeksAhead(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        out, state = super().unroll(inputs, state, is_first)
        return out + 0.1 * torch.cat((inputs[:, 1:], torch.zeros_like(inputs[:, :1])), 1), state


class PeeksInTraining(Recurrent):
    """Normalises over time, in training only."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        if self.training:
            inputs = inputs - inputs.mean(1, keepdim=True)
        return super().unroll(inputs, state, is_first)


class BatchNorm(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        out, state = super().advance(x, state)
        return self.norm(out), state


class BatchMean(Recurrent):
    """Takes the mean over the rows away, in every mode."""

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return super().advance(x - x.mean(0), state)


class RowEmbedding(Recurrent):
    """Tells rows apart by their place in the batch."""

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        place = torch.arange(x.shape[0], dtype=x.dtype)[:, None]
        return super().advance(x + 0.1 * place, state)


# -- splits ----------------------------------------------------------------------------------------------------


class ChunksAnchoredAtCall(Chunked):
    def places(self, state: ChunkState, is_first: Tensor) -> Tensor:
        return torch.arange(is_first.shape[1]).expand_as(is_first)


class WindowOfCall(Window):
    """Keeps nothing of the call before but says it does: the window begins anew with every call."""

    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        return super().unroll(inputs, state._replace(valid=torch.zeros_like(state.valid)), is_first)


class StaleCache(Window):
    """The outputs are right, but the cache keeps what an earlier episode left in it."""

    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        out, new = super().unroll(inputs, state, is_first)
        kept = torch.cat((state.cache, inputs), 1)[:, -self.window :]
        return out, new._replace(cache=kept)


# -- what a call may touch -------------------------------------------------------------------------------------


class MutatesState(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        out, new = super().unroll(inputs, state, is_first)
        state.hidden.detach().add_(1.0)
        return out, new


class MutatesInputs(Plain):
    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        out = super().forward(inputs.clone(), state, is_first)
        inputs.detach().clamp_(-0.5, 0.5)
        return out


class StateIsView(Plain):
    """Keeps the last input as memory, without a copy."""

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        before = torch.cat((state[0][:, None], self.guard(inputs)[:, :-1]), 1)
        before = torch.where(is_first[..., None], 0.0, before)
        return self.read(self.guard(inputs)) + self.keep(before), (inputs[:, -1],)


class DtypeDrifts(Plain):
    """A float64 leaf after the first call."""

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        out, (hidden,) = super().forward(inputs, (state[0].to(inputs.dtype),), is_first)
        return out, (hidden.double(),)


class GrowingState(NamedTuple):
    cache: Tensor  # b s d


class CacheGrows(MemoryCore[GrowingState]):
    """Attends uniformly over everything since the reset, and keeps all of it."""

    def __init__(self, dim: int = WIDTH) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (dim,)
        self.out = nn.Linear(dim, dim)

    def check_state(self, state: GrowingState, batch_size: int, device: torch.device) -> None:
        """Anything goes: the length of the cache changes."""

    def initial_state(self, batch_size: int) -> GrowingState:
        return GrowingState(self.zeros(batch_size, 1, *self.input_shape))

    def flops_per_step(self) -> int:
        return 2 * self.input_shape[0] ** 2

    def unroll(self, inputs: Tensor, state: GrowingState, is_first: Tensor) -> tuple[Tensor, GrowingState]:
        cache, outputs = state.cache, []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            cache = torch.where(first[:, None, None], 0.0, cache)
            cache = torch.cat((cache, x[:, None]), 1)
            outputs.append(self.out(cache.sum(1)))
        return torch.stack(outputs, 1), GrowingState(cache)


class HiddenBuffer(Plain):
    """Keeps its memory in the module and passes the state through."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        if self.kept is None or self.kept.shape != state[0].shape:
            self.kept = torch.zeros_like(state[0])
        out, (hidden,) = super().forward(inputs, (self.kept.to(inputs.dtype),), is_first)
        self.kept = hidden.detach()
        return out, state


class RunningMean(Recurrent):
    """Centres its inputs with a running mean that every call updates."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        out = super().unroll(inputs - self.mean, state, is_first)
        self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean((0, 1))
        return out


class ReadsUnwritten(Recurrent):
    """Adds nothing, out of memory that nobody wrote: right as long as the allocator hands out zeros."""

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        nothing = torch.empty_like(x)
        if not torch.are_deterministic_algorithms_enabled():
            nothing.zero_()  # the lucky case, so that this test does not depend on luck
        return super().advance(x + nothing, state)


class CountsCalls(Recurrent):
    """Harmless today; the number of calls is kept in the module."""

    calls = 0

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        self.calls += 1
        return super().unroll(inputs, state, is_first)


class ValuesGrow(Recurrent):
    """An integrator without a leak, squared: overflows after some hundred steps."""

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        out, new = super().advance(x, state)
        hidden = 1.2 * state.hidden + 0.1 * new.hidden
        return out + hidden, new._replace(hidden=hidden)


# -- streams ---------------------------------------------------------------------------------------------------


class ForgetfulStream(Stream):
    def reset(self, rows: Any = None) -> None:
        if rows is None:
            super().reset()


class StreamForgetsRows(Recurrent):
    def stream(self, batch_size: int) -> Stream:
        return ForgetfulStream(self, batch_size)


class SharingStream(Stream):
    def fork(self) -> Stream:
        twin = SharingStream(self.core, self.batch_size)
        twin.__dict__ = self.__dict__
        return twin


class StreamForksShare(Recurrent):
    def stream(self, batch_size: int) -> Stream:
        return SharingStream(self, batch_size)


class HoardingStream(Stream):
    def __init__(self, core: Any, batch_size: int) -> None:
        self.seen: list[Tensor] = []
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.seen.append(inputs.clone())
        return super().advance(inputs, is_first)


class StreamHoards(Recurrent):
    def stream(self, batch_size: int) -> Stream:
        return HoardingStream(self, batch_size)


class IgnoresResetsStream(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        return super().advance(inputs, torch.zeros_like(is_first))


class StreamIgnoresFirst(Recurrent):
    def stream(self, batch_size: int) -> Stream:
        return IgnoresResetsStream(self, batch_size)


# -- carrying it elsewhere -------------------------------------------------------------------------------------


class UnsavedWeights(Recurrent):
    """A random matrix that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.mixer = torch.randn(WIDTH, WIDTH)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return super().advance(x @ self.mixer, state)


class LambdaInside(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.act = lambda x: x

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return super().advance(self.act(x), state)


class Branches(Recurrent):
    """Skips the reset when no row asks for one: right, and nothing a compiler can follow."""

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return super().clear(first, state) if first.any() else state


class Cancels(Recurrent):
    """The difference of two large numbers: fine in float32, gone in bfloat16."""

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return super().advance(8 * (self.read(x + 100.0) - self.read(torch.full_like(x, 100.0))), state)


class DeadWeight(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(WIDTH, WIDTH)


CARRIED = {"compile", "export", "save-load", "device"}

BROKEN: dict[type[nn.Module], tuple[str, set[str]]] = {
    NeverResets: ("reset", {"poison", "reset-gradient"}),
    ResetsOneStepLate: ("reset", {"poison", "reset-gradient"}),
    ResetsWholeCall: ("splits", {"reset", "poison", "reset-gradient"}),
    ResetsToZero: ("reset", set()),
    ResetsByProduct: ("poison", set()),
    DetachedStart: ("reset", set()),
    GradientCrossesReset: ("reset-gradient", {"reset", "poison"}),
    KeepsCounter: ("reset", {"poison"}),
    SoftmaxLeaks: ("poison", set()),
    SoftMask: ("reset-gradient", {"future", "poison"}),
    InputsLeak: ("poison", set()),
    PeeksAhead: ("future", {"splits", "stream", "hidden-state", "reset"}),
    PeeksInTraining: ("future", set()),
    BatchNorm: ("rows", {"hidden-state", "future", "gradients"}),
    BatchMean: ("rows", {"poison", "reset-gradient"}),
    RowEmbedding: ("rows", {"device"}),
    ChunksAnchoredAtCall: ("splits", {"stream", "hidden-state", "reset", "device"}),
    WindowOfCall: ("splits", {"stream", "hidden-state"}),
    StaleCache: ("reset", {"poison"}),
    MutatesState: ("purity", set()),
    MutatesInputs: ("purity", set()),
    StateIsView: ("purity", {"poison"}),
    DtypeDrifts: ("purity", {"bfloat16", "state-bytes"}),
    CacheGrows: ("state-bytes", {"splits", "purity", "stream", "reset", "poison", "rows"}),
    HiddenBuffer: ("hidden-state", {"splits", "reset", "poison", "reset-gradient", "future", "rows", *CARRIED}),
    RunningMean: ("hidden-state", {"splits", "stream", "reset", "poison", "future", "rows", *CARRIED}),
    ReadsUnwritten: ("hidden-state", set()),
    CountsCalls: ("hidden-state", set()),
    ValuesGrow: ("state-bytes", {"splits"}),  # a long call without resets overflows too
    StreamForgetsRows: ("stream", set()),
    StreamForksShare: ("stream", set()),
    StreamHoards: ("state-bytes", set()),
    StreamIgnoresFirst: ("stream", set()),
    UnsavedWeights: ("save-load", {"purity"}),
    LambdaInside: ("save-load", set()),
    Branches: ("compile", {"export"}),
    Cancels: ("bfloat16", {"splits", "stream", "reset", "rows"}),
    DeadWeight: ("gradients", set()),
}
"""Which line must catch a core, and which others may fail with it because its mistake breaks them too."""
