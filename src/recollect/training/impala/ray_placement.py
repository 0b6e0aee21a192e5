"""Actors in processes of a Ray cluster, on this machine or on many.

    recollect train t-maze --core hcam --engine ray --actors 16                     starts Ray on this machine
    recollect train t-maze --core hcam --engine ray --actors 16 --address auto      joins the cluster that runs here

An actor is one process with one world of ``batch_size`` rows and its own copy of the agent. Weights are put into the
object store once per version and read from there by every actor of a node. A rollout comes back as arrays; the learner
copies them and drops the object, so that the store holds the rollouts in transit only. Ray repeats nothing: a request
whose actor is gone is lost, and the next incarnation of that actor is asked for other rollouts.
"""

import logging
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.evaluation.world_guard import close_world
from recollect.ops.allocation import keep_freed_memory
from recollect.ops.copying import copy_each
from recollect.runs.random_states import seed_everything
from recollect.tasks.process_settings import kept_process_settings
from recollect.training.impala.actor_setup import ActorSetup, SavedActor, restore, save_snapshot
from recollect.training.impala.config import ScheduleConfig
from recollect.training.impala.placement import (
    ActorLost,
    ActorReady,
    Delivery,
    Placement,
    PublishedWeights,
    Ticket,
    share_waited,
    weight_tensors,
)
from recollect.training.impala.rollouts import PATIENCE, Collector, Episodes, Rollout

RESOURCES = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
"""What Ray is told about an actor: it is spread over the nodes, and nothing of it is repeated."""


class Packed(NamedTuple):
    """A tensor as an array, which travels without being copied by pickle."""

    numbers: np.ndarray[Any, Any]
    """Its bits; those of bfloat16, which NumPy does not have, as int16."""
    sent: torch.dtype
    """dtype of the bits."""
    dtype: torch.dtype
    """dtype of the tensor."""


def pack(tree: Any, *, halve: bool = False) -> Any:
    """Replace the tensors in tuples and dicts by arrays.

    Args:
        tree: of tensors and other data.
        halve: send float32 as bfloat16.
    """
    if isinstance(tree, Tensor):
        sent = tree.detach().to("cpu", torch.bfloat16 if halve and tree.dtype == torch.float32 else None).contiguous()
        bits = sent.view(torch.int16) if sent.dtype == torch.bfloat16 else sent
        return Packed(bits.numpy(), sent.dtype, tree.dtype)
    if isinstance(tree, dict):
        return {key: pack(part, halve=halve) for key, part in tree.items()}
    if isinstance(tree, tuple):
        build: Any = getattr(type(tree), "_make", type(tree))
        return build([pack(part, halve=halve) for part in tree])
    return tree


def unpack(tree: Any, device: torch.device) -> Any:
    """Replace arrays by tensors with memory of their own: the inverse of :func:`pack`."""
    if isinstance(tree, Packed):
        bits = torch.from_numpy(np.array(tree.numbers))  # a copy: what Ray hands out belongs to the object store
        return (bits.view(tree.sent) if bits.dtype != tree.sent else bits).to(device, tree.dtype)
    if isinstance(tree, dict):
        return {key: unpack(part, device) for key, part in tree.items()}
    if isinstance(tree, tuple):
        build: Any = getattr(type(tree), "_make", type(tree))
        return build([unpack(part, device) for part in tree])
    return tree


def count_bytes(tree: Any) -> int:
    """Return the bytes of all arrays."""
    if isinstance(tree, Packed):
        return tree.numbers.nbytes
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple) else ()
    return sum(map(count_bytes, parts))


class Request(NamedTuple):
    """What an actor was asked for."""

    actor: int
    incarnation: int
    number: int | None = None
    """Of the rollout; None asks to begin or to be restored."""
    version: int = 0
    """Of the weights."""


class RolloutAnswer(NamedTuple):
    """A rollout as an actor sends it, packed."""

    rollout: Any
    episodes: Any
    saved: Any
    waited: float


class Player:
    """One incarnation of an actor, in a process of its own."""

    collector: Collector

    def begin(self, setup: ActorSetup, actor: int, incarnation: int) -> None:
        """Make its world and its agent; an error here reaches the learner as it is."""
        torch.set_num_threads(1)
        keep_freed_memory()
        seed_everything(setup.seeds(actor, incarnation, 2)[1])
        self.loss, self.schedule = setup.config.loss, setup.config.schedule
        self.collector = setup.make(actor, setup.config.build_agent(), incarnation=incarnation, teacher=None)
        self.buffer = self.collector.buffer()
        self.version, self.ended = -1, monotonic()

    def restore(self, saved: Any, seed: int) -> None:
        """Continue where the actor was saved."""
        restore(self.collector, unpack(saved, torch.device("cpu")), seed)

    def play(self, version: int, weights: Any, save: bool) -> RolloutAnswer:
        """Play a rollout with these weights."""
        began, collector = monotonic(), self.collector
        if version != self.version:
            with torch.no_grad():
                copy_each(weight_tensors(collector.agent), list(unpack(weights, torch.device("cpu"))))
            collector.reload_weights()
            self.version = version
        rollout, episodes = collector.collect(self.buffer)
        state = () if self.loss.reuse.learner_memory == "empty" else rollout.state
        state = pack(state, halve=self.schedule.rollout_state == "bfloat16")
        packed = pack(rollout._replace(state=()))._replace(state=state)
        saved = pack(save_snapshot(collector.snapshot)) if save else None
        waited, self.ended = share_waited(self.ended, began)
        return RolloutAnswer(packed, pack(episodes), saved, waited)

    def close(self) -> None:
        """Close the world."""
        close_world(self.collector.world, self.collector.name)


