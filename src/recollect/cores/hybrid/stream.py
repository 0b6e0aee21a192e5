"""Streams of hybrids: the streams of the layers, side by side."""

from functools import partial
from typing import Any

from torch import Tensor

from recollect.cores.hybrid.core import Hybrid, HybridState
from recollect.cores.stream import RowStream
from recollect.layers.rings import Rows


class HybridStream(RowStream):
    """Stream of a :class:`Hybrid`: each layer's memory is in a stream of its core."""

    core: Hybrid

    def __init__(self, core: Hybrid, batch_size: int) -> None:
        self._layers = [layer.stream(batch_size) for layer in core.layers]
        super().__init__(core, batch_size)
        for layer in self._layers:
            layer._never = self._never  # streams compare it by identity

    def read_rows(self, rows: Rows | None) -> HybridState:
        """Return a copy of the state of some rows; None: of all."""
        return HybridState(tuple(layer.read_rows(rows) for layer in self._layers))

    def write_rows(self, state: HybridState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        for layer, own in zip(self._layers, state.layers, strict=True):
            layer.write_rows(own, rows)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, d]``."""
        if rows is None:
            return self.core.run_layers(inputs, [partial(s.advance, is_first=is_first) for s in self._layers])
        some = [partial(s.advance_rows, is_first=is_first, rows=rows) for s in self._layers]
        return self.core.run_layers(inputs, some)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps ``[b, t, i] -> [b, t, d]``, of which only the first may begin an episode."""
        return self.core.run_layers(inputs, [partial(s.advance_block, is_first=is_first) for s in self._layers])

    def buffers(self) -> list[Any]:
        """Return those of the layers."""
        return [buffer for layer in self._layers for buffer in layer.buffers()]
