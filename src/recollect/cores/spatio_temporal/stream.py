"""Spatial attention and Transformer-XL in a stream: the temporal attention has a stream of its own."""

import torch
from torch import Tensor

from recollect.cores.spatio_temporal.core import SpatioTemporalAttention, SpatioTemporalAttentionState
from recollect.cores.stream import Stream
from recollect.cores.transformer_xl.stream import TransformerXLStream


class SpatioTemporalStream(Stream):
    """Stream of a :class:`SpatioTemporalAttention`, without dropout."""

    core: SpatioTemporalAttention

    def __init__(self, core: SpatioTemporalAttention, batch_size: int) -> None:
        self._temporal = TransformerXLStream(core.temporal, batch_size)
        super().__init__(core, batch_size)

    @property
    def state(self) -> SpatioTemporalAttentionState:
        """The memory as the core's state (a copy)."""
        return SpatioTemporalAttentionState(self._temporal.state, self._output.clone())

    def load_state(self, state: SpatioTemporalAttentionState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._temporal.load_state(state.memory)
        self._output = state.output.clone()

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step ``[b, i] -> [b, dim]``."""
        core = self.core
        vision, others, feedback = core.split(inputs[:, None])
        cleared = is_first is not self._never and bool(is_first.any())
        before = feedback if core.feedback_dim else self._output[:, None]
        if cleared or core.feedback_dim:
            begins = is_first | (self._temporal.count == 0)
            before = torch.where(begins[:, None, None], 0.0, before)
        read = core.read_map(vision, before, others)[:, 0]
        output = self._temporal.advance(read, is_first if cleared else self._temporal._never)
        self._output = output.clone()
        return output

    def buffers(self) -> list[Tensor]:
        """Return the rings, the counts and the last output."""
        return [*self._temporal.buffers(), self._output]