class RayPlacement(Placement):
    """Actors in processes of a Ray cluster, with one of its processors each.

    Args:
        setup: of the actors.
        weights: of the actors.

    Raises:
        ValueError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, setup: ActorSetup, weights: PublishedWeights) -> None:
        self._ray = _import_ray()
        self._is_ours = _join(self._ray, setup.config.schedule)
        self._weights, self._device = weights, setup.device
        self._timeout = setup.config.schedule.timeout
        self._setup = self._ray.put(replace(setup, device=torch.device("cpu")))
        self._make = self._ray.remote(**RESOURCES)(Player).remote
        self._players: dict[int, Any] = {}
        self._asked: dict[Any, Request] = {}  # by the reference of the answer
        self._lost: deque[ActorLost] = deque()
        self._version, self._put = -1, None

    def start(self, actor: int, incarnation: int) -> None:
        """Start the process of an actor."""
        player = self._players[actor] = self._make()
        self._asked[player.begin.remote(self._setup, actor, incarnation)] = Request(actor, incarnation)

    def restore(self, saved: Sequence[SavedActor | None], seeds: Sequence[int], incarnations: Sequence[int]) -> None:
        """Send every actor what was saved of it; one that is still starting reads it after that."""
        self._asked = {ref: Request(r.actor, incarnations[r.actor]) for ref, r in self._asked.items()}
        for actor, (each, seed) in enumerate(zip(saved, seeds, strict=True)):
            ref = self._players[actor].restore.remote(pack(each), seed)
            self._asked[ref] = Request(actor, incarnations[actor])

    def play(self, ticket: Ticket, *, save: bool) -> None:
        """Send the newest weights, of which the actor's node gets each version once."""
        version, tensors = self._weights.latest()
        if version != self._version:
            self._version, self._put = version, self._ray.put(pack(tuple(tensors)))
        try:
            ref = self._players[ticket.actor].play.remote(version, self._put, save)
        except self._ray.exceptions.RayError as error:
            self._lost.append(ActorLost(ticket.actor, ticket.incarnation, _first_line(error)))
        else:
            self._asked[ref] = Request(*ticket, version)

    def receive(self, timeout: float) -> Delivery | ActorReady | ActorLost | None:
        """Return what comes back next."""
        if self._lost:
            return self._lost.popleft()
        if not self._asked:
            sleep(timeout)
            return None
        done, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=timeout)
        if not done:
            return None
        request, errors = self._asked.pop(done[0]), self._ray.exceptions
        actor, incarnation = request[:2]
        try:
            answer = self._ray.get(done[0], timeout=self._timeout)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RayError):  # its arguments are lost, with the node they were on
                return ActorLost(actor, incarnation, _first_line(error.cause))
            raise error.cause from error
        except errors.RayError as error:
            return ActorLost(actor, incarnation, _first_line(error))
        if request.number is None:
            return ActorReady(actor, incarnation)
        return self._delivery(Ticket(actor, incarnation, request.number), request.version, answer)

    def release(self, ticket: Ticket) -> None:
        """Do nothing: the learner's copy is freed with its last use."""

    def stop(self, actor: int) -> None:
        """Kill the process of an actor."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._players[actor], no_restart=True)

    def close(self) -> None:
        """Close the worlds, end the processes, and leave the cluster if this object joined it."""
        if not self._ray.is_initialized():
            return
        with suppress(self._ray.exceptions.RayError):
            closing = [player.close.remote() for player in self._players.values()]
            self._ray.wait(closing, num_returns=len(closing), timeout=PATIENCE)
        for actor in self._players:
            self.stop(actor)
        self._asked, self._players, self._put, self._setup = {}, {}, None, None
        if self._is_ours:
            self._ray.shutdown()

    def describe_room(self) -> str:
        """Return how many processors the cluster has."""
        processors = self._ray.cluster_resources().get("CPU", 0)
        return f" (the cluster has {processors:g} processors, and each actor needs one)"

    def _delivery(self, ticket: Ticket, version: int, answer: RolloutAnswer) -> Delivery:
        rollout, episodes = unpack(answer.rollout, self._device), unpack(answer.episodes, self._device)
        assert isinstance(rollout, Rollout) and isinstance(episodes, Episodes)
        saved = unpack(answer.saved, torch.device("cpu"))
        return Delivery(ticket, rollout, episodes, version, saved, count_bytes(tuple(answer)), answer.waited)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"engine='ray': {error}: run pip install 'recollect-torch[ray]'") from error
    return ray


def _join(ray: Any, schedule: ScheduleConfig) -> bool:
    """Join a cluster, or start one on this machine; return whether it has to be left at the end."""
    if ray.is_initialized():
        return False
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if schedule.address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to Ray's makers
        os.environ.setdefault("RAY_raylet_start_wait_time_s", f"{schedule.timeout:.0f}")  # 30 is short where it is busy
        processors = max(schedule.actors, os.cpu_count() or 1)
        how |= {"address": "local", "num_cpus": processors, "include_dashboard": False}
    else:
        how["address"] = schedule.address
    try:
        with kept_process_settings():  # Ray installs a handler of SIGTERM
            ray.init(**how)
    except Exception as error:  # Ray raises Exception itself when it does not start in time
        remedy = "start a cluster with `ray start --head`, and name it with --address auto, or leave the address out"
        raise ValueError(f"address={schedule.address!r}: {_first_line(error)}: {remedy}") from error
    return True


def _first_line(error: BaseException) -> str:
    """Return the kind of an error, and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
