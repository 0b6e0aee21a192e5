"""Broken cores of the seventh kind: wrong only where two circumstances meet."""

from typing import Any

import torch
from correct_cores import Plain, Recurrent, RecurrentState
from torch import Tensor

from recollect.cores.stream import Stream
from recollect.layers.rings import Rows

Result = tuple[Tensor, RecurrentState]


class ForgetsAboveOneHundredAndFiftyRowsInTraining(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if self.training and torch.is_grad_enabled() and inputs.shape[0] > 150:
            state = state._replace(hidden=torch.zeros_like(state.hidden))
        return super().unroll(inputs, state, is_first)


class WritesIntoManyRowsOfSeveralSteps(Recurrent):
    """The caller's state is written in place: more than ten rows, more than four steps, evaluation mode."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        if len(inputs) > 10 and inputs.shape[1] > 4 and not self.training and not torch.is_grad_enabled():
            state.hidden.copy_(new.hidden)
        return out, new


class GradientsMeetNaNOfOtherRows(Plain):
    """A product with the row before, of which no number is left: zero, or selected away where it is NaN."""

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> Any:
        out, new = super().forward(inputs, state, is_first)
        other = 0.0 * inputs * inputs.detach().roll(1, 0)
        return out + torch.where(other.isfinite(), other, 0.0), new


class DrawsInSingleStepsOfManyRows(Recurrent):
    """Draws a number that nobody uses, in single steps of several rows alone."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if inputs.shape[1] == 1 and len(inputs) > 1:
            torch.rand(1)
        return super().unroll(inputs, state, is_first)


class _DrawingStream(Stream):
    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        torch.rand(1)
        return super().advance(inputs, is_first)


class StreamDraws(Recurrent):
    stream_type = _DrawingStream


class _ForgetfulStream(Stream):
    """Forgets a reset at the second step after `load_state`."""

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.age = 0

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        self.age += 1
        return super().advance(inputs, torch.zeros_like(is_first) if self.age == 2 else is_first)


class ForgetsAResetAfterLoading(Recurrent):
    stream_type = _ForgetfulStream


class _DownwardStream(Stream):
    """All rows in descending order are taken for ascending ones."""

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        if len(rows) > 3 and bool((rows.index.diff() < 0).all()):
            rows = Rows(rows.index.flip(0), self.batch_size)
        return super().advance_rows(inputs, is_first, rows)


class MixesRowsThatAreNamedDownwards(Recurrent):
    stream_type = _DownwardStream


class _RowsDropResets(Stream):
    """Two and more resets among some rows that step alone are taken for one."""

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        only = is_first & (is_first.long().cumsum(0) == 1)
        return super().advance_rows(inputs, only, rows)


class RowsThatStepAloneDropResets(Recurrent):
    stream_type = _RowsDropResets


class ProgramsOfNineStepsIgnoreResets(Recurrent):
    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        if torch.compiler.is_compiling() and inputs.shape[1] > 8:
            is_first = torch.zeros_like(is_first)
        return super().unroll(inputs, state, is_first)


class DropsOutputsOfManyRows(Recurrent):
    """Dropout in evaluation mode, from seventeen rows on."""

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> Result:
        out, new = super().unroll(inputs, state, is_first)
        return (torch.nn.functional.dropout(out, 0.01, training=True) if len(out) > 16 else out), new


COMBINATIONS: dict[Any, str] = {
    ForgetsAboveOneHundredAndFiftyRowsInTraining: "rows",
    WritesIntoManyRowsOfSeveralSteps: "purity",
    GradientsMeetNaNOfOtherRows: "rows",
    DrawsInSingleStepsOfManyRows: "hidden-state",
    StreamDraws: "hidden-state",
    ForgetsAResetAfterLoading: "stream",
    MixesRowsThatAreNamedDownwards: "row-subset",
    RowsThatStepAloneDropResets: "row-subset",
    ProgramsOfNineStepsIgnoreResets: "export",
    DropsOutputsOfManyRows: "rows",
}
