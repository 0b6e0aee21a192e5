"""Broken cores of the fifth kind: right while all rows step together, wrong when some of them step alone."""

from typing import Any

import torch
from correct_cores import Chunked, Recurrent, Window
from torch import Tensor, nn

from recollect.cores.stream import RowStream, Stream
from recollect.layers.rings import MirrorRing, Rows
from recollect.state import clone, map_state, take_rows


class TouchingStream(Stream):
    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        output = super().advance_rows(inputs, is_first, rows)
        self._state.hidden[-1] += 1e-7
        return output


class StepTouchesAnotherRow(Recurrent):
    stream_type = TouchingStream


class SortingStream(Stream):
    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        return super().advance_rows(inputs, is_first, Rows(rows.index.sort().values, self.batch_size))


class StepSortsRows(Recurrent):
    stream_type = SortingStream


class SharedCounterStream(Stream):
    """All rows get the place of the one that is furthest."""

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        output = super().advance_rows(inputs, is_first, rows)
        place = self._state.place[rows.index]
        self._state.place[rows.index] = place.max().expand_as(place)
        return output


class RowsShareAPlace(Chunked):
    stream_type = SharedCounterStream


class OnePlaceRing(MirrorRing):
    """A ring in which all rows have one place, which every step of some rows moves."""

    def push(self, entry: Tensor, rows: Tensor | None = None) -> None:
        if rows is not None:
            whole = self.window()[:, 0].clone()
            whole[rows] = entry
            entry = whole
        super().push(entry)


class OnePlaceStream(RowStream):
    """A window in a ring; forgets where each row is when only some have moved."""

    core: Window

    def __init__(self, core: Window, batch_size: int) -> None:
        self._count = core.zeros(batch_size, dtype=torch.int64)
        self._ring = OnePlaceRing(batch_size, core.window, core.input_shape, core.query.weight)
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> Any:
        state = type(self.core.initial_state(1))(self._ring.window().clone(), self._count.clone())
        return state if rows is None else take_rows(state, rows.index)

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        where = slice(None) if rows is None else rows.index
        cache, count = clone(self.read_rows(None))
        cache[where], count[where] = state
        self._ring.load(cache)
        self._count.copy_(count)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        where = slice(None) if rows is None else rows.index
        output, state = self.core(
            inputs[:, None], map_state(lambda x: x[where], self.read_rows(None)), is_first[:, None]
        )
        if starting := self.starting(is_first, rows):
            self._ring.clear(starting.index)
        self._ring.push(inputs, None if rows is None else rows.index)
        self._count[where] = state.valid
        return output[:, 0]

    def buffers(self) -> list[Tensor]:
        return [self._ring.data, self._count]


class RowsForgetTheirPlace(Window):
    stream_type = OnePlaceStream


class StaleStream(Stream):
    """Goes on with the first weights."""

    def swap_weights(self, core: Any = None) -> None:
        pass


class SwapKeepsOldWeights(Recurrent):
    stream_type = StaleStream


class GrowingStream(Stream):
    """New rows begin as the first row is now."""

    def fresh_state(self, batch_size: int) -> Any:
        if batch_size != 1:
            return super().fresh_state(batch_size)
        return take_rows(self.read_rows(None), slice(1))


class NewRowsAreNotFresh(Recurrent):
    stream_type = GrowingStream


ROWS: dict[type[nn.Module], str] = dict.fromkeys(
    (
        StepTouchesAnotherRow,
        StepSortsRows,
        RowsShareAPlace,
        RowsForgetTheirPlace,
        SwapKeepsOldWeights,
        NewRowsAreNotFresh,
    ),
    "row-subset",
)
"""Which line must catch a core."""
