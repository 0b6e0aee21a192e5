"""Memory requirements of a task, measured: lag, amount, and number of distractors.

In worlds the oracle acts, and ``Truth`` has the earlier steps on which each decision depends; rows of a stream task
have them in ``source``. A *use* is the first step of a run of decisions that depend on the same steps, and its *lag* is
counted from the newest of these: a memory of the last lag - 1 steps contains none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require
from recollect.lazy import np, torch
from recollect.tasks.streams.contract import Batch, StreamTask
from recollect.tasks.streams.mixture import Mixture
from recollect.tasks.worlds.contract import NEW_EPISODE, Step, World, WorldConfig

EPISODES = 256
"""Measured episodes of a world, or rows of a stream task."""
BATCH_SIZE = 64
"""Most parallel rows."""


@dataclass(frozen=True, kw_only=True)
class MemoryRequirements:
    """Memory requirements of a task."""

    lag: float
    """Steps between an item and its use; median."""
    lag_high: float
    """95th percentile of the lag."""
    episodes: float
    """Ends of episodes in between (in worlds with several episodes per reset); median."""
    episodes_high: float
    """95th percentile of the ends of episodes."""
    distractors: float
    """Other items in between: in worlds the events, each kind counted once; in stream tasks all cues, pairs and
    distractors (:meth:`StreamTask.count_items`); median. NaN when unknown."""
    bits: float
    """Amount to remember, from the task's spec; NaN when unknown."""


class Use(NamedTuple):
    """The u uses of one step."""

    lag: torch.Tensor
    """long ``[u]``: see :class:`MemoryRequirements`."""
    episodes: torch.Tensor
    """long ``[u]``."""
    distractors: torch.Tensor
    """``[u]``: long, or float with NaN where unknown."""
    row: torch.Tensor
    """long ``[u]``: their rows."""

    def of(self, rows: torch.Tensor) -> Use:
        """Return the uses of some rows; bool ``[b]``."""
        return Use(*(part[rows[self.row]] for part in self))


def measure(task: StreamTask | WorldConfig, episodes: int = EPISODES, seed: int = 0) -> MemoryRequirements | None:
    """Measure the memory requirements of a task; None where unknown, or where no decision depends on the past.

    Args:
        task: a stream task, or a world's config.
        episodes: measured episodes or rows; a few more where parallel rows do not divide them.
        seed: of the task.

    Raises:
        ValueError: fewer than one episode.
    """
    _require_some(episodes)
    uses = list(_stream_uses(task, episodes, seed) if isinstance(task, StreamTask) else _world(task, episodes, seed))
    lag, ends, others = (torch.cat([use[part] for use in uses]).numpy() if uses else np.empty(0) for part in range(3))
    if not len(lag):
        return None
    return MemoryRequirements(
        lag=float(np.median(lag)),
        lag_high=float(np.quantile(lag, 0.95, method="higher")),
        episodes=float(np.median(ends)),
        episodes_high=float(np.quantile(ends, 0.95, method="higher")),
        distractors=float(np.median(others)),
        bits=round(task.spec.bits, 3),
    )


def policy_scores(config: WorldConfig, episodes: int = EPISODES, seed: int = 0) -> dict[str, float]:
    """Measure the mean score of every named policy of a world (``spec.policies``).

    Args:
        config: of the world.
        episodes: of each policy; a few more where parallel rows do not divide them.
        seed: of the world.

    Raises:
        ValueError: fewer than one episode.
    """
    _require_some(episodes)
    return {name: round(_mean_score(config, name, episodes, seed), 3) for name in config.spec.policies}


def _require_some(episodes: int) -> None:
    require(episodes >= 1, "episodes", episodes, "measure at least one")


