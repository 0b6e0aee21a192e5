"""Where the actors of an asynchronous schedule run, and how requests and rollouts travel between them and the learner.

    learner                                 placement                               actor
    play(ticket)          ------------>     the newest weights, by version   --->   play a rollout with them
    receive()             <------------     Delivery, ActorReady, ActorLost    <---   the rollout and its statistics
    release(ticket)       ------------>     its memory can be used again

A ticket is one rollout of one incarnation of one actor: an actor that died comes back as the next incarnation, and
whatever arrives late from an earlier one is recognised and dropped. :class:`ThreadPlacement` has threads of the
learner's process, ``ray_placement.py`` processes of a cluster. Another framework for actors derives from
:class:`Placement`.
"""

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
from recollect.tasks.process_settings import kept_process_settings
from recollect.training.impala.actor_setup import SavedActor, restore, save_snapshot
from recollect.training.impala.rollouts import PATIENCE, Collector, Episodes, Rollout


class PublishedWeights:
    """The learner's newest weights, with a version, for actors to copy.

    Args:
        agent: the learner's.
    """

    def __init__(self, agent: Agent) -> None:
        self._lock = threading.Lock()
        self._tensors = [tensor.clone() for tensor in weight_tensors(agent)]
        self.version = 0
        """Updates of the learner that they come from."""

    def publish(self, agent: Agent, version: int) -> None:
        """Replace the weights by those of the learner."""
        with self._lock, torch.no_grad():
            copy_each(self._tensors, weight_tensors(agent))
            self.version = version

    def latest(self) -> tuple[int, list[Tensor]]:
        """Return the newest version and its weights, which the next :meth:`publish` overwrites."""
        return self.version, self._tensors

    def copy_to(self, agent: Agent) -> int:
        """Copy the newest weights to an actor's agent; return their version."""
        with self._lock, torch.no_grad():
            copy_each(weight_tensors(agent), self._tensors)
            return self.version


def weight_tensors(agent: Agent) -> list[Tensor]:
    """Return everything that an actor copies from the learner's agent."""
    return [tensor.detach() for tensor in (*agent.parameters(), *agent.buffers())]


class Ticket(NamedTuple):
    """Name of one rollout; no two rollouts of a run have the same."""

    actor: int
    """Number of the actor."""
    incarnation: int
    """Times that this actor was replaced before."""
    number: int
    """Rollouts that this incarnation was asked for before."""


class Delivery(NamedTuple):
    """A rollout on its way to the learner."""

    ticket: Ticket
    """Its name."""
    rollout: Rollout
    """Its tensors belong to the placement, until its ticket is released."""
    episodes: Episodes
    """Statistics of it."""
    version: int
    """Version of the weights that it was played with."""
    saved: SavedActor | None = None
    """The actor after it, to be saved; None where that was not asked for."""
    nbytes: int = 0
    """Bytes that travelled to the learner's process."""
    waited: float = 0.0
    """Share of the time since its former rollout that the actor waited to be asked."""


class ActorReady(NamedTuple):
    """A new incarnation of an actor can play."""

    actor: int
    incarnation: int


class ActorLost(NamedTuple):
    """An incarnation of an actor is gone, with everything that it was asked for."""

    actor: int
    incarnation: int
    reason: str


class Placement(ABC):
    """Starts actors somewhere, and carries requests and rollouts between them and the learner."""

    collectors: Sequence[Collector] = ()
    """Those that live in the learner's process."""

    @abstractmethod
    def start(self, actor: int, incarnation: int) -> None:
        """Begin an incarnation of an actor, in new episodes; :class:`ActorReady` arrives when it can play."""

    @abstractmethod
    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Let all actors continue where they were saved, before their first rollout.

        Args:
            saved: the actors; None begins new episodes.
            seeds: of the worlds, where they are reset.
            incarnations: their new numbers, also of actors that cannot play yet.
        """

    @abstractmethod
    def play(self, ticket: Ticket, *, save: bool) -> None:
        """Ask an actor for a rollout, and with ``save`` for its state after that; rollouts arrive in their order."""

    @abstractmethod
    def receive(self, timeout: float) -> Delivery | ActorReady | ActorLost | None:
        """Return what arrives next; None if nothing does in so many seconds.

        Raises:
            StepError: a world raised, or something is not finite; names the actor and, when known, the row.
        """

    @abstractmethod
    def release(self, ticket: Ticket) -> None:
        """Use the memory of a rollout again."""

    @abstractmethod
    def stop(self, actor: int) -> None:
        """End an actor that is lost, as far as it still exists."""

    @abstractmethod
    def close(self) -> None:
        """End all actors, and close their worlds."""

    def describe(self, actor: int) -> str:
        """Return an actor's name, and what is known of its rollout in progress."""
        return f"actor {actor}"

    def describe_room(self) -> str:
        """Return what actors need and what there is of it, for messages about actors that do not start."""
        return ""


