"""Boxes of things in Pong: the reading of memory by hand; the replay against a recorded game where OCAtari is there."""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from recollect.interpret.episodes import record_episode
from recollect.interpret.ocatari import _area, replayed, things_in, with_things
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.tasks.gymnasium.atari import AtariRules
from recollect.tasks.gymnasium.worlds import GymnasiumConfig

INSTALLED = find_spec("ocatari") is not None and find_spec("ale_py") is not None


class Ball:
    """As OCAtari's: corner and size in the game's own pixels, 160 wide and 210 tall."""

    xywh = 0, 0, 2, 4


class NoObject:
    """What OCAtari has for a thing that is not to be seen."""


def _detect(things, memory, hud=False):
    things[0] = NoObject() if memory[0] == 0 else things[0] if isinstance(things[0], Ball) else Ball()
    if isinstance(things[0], Ball):
        things[0].xywh = int(memory[0]), int(memory[1]), 2, 4


def test_boxes_are_in_the_observation_s_pixels():
    reader = SimpleNamespace(_init_objects_ram=lambda hud: [Ball()], _detect_objects_ram=_detect)
    found = things_in(np.array([[80, 105], [0, 0], [40, 0]], np.uint8), reader, (42, 40))
    assert found.names == ("ball",) and found.visible[:, 0].tolist() == [True, False, True]
    assert found.boxes[0, 0].tolist() == [21, 20, 22, 21] and found.boxes[2, 0].tolist() == [0, 10, 1, 11]
    assert found.matters.all()


def test_means_over_areas():
    assert np.allclose(_area(4, 2), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    assert np.allclose(_area(5, 2) @ np.ones(5), 1) and _area(5, 2)[0, 2] == pytest.approx(0.2)


@pytest.mark.skipif(not INSTALLED, reason="no OCAtari: pip install --no-deps ocatari")
def test_the_replay_shows_what_the_agent_saw():
    world = GymnasiumConfig(id="ALE/Pong-v5", options=AtariRules(side=42, life_loss=False, noops=3).options)
    config = replace(short_t_maze("gru"), core=lite_core("gru", steps=20, window=4, chunk=4, top_k=2), world=world)
    record = record_episode(config.build_agent().eval(), world, longest=30, greedy=False)
    told = with_things(record)
    assert told.objects is not None and told.objects.names == ("player", "ball", "enemy")
    assert told.objects.visible[:, 0].all()
    seen = record.observations["observation"][:, -1].astype(int)
    for t, (box, visible) in enumerate(zip(told.objects.boxes[:, 0], told.objects.visible[:, 0], strict=True)):
        top, left, bottom, right = box
        assert not visible or np.abs(seen[t, top:bottom, left:right] - np.median(seen[t])).max() > 10
    assert replayed(replace(record, action=np.zeros_like(record.action)), "pong") is None
    other = with_things(replace(record, action=np.zeros_like(record.action)))
    assert other.objects is None and "does not repeat itself" in other.info.notes[-1]
