"""Actors that play rollouts for a learner: in the learner's own thread in turn, or in threads of their own.

    free  --index-->  actor: copy the newest weights, play a rollout into buffers[index]  --index-->  full
     ^                                                                                                |
     +-----------------  learner: learn from buffers[index], publish the weights  <-------------------+

The scheme is MonoBeast's (Küttler et al., 2019): rollouts are written into preallocated buffers, and the two queues
hold their indices. With one buffer, actor and learner take turns with the numbers of the synchronous schedule; with
more they overlap, and an actor plays with weights that are a few updates old. V-trace corrects for that, and the lag is
reported.

Actors are threads, not processes: torch releases the interpreter's lock inside its operations, where our worlds and
models of many rows spend their time, and nothing has to be copied between processes or pickled. A world that holds the
lock (one written in Python) gains little; it should use processes of its own, as Gymnasium's AsyncVectorEnv does.

Sources: Küttler et al. (2019), TorchBeast; George (2021), Neural architecture impact on identifying temporally extended
reinforcement learning tasks, section 2.4.
"""

import math
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

import torch
from torch import Tensor

from recollect.agents.contract import Agent
from recollect.evaluation.world_guard import close_world
from recollect.ops.copying import copy_each
from recollect.runs.errors import WorldError
from recollect.runs.interrupts import time_limited
from recollect.training.impala.rollouts import PATIENCE, Collector, Episodes, Rollout


class Weights:
    """The learner's newest weights, with a version, for actors to copy.

    Args:
        agent: the learner's.
    """

    def __init__(self, agent: Agent) -> None:
        self._lock = threading.Lock()
        self._tensors = [tensor.clone() for tensor in _tensors(agent)]
        self.version = 0
        """Updates of the learner that they come from."""

    def publish(self, agent: Agent, version: int) -> None:
        """Replace the weights by those of the learner."""
        with self._lock, torch.no_grad():
            copy_each(self._tensors, _tensors(agent))
            self.version = version

    def copy_to(self, agent: Agent) -> int:
        """Copy the newest weights to an actor's agent; return their version."""
        with self._lock, torch.no_grad():
            copy_each(_tensors(agent), self._tensors)
            return self.version


class Delivery(NamedTuple):
    """A rollout on its way to the learner."""

    rollout: Rollout
    """Its tensors are a buffer's, until it is given back."""
    episodes: Episodes
    """Statistics of it."""
    version: int
    """Version of the weights that it was played with."""
    buffer: int
    """Index of its buffer."""


class Actors(ABC):
    """Source of the learner's rollouts.

    Args:
        collectors: one per actor.
        weights: of the actors.
    """

    def __init__(self, collectors: Sequence[Collector], weights: Weights) -> None:
        self.collectors = collectors
        self.weights = weights
        self._versions = [-1] * len(collectors)

    @abstractmethod
    def take(self) -> Delivery:
        """Return the next rollout.

        Raises:
            StepError: a world raised or hangs, or something is not finite; names the actor and, when known, the row.
        """

    @abstractmethod
    def give_back(self, delivery: Delivery) -> None:
        """Release the buffer of a rollout that was learned from."""

    def close(self) -> None:
        """Close the worlds."""
        for collector in self.collectors:
            close_world(collector.world, collector.name)

    def _play(self, actor: int, buffer: Rollout, index: int) -> Delivery:
        """Play one rollout of one actor, with the newest weights."""
        collector = self.collectors[actor]
        if self._versions[actor] != self.weights.version:
            self._versions[actor] = self.weights.copy_to(collector.agent)
            collector.reload_weights()
        return Delivery(*collector.collect(buffer), self._versions[actor], index)


class SyncActors(Actors):
    """The synchronous schedule: collect, learn, collect, learn, all in the learner's thread."""

    def __init__(self, collectors: Sequence[Collector], weights: Weights) -> None:
        super().__init__(collectors, weights)
        self.buffer = collectors[0].buffer()

    def take(self) -> Delivery:
        """Play the next rollout."""
        return self._play(0, self.buffer, 0)

    def give_back(self, delivery: Delivery) -> None:
        """Do nothing: the only buffer is filled by the next call of :meth:`take`."""


class AsyncActors(Actors):
    """The asynchronous schedule: actor threads play while the learner learns.

    Args:
        collectors: one per actor.
        weights: of the actors.
        buffers: rollouts that exist at once: being played, waiting or being learned from.
        timeout: seconds that a rollout may take.
    """

    def __init__(self, collectors: Sequence[Collector], weights: Weights, *, buffers: int, timeout: float) -> None:
        super().__init__(collectors, weights)
        self.timeout = timeout
        self.buffers = [collectors[0].buffer() for _ in range(buffers)]
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[Delivery | BaseException] = queue.SimpleQueue()
        for index in range(buffers):
            self._free.put(index)
        self._since: list[float | None] = [None] * len(collectors)  # start of each actor's rollout in progress
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def take(self) -> Delivery:
        """Return the next finished rollout; the first call starts the actors."""
        if not self._threads:
            for actor, collector in enumerate(self.collectors):
                thread = threading.Thread(target=self._run, args=(actor,), name=collector.name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._check_hanging()
        while True:
            try:
                with time_limited(math.inf, PATIENCE):
                    delivery = self._full.get(timeout=min(1.0, self.timeout))
            except queue.Empty:
                self._check_hanging()
                continue
            if isinstance(delivery, BaseException):
                raise delivery
            return delivery

    def give_back(self, delivery: Delivery) -> None:
        """Let an actor write to its buffer."""
        self._free.put(delivery.buffer)

    def close(self) -> None:
        """Stop the actors after their present rollout, and close the worlds of those that stopped."""
        self._stopping.set()
        for _ in self._threads:
            self._free.put(None)
        end = monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(end - monotonic(), 0.0))
        for actor, collector in enumerate(self.collectors):
            if not (self._threads and self._threads[actor].is_alive()):
                close_world(collector.world, collector.name)

    def _run(self, actor: int) -> None:
        try:
            while True:
                index = self._free.get()
                if index is None or self._stopping.is_set():
                    return
                self._since[actor] = monotonic()
                delivery = self._play(actor, self.buffers[index], index)
                self._since[actor] = None
                self._full.put(delivery)
        except BaseException as error:  # raised again in the learner's thread
            self._since[actor] = None
            self._full.put(error)

    def _check_hanging(self) -> None:
        now = monotonic()
        waits = {actor: now - since for actor, since in enumerate(self._since) if since is not None}
        hanging = [actor for actor, wait in waits.items() if wait > self.timeout]
        if hanging:
            at = (f"{self.collectors[a].name} ({len(self.collectors[a].seen) - 1} steps into it)" for a in hanging)
            raise WorldError(
                f"no rollout for {max(waits.values()):.0f} s from {', '.join(at)}: its world hangs, or takes longer "
                f"than timeout={self.timeout:g},"
            )


def _tensors(agent: Agent) -> list[Tensor]:
    return [tensor.detach() for tensor in (*agent.parameters(), *agent.buffers())]
