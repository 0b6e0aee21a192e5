"""The stream of the core without memory: its equations over prepared weights."""

from collections.abc import Iterable
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.memoryless.core import Memoryless, MemorylessState
from recollect.cores.stream import RowStream
from recollect.layers.feedforward import FeedForward, StreamFeedForward, stream_projection
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import without_autocast, working_dtype


class MemorylessStream(RowStream):
    """Stream of a :class:`Memoryless`, without dropout; it keeps nothing."""

    core: Memoryless

    def __init__(self, core: Memoryless, batch_size: int) -> None:
        dtype = working_dtype(core.norm.weight)
        self._project = stream_projection(core.project, batch_size)
        self._layers = [
            StreamFeedForward(block, rows=batch_size, dtype=dtype, scale=norm.weight, shift=norm.bias)
            for norm, block in cast(Iterable[tuple[nn.LayerNorm, FeedForward]], core.layers)
        ]
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> MemorylessState:
        """Return a state without numbers."""
        return self.core.initial_state(self.batch_size if rows is None else len(rows))

    def write_rows(self, state: MemorylessState, rows: Rows | None) -> None:
        """Do nothing: there is nothing to continue from."""

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, d]``."""
        with without_autocast(inputs):
            x = self._project(inputs.to(self._dtype))
            for layer in self._layers:
                x = x + layer(F.layer_norm(x, x.shape[-1:]))
            return self.core.norm(x)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps ``[b, t, i] -> [b, t, d]``."""
        return self.advance_rows(inputs.flatten(0, 1), is_first, None).unflatten(0, inputs.shape[:2])

    def buffers(self) -> list[Tensor]:
        """Return no tensor."""
        return []
