"""Batches of recorded episodes: endless rows that are cut into unrolls, or whole episodes.

    endless rows (DemonstrationBatches)               row 0   | episode 7 ........ | episode 2 ...| episode 9 .......
                                                      row 1   | episode 4 ... | episode 1 ................ | episode 8
                                                              |  unroll  |  unroll  |  unroll  |

Where an episode ends, the next one of a shuffled list begins in the same row, with ``is_first``. Episodes of any
lengths thus need no padding, every one is seen from its first step, and the memory is carried from one unroll to the
next. Gradients reach back one unroll. As in rollouts, the last row of an unroll is the first one of the next, and only
its value is read before that.

    whole episodes (EpisodeBatches)                   row 0   | episode 7 ..... |
                                                      row 1   | episode 2 ...| |      steps after an end do not count

Gradients reach from an episode's end to its beginning. Batches are drawn from pools of :data:`POOL` batches that are
sorted by length, so that there is little padding. Either way each episode comes once before any comes again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.spaces import nest_parts
from recollect.evaluation.recordings import Recording
from recollect.training.impala.rollouts import Rollout

POOL = 16
"""Batches of whole episodes that are drawn and sorted at a time."""
ROUND = 8
"""Numbers of steps are rounded up to multiples of this: kernels are prepared anew for every new shape."""


class DemonstrationBatches:
    """Endless rows of recorded episodes.

    Args:
        recording: the episodes.
        batch_size: rows.
        device: of the unrolls.
        seed: of the order.
        own: rows of them that :meth:`take` returns; None for all. The others are skipped, for other learners.
    """

    carries = True
    """Whether an unroll continues the one before it, with its memory."""

    def __init__(
        self, recording: Recording, batch_size: int, device: torch.device, seed: int, own: slice | None = None
    ) -> None:
        self.device, self.batch_size = device, batch_size
        self.own = slice(0, batch_size) if own is None else own
        self.starts = np.concatenate(([0], recording.lengths.cumsum()[:-1]))
        self.lengths = recording.lengths
        last = self.starts + self.lengths - 1
        steps = int(self.lengths.sum())

        def mark(places: np.ndarray, values: Any, dtype: torch.dtype = torch.bool) -> Tensor:
            marked = torch.zeros(steps, dtype=dtype)
            marked[torch.from_numpy(places)] = torch.as_tensor(values)
            return marked

        self.action = torch.from_numpy(recording.action.copy())
        previous = torch.cat((torch.zeros_like(self.action[:1]), self.action[:-1]))
        # None is taken at the last step, but a space whose first action is not 0 has no 0.
        self.action[last] = self.action[0].clone()
        first = mark(self.starts, True)
        previous[first] = 0
        self.parts = {
            "action": previous,
            "reward": torch.from_numpy(recording.reward).float(),
            "is_first": first,
            "terminated": mark(last, recording.terminated),
            "truncated": mark(last, ~recording.terminated),
            "score": mark(last, recording.score.astype(np.float32), torch.float32),
        }
        self.observation = {name: torch.from_numpy(leaf) for name, leaf in recording.observation.items()}
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(len(self.lengths), generator=self.generator)
        self.next = 0
        """Place in the order of the next episode."""
        self._begin()

    def take(self, steps: int, state: Any) -> Rollout:
        """Return the next unroll of all rows.

        Args:
            steps: T.
            state: the learner's memory before it.
        """
        indices = [self._advance(row, steps) for row in range(len(self.places))]
        return self.gather(torch.from_numpy(np.stack(indices[self.own])), state)

    def gather(self, index: Tensor, state: Any) -> Rollout:
        """Return the recorded steps at these places, long ``[b, T + 1]``."""
        parts = {name: part[index].to(self.device) for name, part in self.parts.items()}
        observation = nested({name: leaf[index].to(self.device) for name, leaf in self.observation.items()})
        target = self.action[index[:, :-1]].to(self.device)
        unknown = parts["reward"].new_empty((*index.shape, 0))
        return Rollout(observation=observation, policy=unknown, features=unknown, state=state, target=target, **parts)

    def tensors(self) -> dict[str, Tensor]:
        """Return the position in the episodes."""
        position = {"order": self.order, "places": self.places.clone(), "next": torch.tensor(self.next)}
        return position | {"generator": self.generator.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the saved order and places of the episodes.

        Raises:
            ValueError: it was of another number of episodes.
        """
        if len(tensors["order"]) != len(self.lengths):
            raise ValueError(f"there were {len(tensors['order'])} recorded episodes, and now {len(self.lengths)}")
        self.order, self.places, self.next = tensors["order"], tensors["places"], int(tensors["next"])
        self.generator.set_state(tensors["generator"])

    def _begin(self) -> None:
        self.places = torch.tensor([(self._next_episode(), 0) for _ in range(self.batch_size)])
        """``[b, 2]``: episode and its step at which the next unroll of each row begins."""

    def _advance(self, row: int, steps: int) -> np.ndarray:
        """Return the places of the next T + 1 steps of a row, and move the row to the last of them."""
        episode, step = self.places[row].tolist()
        parts, missing = [], steps + 1
        while True:
            taken = min(missing, int(self.lengths[episode]) - step)
            parts.append(self.starts[episode] + np.arange(step, step + taken))
            missing -= taken
            if not missing:
                self.places[row] = torch.tensor((episode, step + taken - 1))
                return np.concatenate(parts)
            episode, step = self._next_episode(), 0

    def _next_episode(self) -> int:
        if self.next == len(self.order):
            self.order, self.next = torch.randperm(len(self.lengths), generator=self.generator), 0
        self.next += 1
        return int(self.order[self.next - 1])


class EpisodeBatches(DemonstrationBatches):
    """Batches of whole episodes; see :class:`DemonstrationBatches` for the arguments.

    Episodes with more steps than an unroll are cut there.
    """

    carries = False
    pool: Tensor
    """Long ``[n, b]``: episodes of the batches that were drawn and not yet taken."""

    def take(self, steps: int, state: Any) -> Rollout:
        """Return the next batch of recorded episodes.

        Args:
            steps: most steps T.
            state: the initial one.
        """
        if not len(self.pool):
            self.pool = self._draw_pool()
        batch, self.pool = self.pool[0].numpy(), self.pool[1:]
        longest = min(-(-(int(self.lengths[batch].max()) - 1) // ROUND) * ROUND, steps)
        batch, column = batch[self.own], np.arange(longest + 1)
        index = self.starts[batch][:, None] + np.minimum(column, self.lengths[batch][:, None] - 1)  # b T+1
        return self.gather(torch.from_numpy(index), state)

    def tensors(self) -> dict[str, Tensor]:
        """Return the position in the episodes."""
        return {**super().tensors(), "pool": self.pool}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the saved order of the episodes."""
        super().load(tensors)
        self.pool = tensors["pool"]

    def _begin(self) -> None:
        self.pool = self.places = torch.zeros(0, self.batch_size, dtype=torch.long)

    def _draw_pool(self) -> Tensor:
        drawn = torch.tensor([self._next_episode() for _ in range(POOL * self.batch_size)])
        by_length = drawn[torch.from_numpy(self.lengths[drawn.numpy()]).argsort(stable=True)]
        batches = by_length.reshape(POOL, self.batch_size)
        return batches[torch.randperm(POOL, generator=self.generator)]


def nested(parts: Mapping[str, Tensor]) -> Any:
    """Return the observation with these parts by dotted names; a single part has an empty name."""
    return parts[""] if "" in parts else nest_parts(parts, ".")