def _mean_score(config: WorldConfig, policy: str, episodes: int, seed: int) -> float:
    width = min(episodes, BATCH_SIZE)
    world = config.build(width, seed=seed)
    try:
        scores = [step.score[step.is_last & counted] for step, counted in _played(world, policy, -(-episodes // width))]
    finally:
        world.close()
    return float(torch.cat(scores).double().mean())


def _played(world: World, policy: str, each: int) -> Iterator[tuple[Step, torch.Tensor]]:
    """Yield steps of a world until all rows have ended ``each`` episodes, and the rows that have not, bool ``[b]``."""
    step, ended = world.reset(), torch.zeros(world.batch_size, dtype=torch.long)
    while True:
        counted = ended < each
        yield step, counted
        ended = ended + step.is_last
        if bool((ended >= each).all()):
            return
        actions = world.expert(policy)
        if actions is None:
            raise ValueError(f"{type(world).__name__} has no policy {policy!r} at every step")
        step = world.step(actions)


def _stream_uses(task: StreamTask, rows: int, seed: int) -> Iterator[Use]:
    if isinstance(task, Mixture):  # each batch is of one task
        for part in task.tasks:
            yield from _stream_uses(part, -(-rows // len(task.tasks)), seed)
        return
    batch = task.sample(rows, torch.Generator().manual_seed(seed))
    row, step = torch.nonzero(batch.source >= 0, as_tuple=True)
    if not len(row):
        return
    source, things = batch.source[row, step], task.count_items(batch)
    between = torch.full(step.shape, torch.nan)
    if things is not None:
        until = things.cumsum(1)  # things shown up to each step
        between = until[row, step] - until[row, source]
    unseen = _of_other_questions(batch)[row, step] if task.spec.given_memory else 0
    yield Use(step - source - unseen, torch.zeros_like(step), between, row)


def _of_other_questions(batch: Batch) -> torch.Tensor:
    """Return the steps between the memory and each step's question, long ``[b, t]``: questions do not see each
    other.
    """
    steps = torch.arange(batch.is_first.shape[1])
    begins = torch.where(batch.is_first, steps, 0).cummax(1).values
    memory = torch.where(batch.is_first & (steps > 0), steps, len(steps)).amin(1, keepdim=True)
    return (begins - memory).clamp(min=0)


def _world(config: WorldConfig, episodes: int, seed: int) -> Iterator[Use]:
    width = min(episodes, BATCH_SIZE)
    world = config.build(width, seed=seed)
    try:
        world.reset()
        if world.truth() is not None and world.oracle() is not None:
            yield from _world_uses(world, -(-episodes // width))
    finally:
        world.close()


def _world_uses(world: World, each: int) -> Iterator[Use]:
    events, b = world.spec.events, world.batch_size
    rows, kinds = torch.arange(b), torch.arange(len(events))
    ends_episode = torch.tensor([name == NEW_EPISODE for name in events])
    clock = torch.zeros(b, dtype=torch.long)
    last = torch.full((b, len(events)), -1)  # when each event was to be seen last
    begun = torch.zeros(b, (world.spec.max_steps or 0) + 2, dtype=torch.long)  # episodes begun up to each step
    before = torch.full((b, 2), -1)  # what the decision before depended on
    waiting: list[Use] = []  # until it is known which episode decides the score
    for step, counted in _played(world, "oracle", each):
        truth = world.truth()
        assert truth is not None
        clock = torch.where(step.is_first, 0, clock + 1)
        last = last.masked_fill(step.is_first[:, None], -1)
        before = before.masked_fill(step.is_first[:, None], -1)
        if int(clock.max()) >= begun.shape[1]:  # the world did not say how long an episode may be
            begun = torch.cat((begun, torch.zeros_like(begun)), 1)
        seen = truth.event[:, None] == kinds
        ended = (seen & ends_episode).any(1)
        begun[rows, clock] = torch.where(clock > 0, begun[rows, (clock - 1).clamp(min=0)], 0) + ended.long()
        if ended.any():
            waiting = [kept for kept in (use.of(~ended) for use in waiting) if len(kept.row)]

        interval = torch.stack((truth.start, truth.stop), 1)
        past = (truth.start >= 0) & (truth.stop <= clock) & ~step.is_last & counted
        found = past & (interval != before).any(1)
        newest = (truth.stop - 1).clamp(min=0)
        between = ((last > newest[:, None]) & ~ends_episode).sum(1)
        passed = begun[rows, clock] - begun[rows, newest]
        if found.any():
            waiting.append(Use((clock - newest)[found], passed[found], between[found], rows[found]))
        if step.is_last.any():
            yield from (use.of(step.is_last) for use in waiting)
            waiting = [kept for kept in (use.of(~step.is_last) for use in waiting) if len(kept.row)]

        before = torch.where(past[:, None], interval, before)
        last = torch.where(seen, clock[:, None], last)
