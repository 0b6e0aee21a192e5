"""Actors that play rollouts for a learner: in the learner's own thread in turn, or at the same time, elsewhere.

    free --ticket--> actor: take the newest weights, play a rollout --rollout--> waiting --> learner: learn, publish
     ^                                                                                              |
     +----------------------------------------------------------------------------------------------+

The scheme is MonoBeast's (Küttler et al., 2019): a fixed number of rollouts exists at once, being played, waiting or
being learned from. With one, actor and learner take turns with the numbers of the synchronous schedule; with more they
overlap, and an actor plays with weights that are a few updates old. V-trace corrects for that, and the lag is reported.
Actors that are ahead wait, so that memory does not grow with their number.

Where the actors run is a placement (``placement.py``). One that is lost is replaced; its rollouts that have not arrived
are dropped, and asked for again from others.

Sources: Küttler et al. (2019), TorchBeast; George (2021), Neural architecture impact on identifying temporally extended
reinforcement learning tasks, section 2.4.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from recollect.evaluation.world_guard import close_world
from recollect.machine import LIMIT_PARTS
from recollect.runs.errors import StepError, WorldError
from recollect.runs.interrupts import time_limited
from recollect.training.impala.actor_setup import SavedActor, restore, save_snapshot
from recollect.training.impala.placement import ActorLost, ActorReady, Delivery, Placement, PublishedWeights, Ticket
from recollect.training.impala.rollouts import PATIENCE, Collector

MOST_DEATHS = 10
"""Times in a row that an actor may be lost without a rollout before the run stops."""


GRACE = 30.0
"""Seconds that a run waits for its other actors when one can play. They join it when they can."""


class ActorLostError(StepError):
    """An actor is lost again and again."""

    remedy = "remove what ends it (too little memory, a world that ends its process), then resume"


class Actors(ABC):
    """Source of the learner's rollouts."""

    replaced = 0
    """Actors that were lost and replaced."""
    incarnations: list[int]
    """Times that each actor was replaced, or continued from a checkpoint."""

    @property
    @abstractmethod
    def collectors(self) -> Sequence[Collector]:
        """Collectors that live in the learner's process."""

    @abstractmethod
    def take(self) -> Delivery:
        """Wait for the next rollout and return it.

        Raises:
            StepError: a world raised or hangs, or something is not finite; names the actor and, when known, the row.
        """

    @abstractmethod
    def give_back(self, delivery: Delivery) -> None:
        """Release a rollout that was learned from."""

    @abstractmethod
    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Let all actors continue where they were saved, before their first rollout.

        Args:
            saved: the actors; None begins new episodes.
            seeds: of the worlds, where they are reset.
            incarnations: of the actors, when they were saved.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the worlds."""

    def saved(self) -> list[SavedActor | None]:
        """Return the actors of this process as they are now, before their first rollout; elsewhere None."""
        return [save_snapshot(collector.snapshot) for collector in self.collectors]


class SyncActors(Actors):
    """The synchronous schedule: collect, learn, collect, learn, all in the learner's thread.

    Args:
        collector: that plays.
        weights: of the actor.
    """

    def __init__(self, collector: Collector, weights: PublishedWeights) -> None:
        self.collector, self.weights = collector, weights
        self.buffer = collector.buffer()
        self._version, self._number = -1, 0
        self.incarnations = [0]

    @property
    def collectors(self) -> Sequence[Collector]:
        """The only collector, which plays in the learner."""
        return [self.collector]

    def take(self) -> Delivery:
        """Play the next rollout."""
        collector = self.collector
        if self._version != self.weights.version:
            self._version = self.weights.copy_to(collector.agent)
            collector.reload_weights()
        rollout, episodes = collector.collect(self.buffer)
        self._number += 1
        ticket = Ticket(0, 0, self._number - 1)
        return Delivery(ticket, rollout, episodes, self._version, save_snapshot(collector.snapshot))

    def give_back(self, delivery: Delivery) -> None:
        """Do nothing: the only buffer is filled by the next call of :meth:`take`."""

    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Continue with the collector."""
        restore(self.collector, saved[0], seeds[0])

    def close(self) -> None:
        """Close the world."""
        close_world(self.collector.world, self.collector.name)