class ThreadPlacement(Placement):
    """Actors in threads of the learner's process, which write rollouts into preallocated buffers.

    torch releases the interpreter's lock inside its operations, where our worlds and models of many rows spend their
    time, and nothing has to be copied between processes or pickled. A world that holds the lock (one written in Python)
    gains little; it should use processes of its own, as Gymnasium's AsyncVectorEnv does.

    Args:
        collectors: one per actor.
        weights: of the actors.
        buffers: rollouts that exist at once.
    """

    def __init__(self, collectors: Sequence[Collector], weights: PublishedWeights, buffers: int) -> None:
        self.collectors = collectors
        self.threads: list[threading.Thread] = []
        self._weights = weights
        self._versions = [-1] * len(collectors)
        self._free = [collectors[0].buffer() for _ in range(buffers)]
        self._used: dict[Ticket, Rollout] = {}
        self._asked: list[queue.SimpleQueue[tuple[Ticket, Rollout] | None]] = [queue.SimpleQueue() for _ in collectors]
        self._finished: queue.SimpleQueue[Delivery | ActorReady | BaseException] = queue.SimpleQueue()
        self._stopping = threading.Event()

    def start(self, actor: int, incarnation: int) -> None:
        """Start the thread of an actor; a thread is never lost."""
        name = self.collectors[actor].name
        self.threads.append(threading.Thread(target=self._run, args=(actor,), name=name, daemon=True))
        self._finished.put(ActorReady(actor, incarnation))

    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Continue with every collector."""
        for collector, each, seed in zip(self.collectors, saved, seeds, strict=True):
            restore(collector, each, seed)

    def play(self, ticket: Ticket, *, save: bool) -> None:
        """Hand a buffer to an actor. Its state comes with every rollout, since it is in this process."""
        if not self.threads[0].ident:
            for thread in self.threads:
                thread.start()
        self._used[ticket] = self._free.pop()
        self._asked[ticket.actor].put((ticket, self._used[ticket]))

    def receive(self, timeout: float) -> Delivery | ActorReady | None:
        """Return the next rollout."""
        try:
            found = self._finished.get(timeout=timeout) if timeout else self._finished.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def release(self, ticket: Ticket) -> None:
        """Let an actor write to the buffer."""
        self._free.append(self._used.pop(ticket))

    def stop(self, actor: int) -> None:
        """Do nothing: a thread is never lost."""

    def close(self) -> None:
        """Stop the actors after their present rollout; close the worlds of those that stopped, give up the others."""
        self._stopping.set()
        for asked in self._asked:
            asked.put(None)
        end = monotonic() + PATIENCE
        for thread in self.threads:
            if thread.ident:
                thread.join(max(end - monotonic(), 0.0))
        for collector, thread in zip(self.collectors, self.threads, strict=True):
            if not thread.is_alive():
                close_world(collector.world, collector.name)
            elif thread.ident:  # its world hangs
                kept_process_settings.give_up(thread.ident)

    def describe(self, actor: int) -> str:
        """Return an actor's name, and how far it is in its rollout."""
        collector = self.collectors[actor]
        return f"{collector.name} ({len(collector.seen) - 1} steps into it)"

    def _run(self, actor: int) -> None:
        collector, ended = self.collectors[actor], monotonic()
        try:
            while (asked := self._asked[actor].get()) is not None and not self._stopping.is_set():
                ticket, buffer = asked
                began = monotonic()
                if self._versions[actor] != self._weights.version:
                    self._versions[actor] = self._weights.copy_to(collector.agent)
                    collector.reload_weights()
                rollout, episodes = collector.collect(buffer)
                waited, ended = share_waited(ended, began)
                delivery = Delivery(ticket, rollout, episodes, self._versions[actor], save_snapshot(collector.snapshot))
                self._finished.put(delivery._replace(waited=waited))
        except BaseException as error:  # raised again in the learner's thread
            self._finished.put(error)


def share_waited(ended: float, began: float) -> tuple[float, float]:
    """Return the share of an actor's time since its former rollout that it waited, and the time now.

    Args:
        ended: when its former rollout was finished.
        began: when it began to play.
    """
    now = monotonic()
    return (began - ended) / max(now - ended, 1e-9), now
