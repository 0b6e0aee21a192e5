"""Tickets, incarnations and places in the queue: actors that die on command, without processes and without clocks."""

import itertools
import random
import re
import sys
from collections import Counter, deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect import GRUConfig
from recollect.cli.flags import full_names
from recollect.runs.errors import WorldError
from recollect.tasks import TMazeConfig
from recollect.training import ImpalaConfig, ScheduleConfig
from recollect.training.impala import actors as module
from recollect.training.impala.actor_setup import ActorSetup
from recollect.training.impala.actors import ActorLostError, AsyncActors
from recollect.training.impala.placement import ActorLost, ActorReady, Delivery, Placement, Ticket
from recollect.training.impala.ray_placement import count_bytes, pack, unpack
from recollect.training.impala.rollouts import Episodes

NOTHING = Episodes(1, 0, 0.0, 0.0, 0, torch.zeros(1, 1))


class CommandedPlacement(Placement):
    """Actors that play one rollout when they are told to, and die when they are told to."""

    def __init__(self):
        self.asked: dict[int, deque[Ticket]] = {}
        self.events: deque[Delivery | ActorReady | ActorLost] = deque()
        self.incarnations: dict[int, int] = {}
        self.started, self.released, self.saves, self.restored = [], [], [], None
        self.starts = True

    def start(self, actor, incarnation):
        self.started.append((actor, incarnation))
        self.incarnations[actor], self.asked[actor] = incarnation, deque()
        if self.starts:
            self.events.append(ActorReady(actor, incarnation))

    def restore(self, saved, seeds, incarnations):
        self.restored = saved, seeds, incarnations
        self.incarnations = dict(enumerate(incarnations))

    def play(self, ticket, *, save):
        assert ticket.incarnation == self.incarnations[ticket.actor]
        self.asked[ticket.actor].append(ticket)
        if save:
            self.saves.append(ticket.number)

    def receive(self, timeout):
        return self.events.popleft() if self.events else None

    def release(self, ticket):
        self.released.append(ticket)

    def stop(self, actor):
        self.asked[actor].clear()

    def close(self):
        self.asked.clear()

    def finish(self, actor):
        """Let an actor answer its oldest request, if it has one."""
        if self.asked[actor]:
            self.events.append(Delivery(self.asked[actor].popleft(), None, NOTHING, 0))

    def kill(self, actor):
        """Let an actor die: every request of it fails with a message of its own."""
        lost = ActorLost(actor, self.incarnations[actor], "killed")
        self.events.extend([lost] * max(len(self.asked[actor]), 1))
        self.asked[actor].clear()


def made(actors=3, queue_length=6, **settings):
    place = CommandedPlacement()
    return place, AsyncActors(place, actors, queue_length=queue_length, timeout=60.0, **settings)


def ask(actors):
    actors._receive_all()
    actors._ask()


def outstanding(place):
    return sum(map(len, place.asked.values()))


def test_as_many_rollouts_exist_as_there_are_places_and_actors_share_them():
    place, actors = made()
    place.events.append(Delivery(Ticket(0, 0, 9), None, NOTHING, 0))  # nobody asked for it
    ask(actors)
    assert {actor: len(asked) for actor, asked in place.asked.items()} == {0: 2, 1: 2, 2: 2}
    place.finish(1)
    first = actors.take()
    assert first.ticket == Ticket(1, 0, 0) and outstanding(place) == 5
    actors.give_back(first)
    assert outstanding(place) == 6 and place.asked[1][-1] == Ticket(1, 0, 2)
    assert place.released == [Ticket(0, 0, 9), first.ticket]


def test_a_learner_that_is_slow_holds_the_actors_up():
    place, actors = made(actors=2, queue_length=3)
    kept = []
    for _ in range(3):
        ask(actors)
        place.finish(0), place.finish(1)
        kept.append(actors.take())
    assert outstanding(place) == 0 and actors.waiting == 0
    actors.give_back(kept[0])
    assert outstanding(place) == 1


def test_an_actor_that_dies_comes_back_as_the_next_incarnation_and_its_rollouts_are_asked_of_others():
    place, actors = made()
    ask(actors)
    place.finish(0)  # it arrives, although its actor is dead by then
    place.kill(0)
    place.starts = False  # the next incarnation takes its time
    assert actors.take().ticket == Ticket(0, 0, 0)
    assert place.started[-1] == (0, 1) and actors.incarnations == [1, 0, 0] and actors.replaced == 1
    assert not place.asked[0] and [len(place.asked[actor]) for actor in (1, 2)] == [2, 2]
    late = Delivery(Ticket(0, 0, 1), None, NOTHING, 0)
    place.events += [ActorLost(0, 0, "late"), late, ActorReady(0, 0)]
    actors._receive_all()
    assert actors.replaced == 1 and actors.waiting == 0 and late.ticket in place.released
    actors._ask()
    assert not place.asked[0]
    actors._handle(ActorReady(0, 1))
    actors._ask()
    assert list(place.asked[0]) == [Ticket(0, 1, 0)]


def test_no_rollout_is_delivered_twice_and_no_place_is_lost_whoever_dies_when():
    for seed in range(20):
        draw = random.Random(seed)
        place, actors = made(actors=4, queue_length=7)
        seen, held = Counter(), []
        for _ in range(300):
            actor = draw.randrange(4)
            if draw.random() < 0.15:
                place.kill(actor)
                actors._deaths = [0] * 4
            else:
                place.finish(actor)
            ask(actors)
            if actors.waiting:
                held.append(actors.take())
                seen[held[-1].ticket] += 1
            if held and draw.random() < 0.7:
                actors.give_back(held.pop(draw.randrange(len(held))))
            places = actors._unused + sum(len(asked.numbers) for asked in actors._asked) + actors.waiting + len(held)
            assert places == 7
        assert max(seen.values()) == 1 and len(seen) > 50 and actors.replaced > 10


