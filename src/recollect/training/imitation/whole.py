"""Whole recorded episodes, one a row, from their first step; short ones beside short ones.

    row 0   | episode 7 ..... |          no step of a row comes from another episode; what is behind an episode's end
    row 1   | episode 2 ...| |           counts for nothing
    row 2   | episode 9 ..... |

Gradients reach from an episode's end to its beginning. Batches are drawn from pools of :data:`POOL` batches that are
sorted by length, so that little is computed for nothing. Each episode comes once before any comes again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.training.imitation.recorded import EpisodeRows
from recollect.training.impala.rollouts import Rollout

POOL = 16
"""Batches that are drawn and sorted at a time."""
ROUND = 8
"""Numbers of steps are rounded up to multiples of this: kernels are prepared anew for every shape that they meet."""


class WholeEpisodes(EpisodeRows):
    """Batches of whole episodes; see :class:`EpisodeRows` for the arguments.

    Episodes of more steps than an unroll has are cut there.
    """

    carries = False
    pool: Tensor
    """Long ``[n, b]``: episodes of the batches that were drawn and not yet taken."""

    def take(self, steps: int, state: Any) -> Rollout:
        """The next batch.

        Args:
            steps: most steps T.
            state: the initial one.
        """
        if not len(self.pool):
            self.pool = self._draw()
        batch, self.pool = self.pool[0].numpy(), self.pool[1:]
        longest = min(-(-(int(self.lengths[batch].max()) - 1) // ROUND) * ROUND, steps)
        column = np.arange(longest + 1)
        index = self.starts[batch][:, None] + np.minimum(column, self.lengths[batch][:, None] - 1)  # b T+1
        return self.gather(torch.from_numpy(index), state)

    def tensors(self) -> dict[str, Tensor]:
        """Where it stands."""
        return {**super().tensors(), "pool": self.pool}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        super().load(tensors)
        self.pool = tensors["pool"]

    def _stand(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.pool = self.places = torch.zeros(0, batch_size, dtype=torch.long)

    def _draw(self) -> Tensor:
        drawn = torch.tensor([self._begin()[0] for _ in range(POOL * self.batch_size)])
        by_length = drawn[torch.from_numpy(self.lengths[drawn.numpy()]).argsort(stable=True)]
        batches = by_length.reshape(POOL, self.batch_size)
        return batches[torch.randperm(POOL, generator=self.generator)]
