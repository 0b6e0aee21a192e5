"""Streams of hybrids: the streams of the layers, side by side."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor

from recollect.cores.hybrid.core import Hybrid, HybridState
from recollect.cores.linear.step import rms_norm
from recollect.cores.stream import RowStream
from recollect.layers.rings import Rows


class HybridStream(RowStream):
    """Stream of a :class:`Hybrid`: each layer's memory is in a stream of its core."""

    core: Hybrid

    def __init__(self, core: Hybrid, batch_size: int) -> None:
        self._layers = [layer.stream(batch_size) for layer in core.layers]
        self._norms, self._norm = [rms_norm(norm) for norm in core.norms], rms_norm(core.norm)
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
            return self._run(inputs, [partial(s.advance, is_first=is_first) for s in self._layers])
        return self._run(inputs, [partial(s.advance_rows, is_first=is_first, rows=rows) for s in self._layers])

    def _run(self, inputs: Tensor, layers: Iterable[Callable[[Tensor], Tensor]]) -> Tensor:
        """Compute :meth:`Hybrid.run_layers` with norms of few operations."""
        x = self.core.project(inputs).to(self._dtype)
        for norm, layer in zip(self._norms, layers, strict=True):
            x = x + layer(norm(x).to(self._dtype))
        return self._norm(x).to(self._dtype)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps ``[b, t, i] -> [b, t, d]``, of which only the first may begin an episode."""
        return self.core.run_layers(inputs, [partial(s.advance_block, is_first=is_first) for s in self._layers])

    def buffers(self) -> list[Any]:
        """Return those of the layers."""
        return [buffer for layer in self._layers for buffer in layer.buffers()]
