"""Streams of linear recurrences: the step form of every layer, without the checks of a call."""

import torch.nn.functional as F
from torch import Tensor

from recollect.cores.linear.stack import LinearRecurrence
from recollect.cores.stream import Stream


class LinearStream(Stream):
    """Stream of a linear recurrence; a block of steps runs in the chunked form."""

    core: LinearRecurrence

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step ``[b, i] -> [b, d]``."""
        outputs, self._state = self.core.unroll(inputs[:, None], self._state, is_first[:, None])
        return outputs[:, 0]

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps ``[b, t, i] -> [b, t, d]``, of which only the first may begin an episode."""
        first = F.pad(is_first[:, None], (0, inputs.shape[1] - 1))
        outputs, self._state = self.core.unroll(inputs, self._state, first)
        return outputs
