"""Spatial attention and Transformer-XL in a stream: the temporal attention has a stream of its own."""

import torch
from torch import Tensor

from recollect.cores.spatio_temporal.core import SpatioTemporalAttention, SpatioTemporalAttentionState
from recollect.cores.stream import RowStream
from recollect.cores.transformer_xl.stream import TransformerXLStream
from recollect.layers.rings import Rows


class SpatioTemporalStream(RowStream):
    """Stream of a :class:`SpatioTemporalAttention`, without dropout."""

    core: SpatioTemporalAttention

    def __init__(self, core: SpatioTemporalAttention, batch_size: int) -> None:
        self._temporal = TransformerXLStream(core.temporal, batch_size)
        self._output = core.initial_state(batch_size).output.clone()
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> SpatioTemporalAttentionState:
        """Return a copy of the core's state of some rows; None: of all."""
        output = self._output.clone() if rows is None else self._output[rows.index]
        return SpatioTemporalAttentionState(self._temporal.read_rows(rows), output)

    def write_rows(self, state: SpatioTemporalAttentionState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        self._temporal.write_rows(state.memory, rows)
        self._keep_output(state.output, rows)

    def _keep_output(self, output: Tensor, rows: Rows | None) -> None:
        if rows is None:
            self._output.copy_(output)
        else:
            self._output.index_copy_(0, rows.index, output.to(self._output.dtype))

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, dim]``."""
        core = self.core
        vision, others, feedback = core.split(inputs[:, None])
        cleared = is_first is not self._never and bool(is_first.any())
        known, count = self._output, self._temporal.count
        if rows is not None:
            known, count = known[rows.index], count[rows.index]
        before = feedback if core.feedback_dim else known[:, None]
        if cleared or core.feedback_dim:
            begins = is_first | (count == 0)
            before = torch.where(begins[:, None, None], 0.0, before)
        read = core.read_map(vision, before, others)[:, 0]
        output = self._temporal.advance_rows(read, is_first if cleared else self._temporal._never, rows)
        self._keep_output(output, rows)
        return output

    def buffers(self) -> list[Tensor]:
        """Return the rings, the counts and the last output."""
        return [*self._temporal.buffers(), self._output]