def test_an_actor_that_always_dies_ends_the_run_with_its_reason():
    place, actors = made(actors=1, queue_length=1)
    place.receive = lambda timeout: ActorLost(0, place.incarnations[0], "OOM: killed by the system")
    with pytest.raises(ActorLostError, match="actor 0 was lost 11 times in a row: OOM: killed by the system"):
        actors.take()


def test_actors_that_never_start_are_reported(monkeypatch):
    place = CommandedPlacement()
    place.starts = False
    actors = AsyncActors(place, 2, queue_length=2, timeout=60.0)
    monkeypatch.setattr(module, "monotonic", itertools.count(0, 10).__next__)
    with pytest.raises(ActorLostError, match="none of the 2 actors starts within 60 s"):
        actors.take()
    place.starts = True
    some = AsyncActors(place, 2, queue_length=2, timeout=60.0)
    place.events.pop()
    with pytest.warns(RuntimeWarning, match=r"actors \[1\] have not started yet: the run begins without them"):
        some.wait_until_started()


def test_time_in_which_the_learner_is_stopped_does_not_count(monkeypatch):
    now = 0.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    _, actors = made(actors=1, queue_length=1)  # with a limit of 60 s
    ask(actors)
    now = 600.0
    actors._check_hanging()
    for _ in range(3):
        now += 14.0
        actors._check_hanging()
    now += 14.0
    with pytest.raises(WorldError, match="no rollout for 71 s"):
        actors._check_hanging()


def test_a_resumed_run_continues_as_the_next_incarnations_and_saves_every_few_rollouts():
    place, actors = made(actors=2, queue_length=2, save_every=3)
    actors.restore([None, None], [5, 6], [4, 0])
    assert place.restored == ([None, None], [5, 6], [5, 1])
    tickets = []
    for _ in range(8):
        ask(actors)
        place.finish(0)
        delivery = actors.take()
        tickets.append(delivery.ticket)
        actors.give_back(delivery)
    assert tickets == [Ticket(0, 5, number) for number in range(8)] and place.saves == [2, 5, 8]


def test_arrays_bring_back_what_was_packed():
    tree = {"a": (torch.randn(3, 2).bfloat16(), torch.arange(4)), "b": torch.tensor(True), "c": [1, "x"], "d": None}
    found = unpack(pack(tree), torch.device("cpu"))
    assert found["c"] == [1, "x"] and found["d"] is None
    for one, other in zip((*tree["a"], tree["b"]), (*found["a"], found["b"]), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
    value, count = torch.randn(5, 4), torch.arange(2**40, 2**40 + 3)
    halved = unpack(pack((value, count), halve=True), torch.device("cpu"))
    assert halved[0].dtype == torch.float32 and torch.equal(halved[0], value.bfloat16().float())
    assert torch.equal(halved[1], count)
    assert count_bytes(pack((value, {"n": count}), halve=True)) == 2 * value.numel() + 8 * count.numel()


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    world = ImpalaConfig(
        world=TMazeConfig(length=3),
        core=GRUConfig(dim=8),
        schedule=ScheduleConfig(mode="asynchronous", engine="ray"),
    )
    with pytest.raises(ValueError, match=r"engine='ray': .*: run pip install 'recollect-torch\[ray\]'$"):
        world.build()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "ray"}, "engine='ray': its actors play while the learner learns: use mode='asynchronous'"),
        ({"address": "auto"}, "address='auto': only with engine='ray'; leave it at None"),
        ({"snapshot_every": 2}, "snapshot_every=2: only with engine='ray'; leave it at 1"),
        ({"rollout_state": "bfloat16"}, "rollout_state='bfloat16': only with engine='ray'"),
        ({"engine": "ray", "mode": "asynchronous", "snapshot_every": 0}, "snapshot_every=0: give at least 1"),
        ({"engine": "ray", "mode": "asynchronous", "actors": 3}, "queue_length=2: give at least one rollout for each"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ScheduleConfig(**settings)


def test_short_flags_imply_a_schedule_that_overlaps():
    words = ["--engine", "ray", "--actors", "16", "--address=auto"]
    full = ["--schedule.engine", "ray", "--schedule.actors", "16", "--schedule.address=auto"]
    assert full_names(words) == [*full, "--schedule.mode", "asynchronous", "--schedule.queue-length", "32"]
    assert full_names(["--actors=2", "--schedule.queue-length", "3"]) == [
        *("--schedule.actors=2", "--schedule.queue-length", "3", "--schedule.mode", "asynchronous")
    ]
    assert full_names(["--schedule.actors", "2"]) == ["--schedule.actors", "2"]


def test_seeds_of_incarnations_differ_from_all_others():
    config = ImpalaConfig(world=TMazeConfig(length=3), core=GRUConfig(dim=8))
    setup = ActorSetup(config, 4, torch.device("cpu"))
    keys = [(a, u) for a in range(4) for u in range(4)]  # actors, and their worlds on resume
    keys += [(a, n, last) for a in range(4) for n in range(4) for last in (1, 2)]  # levels and incarnations
    seeds = [replace(setup, rank=rank).seeds(*key) for key in keys for rank in (0, 1)]
    assert len(set(seeds)) == len(seeds)
    assert setup.seeds(1) == setup.seeds(1, 0)  # the first incarnation has the seeds of a new actor
    drawn = np.random.SeedSequence([config.fit.seed, 2, 0, 0, 1]).generate_state(2)  # as resumed runs have them
    assert list(replace(setup, rank=1).seeds(2)) == drawn.tolist()