class OpenRequests(NamedTuple):
    """What an actor was asked for and has not answered."""

    numbers: list[int]
    """Of the rollouts, oldest first."""
    since: float
    """Time of the oldest request, or of the newest answer if that was later."""


class AsyncActors(Actors):
    """The asynchronous schedule: actors play while the learner learns.

    Args:
        placement: where they run.
        actors: how many.
        queue_length: rollouts that exist at once: being played, waiting or being learned from.
        timeout: seconds that a rollout may take.
        save_every: rollouts of an actor between those with which it is saved.
    """

    def __init__(
        self, placement: Placement, actors: int, *, queue_length: int, timeout: float, save_every: int = 1
    ) -> None:
        self.placement, self.timeout, self.save_every = placement, timeout, save_every
        self.incarnations = [0] * actors
        self._most = math.ceil(queue_length / actors)  # rollouts that one actor is asked for at a time
        self._unused = queue_length
        self._numbers = [0] * actors  # of the next rollout of this incarnation
        self._asked = [OpenRequests([], 0.0) for _ in range(actors)]
        self._deaths = [0] * actors  # since the newest rollout
        self._starting = set(range(actors))
        self._heard = monotonic()  # time of the newest sign of life of any actor
        self._looked = self._heard  # when it was last checked whether actors hang
        self._turns = deque(range(actors))  # actors, the one that was asked last at the end
        self._waiting: deque[Delivery] = deque()
        for actor in range(actors):
            placement.start(actor, 0)

    @property
    def collectors(self) -> Sequence[Collector]:
        """Collectors of actors in threads; none where actors are other processes."""
        return self.placement.collectors

    @property
    def waiting(self) -> int:
        """Rollouts that arrived and wait to be learned from."""
        return len(self._waiting)

    def wait_until_started(self) -> None:
        """Wait until actors can play; begin :data:`GRACE` seconds after the first with those that can, and warn.

        Raises:
            StepError: a world cannot be made, an actor is lost again and again, or none can play.
        """
        end = monotonic() + self.timeout
        try:
            with time_limited(math.inf, patience=0.0):
                while self._starting and monotonic() < end:
                    self._handle(event := self.placement.receive(min(1.0, self.timeout / LIMIT_PARTS)))
                    if isinstance(event, ActorReady):
                        end = min(end, monotonic() + GRACE)
            self._check_hanging()
        except BaseException:
            self.close()
            raise
        if self._starting:
            names, room = sorted(self._starting), self.placement.describe_room()
            warnings.warn(
                f"actors {names} have not started yet{room}: the run begins without them",
                RuntimeWarning,
                stacklevel=2,
            )

    def take(self) -> Delivery:
        """Return the next finished rollout."""
        self._receive_all()
        self._check_hanging()
        self._ask()
        with time_limited(math.inf, PATIENCE):
            while not self._waiting:
                event = self.placement.receive(min(1.0, self.timeout / LIMIT_PARTS))
                self._handle(event)
                if event is None:
                    self._check_hanging()
                else:
                    self._ask()
        return self._waiting.popleft()

    def give_back(self, delivery: Delivery) -> None:
        """Let an actor play in its place."""
        self.placement.release(delivery.ticket)
        self._unused += 1
        self._ask()

    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Let the placement continue with every actor, as its next incarnation."""
        self._receive_all()
        self.incarnations = [incarnation + 1 for incarnation in incarnations]
        self.placement.restore(saved, seeds, self.incarnations)

    def saved(self) -> list[SavedActor | None]:
        """Return the actors of this process; those elsewhere are not known before their first rollouts."""
        return super().saved() or [None] * len(self.incarnations)

    def close(self) -> None:
        """Stop all actors."""
        self.placement.close()

    def _ask(self) -> None:
        """Ask for as many rollouts as may exist, first those actors that have the fewest to play."""
        while self._unused:
            able = [actor for actor in self._turns if len(self._asked[actor].numbers) < self._most]
            able = [actor for actor in able if actor not in self._starting]
            if not able:
                return
            actor = min(able, key=lambda actor: len(self._asked[actor].numbers))
            self._turns.remove(actor)
            self._turns.append(actor)
            number = self._numbers[actor]
            self._numbers[actor] += 1
            self._unused -= 1
            asked = self._asked[actor]
            self._asked[actor] = OpenRequests([*asked.numbers, number], asked.since if asked.numbers else monotonic())
            save = (number + 1) % self.save_every == 0
            self.placement.play(Ticket(actor, self.incarnations[actor], number), save=save)

    def _receive_all(self) -> None:
        """Take notice of everything that has arrived."""
        while (event := self.placement.receive(0.0)) is not None:
            self._handle(event)

    def _handle(self, event: Delivery | ActorReady | ActorLost | None) -> None:
        if isinstance(event, Delivery | ActorReady):
            self._heard = monotonic()
        if isinstance(event, Delivery):
            self._arrived(event)
        elif isinstance(event, ActorReady):
            if event.incarnation == self.incarnations[event.actor]:
                self._starting.discard(event.actor)
        elif isinstance(event, ActorLost) and event.incarnation == self.incarnations[event.actor]:
            self._replace(event)

    def _arrived(self, delivery: Delivery) -> None:
        actor, incarnation, number = delivery.ticket
        asked = self._asked[actor]
        if incarnation != self.incarnations[actor] or number not in asked.numbers:
            self.placement.release(delivery.ticket)  # of an actor that was replaced: its place was given to another
            return
        self._asked[actor] = OpenRequests([other for other in asked.numbers if other != number], monotonic())
        self._deaths[actor] = 0
        self._waiting.append(delivery)

    def _replace(self, lost: ActorLost) -> None:
        """Start the next incarnation of an actor, and ask others for what it did not play."""
        actor = lost.actor
        self._unused += len(self._asked[actor].numbers)
        self._asked[actor] = OpenRequests([], 0.0)
        self.placement.stop(actor)
        self._deaths[actor] += 1
        self.replaced += 1
        if self._deaths[actor] > MOST_DEATHS:
            raise ActorLostError(f"actor {actor} was lost {self._deaths[actor]} times in a row: {lost.reason}")
        self.incarnations[actor] += 1
        self._numbers[actor] = 0
        self._starting.add(actor)
        self.placement.start(actor, self.incarnations[actor])

    def _check_hanging(self) -> None:
        now = monotonic()
        self._exclude_pause(now)
        if len(self._starting) == len(self._asked) and now - self._heard > self.timeout:
            room = self.placement.describe_room()
            raise ActorLostError(f"none of the {len(self._asked)} actors starts within {self.timeout:g} s{room}")
        waits = {actor: now - asked.since for actor, asked in enumerate(self._asked) if asked.numbers}
        hanging = [actor for actor, wait in waits.items() if wait > self.timeout]
        if hanging:
            names = ", ".join(self.placement.describe(actor) for actor in hanging)
            raise WorldError(
                f"no rollout for {max(waits.values()):.0f} s from {names}: its world hangs, or takes longer than "
                f"timeout={self.timeout:g},"
            )

    def _exclude_pause(self, now: float) -> None:
        """Count the time since the last look as a part of the limit at most: this process may have been stopped."""
        pause = now - self._looked - self.timeout / LIMIT_PARTS
        self._looked = now
        if pause > 0:
            self._heard = min(self._heard + pause, now)
            self._asked = [OpenRequests(asked.numbers, min(asked.since + pause, now)) for asked in self._asked]
