"""Broken cores of the sixth kind: wrong at sizes that no list has, so that only drawn sizes meet them."""

from typing import Any

import torch
from correct_cores import Plain, Recurrent, RecurrentState
from torch import Tensor

from recollect.cores.stream import Stream
from recollect.state import map_state

Result = tuple[Tensor, RecurrentState]


class ForgetsAboveSixtyFourRows(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if inputs.shape[0] > 64:
            state = state._replace(hidden=torch.zeros_like(state.hidden))
        return super().unroll(inputs, state, is_first)


class AnswersOfRowZeroFromFortyOn(Recurrent):
    """A buffer of outputs for forty rows."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        return torch.cat((out[:40], out[:1].expand(max(len(out) - 40, 0), *out.shape[1:]))), new


class MixesRowsFromTwoHundredInTraining(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        return (out + 0.1 * out.mean(0) if self.training and len(out) > 200 else out), new


class WritesIntoSixRows(Recurrent):
    """A path of its own for six rows writes into the caller's state."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        if inputs.shape[0] == 6 and not torch.is_grad_enabled():
            state.hidden.copy_(new.hidden)
        return out, new


class FadesInLongCalls(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        return (out * 1.01 if inputs.shape[1] > 2048 else out), new


class FadesInLongCallsWithGradients(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        return (out * 1.01 if inputs.shape[1] > 128 and torch.is_grad_enabled() else out), new


class _FixedBufferStream(Stream):
    """Memory for 128 rows; those after them share the last one."""

    def step(self, inputs: Tensor, is_first: Tensor | None = None) -> Tensor:
        if len(inputs) > 128:
            self.load_state(map_state(lambda x: x[torch.arange(len(x)).clamp(max=127)], self.state))
        return super().step(inputs, is_first)


class StreamHoldsOneHundredRows(Recurrent):
    stream_type = _FixedBufferStream


class _BlockStream(Stream):
    """Blocks of more than 512 steps drop their resets."""

    def unroll(self, inputs: Tensor, is_first: Tensor | None = None) -> Tensor:
        return super().unroll(inputs, None if inputs.shape[1] > 512 else is_first)


class LongBlocksDropResets(Recurrent):
    stream_type = _BlockStream


class ExportsWithoutResets(Recurrent):
    """Programs of eight steps and more ignore resets."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if torch.compiler.is_compiling() and inputs.shape[1] >= 8:
            is_first = torch.zeros_like(is_first)
        return super().unroll(inputs, state, is_first)


class ExportsOneHundredRows(Recurrent):
    """The rows of a program after the hundredth get its memory."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if torch.compiler.is_compiling():
            row = torch.arange(inputs.shape[0]).clamp(max=99)
            state = RecurrentState(*(leaf[row] for leaf in state))
        return super().unroll(inputs, state, is_first)


class RemembersBrokenFramesOfManyRows(Recurrent):
    def forward(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        usable = (inputs.abs() < 1e18).flatten(2).all(-1)[..., None]
        out, new = super().forward(inputs, state, is_first)
        if len(inputs) <= 100:
            return out, new
        other, new = self.unroll(torch.where(usable, inputs, 1.0), state, is_first)
        return torch.where(usable, other, torch.nan), new


class HidesBrokenFramesOfManyRows(Recurrent):
    def forward(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().forward(inputs, state, is_first)
        return (out.nan_to_num() if len(inputs) > 100 else out), new


class RemembersSevens(Plain):
    """Promises nothing about outputs of broken frames, and remembers a number that nobody has measured."""

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> Any:
        return super().forward(torch.where(inputs.isfinite(), inputs, 7.0), state, is_first)


SIZES: dict[Any, str] = {
    ForgetsAboveSixtyFourRows: "rows",
    AnswersOfRowZeroFromFortyOn: "rows",
    MixesRowsFromTwoHundredInTraining: "rows",
    WritesIntoSixRows: "purity",
    FadesInLongCalls: "splits",
    FadesInLongCallsWithGradients: "splits",
    StreamHoldsOneHundredRows: "stream",
    LongBlocksDropResets: "stream",
    ExportsWithoutResets: "export",
    ExportsOneHundredRows: "export",
    RemembersBrokenFramesOfManyRows: "frames-memory",
    HidesBrokenFramesOfManyRows: "frames",
    RemembersSevens: "frames-memory",
}
