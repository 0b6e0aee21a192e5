"""The defaults for anybody's environments, and the recipe that shows what they learn."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.image_encoders import NatureCNN
from recollect.cores import LSTMConfig, MemorylessConfig
from recollect.evaluation.agents import evaluate_agent
from recollect.recipes.gymnasium import GYMNASIUM, gymnasium_run
from recollect.recipes.reproduce import reproduce
from recollect.tasks import GymnasiumConfig
from recollect.training import fit

ROOT = Path(__file__).parents[2]


class Pixels(gymnasium.Env):
    """A bright half, which the action has to name; four steps."""

    observation_space = spaces.Dict({"screen": spaces.Box(0, 255, (24, 24, 3), np.uint8), "side": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        reward = float(action == self.bright)
        return self.look(), reward, self.steps == 4, False, {}

    def look(self):
        self.bright = int(self.np_random.integers(2))
        screen = np.zeros((24, 24, 3), np.uint8)
        screen[:, 12 * self.bright : 12 * self.bright + 12] = 255
        return {"screen": screen, "side": 0}


class LargePixels(Pixels):
    """The same on a screen of 64 x 56, beside a number."""

    observation_space = spaces.Dict({"screen": spaces.Box(0, 255, (64, 56, 3), np.uint8), "side": spaces.Discrete(2)})


class Asking(Pixels):
    """Cannot be made without an option."""

    def __init__(self, size):
        self.size = size


def test_the_observation_space_chooses_one_of_two_sets():
    numbers = gymnasium_run(GymnasiumConfig(id="CartPole-v1"), LSTMConfig())
    images = gymnasium_run(GymnasiumConfig(id=f"{__name__}:Pixels"), LSTMConfig())
    assert (numbers.batch_size, images.batch_size) == (32, 16)
    assert numbers.agent.encoders == images.agent.encoders == EncoderConfig(norm_numbers=True, norm_choices=True)
    large = gymnasium_run(GymnasiumConfig(id=f"{__name__}:LargePixels"), LSTMConfig())
    assert large.agent.encoders == replace(images.agent.encoders, kinds=(("screen", "nature-cnn"),))
    assert isinstance(large.build_agent().encoder.encoders["screen"], NatureCNN)
    for name in ("nowhere_at_all:Env-v0", f"{__name__}:Asking"):  # building the run says why
        absent = gymnasium_run(GymnasiumConfig(id=name), LSTMConfig())
        assert replace(absent, world=numbers.world) == numbers


def test_a_missing_package_is_one_line_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "popgym", None)
    rows = [run for run in GYMNASIUM.rows("lite") if run.label == "repeatpreviouseasy-memoryless"]
    path = reproduce(replace(GYMNASIUM, runs={"lite": lambda: rows}), root=tmp_path)
    (file,) = (tmp_path / "results" / "gymnasium").iterdir()
    said = "id='popgym-RepeatPreviousEasy-v0' needs the package popgym: pip install popgym"
    assert json.loads(file.read_text())["error"].endswith(said)
    assert f"{said} | 0 |" in path.read_text()


@pytest.fixture
def cue_world(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.path", [str(ROOT), *sys.path])
    return GymnasiumConfig(id="examples.cue_world:CueWorld")


def test_our_own_world_of_cue_and_vector_is_an_environment_that_needs_memory(cue_world):
    made = cue_world.build(1).rows.environments[0].unwrapped
    check_env(made, skip_render_check=True)
    for wrong in (0, 1):
        first, _ = made.reset(seed=3)
        cue = int(first["cue"].argmax())
        answers = [made.step((cue + wrong) % 4) for _ in range(made.length)]
        assert all(not seen["cue"].any() for seen, *_ in answers)
        assert [reward for _, reward, *_ in answers] == [0.0] * 7 + [1.0 - wrong]
        assert [over for *_, over, _, _ in answers] == [False] * 7 + [True]
    agent = gymnasium_run(cue_world, MemorylessConfig()).build_agent()
    assert evaluate_agent(agent, cue_world, 64, seed=0, batch_size=16).score < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("world", "rollouts", "least"), [
    (GymnasiumConfig(id="FrozenLake-v1"), 150, 0.6),
    (GymnasiumConfig(id="CartPole-v1", masked=(1, 3)), 200, 350),
    (GymnasiumConfig(id="examples.cue_world:CueWorld"), 150, 0.95),
    (GymnasiumConfig(id=f"{__name__}:Pixels"), 10, 3.8),
])  # fmt: skip
def test_defaults_learn(tmp_path, cue_world, world, rollouts, least):
    config = gymnasium_run(world, LSTMConfig())
    outcome = fit(replace(config, fit=replace(config.fit, steps=rollouts)), tmp_path / "run")
    assert evaluate_agent(outcome.agent, world, 128, seed=11, batch_size=32).score > least
