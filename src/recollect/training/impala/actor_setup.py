"""What an actor is made from: its world, its copy of the agent and its seeds, in the learner's process or another.

    seeds of            key
    a new actor         (actor)
    worlds on resume    (actor, updates)           where a world cannot be saved
    a curriculum        (actor, level, 1)
    a replacement       (actor, incarnation, 2)    for an actor that died; the first incarnation is 0

Keys of learners with another rank have the rank behind them, so that no two worlds of a run have the same seed.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.evaluation.world_guard import build_world, close_world
from recollect.runs.errors import WorldError
from recollect.runs.interrupts import TimeLimitExceeded, time_limited
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.imitation.teachers import Teacher
from recollect.training.impala.config import ImpalaConfig
from recollect.training.impala.ground_truth import GroundTruthRecorder
from recollect.training.impala.rollouts import ActorSnapshot, Collector
from recollect.training.impala.supervision import require_targets


class SavedActor(NamedTuple):
    """An actor between two rollouts, as a checkpoint keeps it."""

    tensors: Mapping[str, Tensor]
    """Those of :meth:`~recollect.training.impala.rollouts.ActorSnapshot.tensors`."""
    world: Any
    """JSON data of the world; None for a world that cannot be saved."""


def save_snapshot(snapshot: ActorSnapshot) -> SavedActor:
    """Return a snapshot as a checkpoint keeps it."""
    return SavedActor(snapshot.tensors(), None if snapshot.world is None else snapshot.world[1])


def restore(collector: Collector, saved: SavedActor | None, seed: int) -> None:
    """Continue where an actor was saved; without that, begin new episodes with new memories.

    Args:
        collector: of the actor.
        saved: the actor; None if it was not saved.
        seed: of the world, where it is reset.
    """
    if saved is None:
        collector.begin(seed)
    else:
        collector.load(saved.tensors, saved.world, seed)


@dataclass(frozen=True)
class ActorSetup:
    """Settings of a learner's actors; can be sent to other processes."""

    config: ImpalaConfig
    batch_size: int
    """Rows of each actor's world."""
    device: torch.device
    """Where they play."""
    rank: int = 0
    """Number of the learner."""

    def seeds(self, *key: int) -> tuple[int, int]:
        """Return the seeds of a world and of actions; they differ between keys and learners."""
        several = (*key, *[0] * (3 - len(key)), self.rank) if self.rank else key
        world, action = np.random.SeedSequence([self.config.fit.seed % 2**32, *several]).generate_state(2).tolist()
        return world, action

    def make(
        self,
        actor: int,
        agent: ActorCritic,
        *,
        incarnation: int = 0,
        task: WorldConfig | None = None,
        teacher: Teacher | None,
    ) -> Collector:
        """Make an actor's world and collector.

        Args:
            actor: its number.
            agent: the learner's, which is copied.
            incarnation: times that this actor died before.
            task: the world's config; None for that of the run.
            teacher: that labels its steps.

        Raises:
            WorldError: the world cannot be made and reset, or not in time.
            ValueError: the world lacks what the config asks of it.
        """
        config, name = self.config, f"actor {actor}"
        world_seed, action_seed = self.seeds(actor, incarnation, 2) if incarnation else self.seeds(actor)
        with self._creation_limit(name):
            world = build_world(task or config.world, self.batch_size, name, seed=world_seed, device=self.device)
            try:
                acting = copy.deepcopy(agent).eval().requires_grad_(False)
                how: dict[str, Any] = {"bfloat16": config.bfloat16, "timeout": config.schedule.timeout}
                if config.loss.supervision.on:
                    how["ground_truth"] = GroundTruthRecorder()
                generator = torch.Generator(self.device).manual_seed(action_seed)
                collector = Collector(acting, world, config.unroll, generator, name, teacher=teacher, **how)
                require_targets(config.loss.supervision, world, acting.core)
                if teacher is not None:
                    teacher.require(world)
            except BaseException:
                close_world(world, name)
                raise
        return collector

    def make_all(
        self, actors: int, agent: ActorCritic, *, task: WorldConfig | None = None, teacher: Teacher | None
    ) -> list[Collector]:
        """Make the collectors of all actors; where one fails, close the worlds of those before it."""
        made: list[Collector] = []
        try:
            for actor in range(actors):
                made.append(self.make(actor, agent, task=task, teacher=teacher))
        except BaseException:
            for collector in made:
                close_world(collector.world, collector.name)
            raise
        return made

    def enter(self, collector: Collector, task: WorldConfig, level: int) -> None:
        """Let the first actor play at another level of a curriculum from now on, in new episodes."""
        seed, _ = self.seeds(0, level, 1)
        old = collector.world
        with self._creation_limit(collector.name):
            collector.enter(build_world(task, self.batch_size, collector.name, seed=seed, device=self.device))
        close_world(old, collector.name)

    @contextmanager
    def _creation_limit(self, name: str) -> Iterator[None]:
        """Limit the time of making and resetting a world to ``schedule.timeout``; name the actor in the error."""
        seconds = self.config.schedule.timeout
        try:
            with time_limited(seconds, patience=0.0):
                yield
        except TimeLimitExceeded:
            raise WorldError(f"{name}: its world is not made and reset after {seconds:g} s") from None
