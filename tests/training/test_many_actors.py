"""The real queues, with 1 000 actors that play nothing: back-pressure, lag and memory stay bounded."""

import importlib.util
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from recollect.training.impala import placement
from recollect.training.impala.actors import AsyncActors
from recollect.training.impala.placement import PublishedWeights, ThreadPlacement
from recollect.training.impala.rollouts import Episodes

ACTORS, BUFFERS, UPDATES = 1000, 16, 300
ROOT = Path(__file__).parents[2]


class NoWorld:
    def close(self):
        pass


class FakeCollector:
    """Writes its name and the number of the rollout into a buffer, at once."""

    made: list[torch.Tensor] = []  # noqa: RUF012 (all buffers of the test)

    def __init__(self, actor):
        self.name, self.number, self.seen, self.world = f"actor {actor}", 0, [], NoWorld()
        self.actor, self.agent, self.snapshot = actor, nn.Linear(1, 1, bias=False), None

    def reload_weights(self):
        pass

    def buffer(self):
        self.made.append(torch.zeros(3, dtype=torch.long))
        return self.made[-1]

    def collect(self, buffer):
        version = int(self.agent.weight.item())  # what it plays with
        buffer.copy_(torch.tensor([self.actor, self.number, version]))
        self.number += 1
        return buffer, Episodes(1, 0, 0.0, 0.0, 0, torch.zeros(1, 1))


@pytest.mark.long
def test_a_thousand_actors_wait_for_a_slow_learner(monkeypatch):
    monkeypatch.setattr(placement, "save_snapshot", lambda snapshot: None)
    learner = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(learner.weight)
    FakeCollector.made = []
    collectors = [FakeCollector(actor) for actor in range(ACTORS)]
    weights = PublishedWeights(learner)
    played = ThreadPlacement(collectors, weights, BUFFERS)
    actors = AsyncActors(played, ACTORS, queue_length=BUFFERS, timeout=60)
    seen, lags, waiting = Counter(), [], []
    try:
        for update in range(UPDATES):
            delivery = actors.take()
            before = delivery.rollout.clone()
            time.sleep(0.002)  # learning takes longer than playing: the actors have to wait
            assert torch.equal(delivery.rollout, before), "a buffer was overwritten while it was learned from"
            actor, number, version = before.tolist()
            assert version == delivery.version, "the weights are those of the version that is reported"
            seen[actor, number] += 1
            lags.append(update - version)
            waiting.append(actors.waiting)
            nn.init.constant_(learner.weight, update + 1)
            weights.publish(learner, update + 1)
            actors.give_back(delivery)
        assert threading.active_count() >= ACTORS
    finally:
        actors.close()
    assert len(FakeCollector.made) == BUFFERS, "memory does not depend on the number of actors"
    assert max(seen.values()) == 1 and len(seen) == UPDATES, "every rollout is delivered once"
    # The system may hold up a thread while it plays, so that no bound holds for every single rollout.
    assert min(lags) >= 0 and sorted(lags)[int(0.95 * UPDATES)] <= 2 * BUFFERS, "the lag does not grow with the actors"
    assert max(waiting) <= BUFFERS - 1, "actors wait for a buffer"
    assert sum(collector.number for collector in collectors) <= UPDATES + BUFFERS, (
        "nothing was played to be thrown away"
    )


def test_the_page_has_the_needs_that_follow_from_the_measured_constants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("scale_benchmark", ROOT / "benchmarks" / "scale.py")
    scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scale)
    sys.modules.pop("source_tree", None)
    found = json.loads(scale.RESULTS.read_text())
    assert scale.table(found) in scale.PAGE.read_text()
    assert scale.actors_table(json.loads(scale.ACTORS_RESULTS.read_text())) in scale.PAGE.read_text()
    small = {"rows": 2, "unroll": 5, "rollout_bytes": 100, "memory_bytes": 40, "weights_bytes": 8}
    needs = scale.needs(small | {"collect_seconds": 0.5, "learn_seconds": 0.1, "sum_seconds": 0.1}, 6, 2, 4)
    # 12 rollouts per second are played, 10 are read.
    assert list(needs.values()) == pytest.approx([120, 12, 10, 1.2, 1000, 600, 400, 240, 40, 3])
