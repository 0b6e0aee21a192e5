"""Observations whose keys have the characters that separate names: trained, saved, streamed, exported, recorded."""

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.spaces import nest_parts, parts, split_name
from recollect.cores import CORES
from recollect.evaluation.recorded_world import RecordingConfig
from recollect.evaluation.recordings import demonstrate, read_recording, write_recording
from recollect.export.folder import export_model
from recollect.recipes.train import training
from recollect.runs import checkpoints
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec, escape_key
from recollect.training import EvaluationConfig, FitConfig, ImpalaConfig, fit, load_model

SPACE = spaces.Dict(
    {
        "agent.pos": spaces.Box(-1, 1, (2,), np.float32),
        "agent": spaces.Dict({"pos": spaces.Box(-1, 1, (3,), np.float32), "50%": spaces.Discrete(3)}),
        "a/b%2E": spaces.Box(-1, 1, (1,), np.float32),
    }
)
SMALL = {
    "core": CORES["gru"](dim=4, num_layers=1),
    "agent": ActorCriticConfig(width=8),
    "fit": FitConfig(steps=2, evaluate_every=2, checkpoint_every=1, report_seconds=None),
    "evaluation": EvaluationConfig(episodes=2),
    "batch_size": 2,
    "unroll": 4,
}


class Clock(NamedTuple):
    step: torch.Tensor  # long b


@dataclass(frozen=True, kw_only=True)
class DottedConfig(WorldConfig):
    """Shows the step in all parts; action 1 is right."""

    @property
    def spec(self):
        return WorldSpec(
            observation_space=SPACE,
            action_space=spaces.Discrete(2),
            max_steps=3,
            memory_span=0,
            chance=0.5,
            oracle=1.0,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Dotted(self.spec, batch_size, seed=seed, device=device)


class Dotted(TensorWorld[Clock]):
    def begin(self, batch_size):
        return Clock(torch.zeros(batch_size, dtype=torch.long))

    def advance(self, state, actions):
        moved = state.step + 1
        return Advance(Clock(moved), actions.float(), moved >= 3, actions.float())

    def observe(self, state):
        shown = state.step.float()[:, None] / 4
        inner = {"pos": shown.expand(-1, 3), "50%": state.step.clamp(max=2)}
        return {"agent.pos": shown.expand(-1, 2), "agent": inner, "a/b%2E": shown}

    def plan(self, state):
        return state.step % 2  # actions that differ, from which there is something to learn


@given(st.lists(st.text(st.sampled_from("ab./%25EF"), min_size=1), min_size=1, max_size=3))
def test_names_have_their_keys(keys):
    for separator in "./":
        name = separator.join(map(escape_key, keys))
        assert split_name(name, separator) == keys
    assert escape_key("50% of a-b_c") == "50% of a-b_c"  # other keys are as in older files


def test_parts_with_the_same_letters_stay_apart():
    names = [name for name, _ in parts(SPACE)]
    assert sorted(names) == ["a%2Fb%252E", "agent%2Epos", "agent/50%", "agent/pos"]
    assert nest_parts(dict.fromkeys(names, 1), "/") == {"agent.pos": 1, "agent": {"pos": 1, "50%": 1}, "a/b%2E": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("dotted") / "run"
    fit(ImpalaConfig(world=DottedConfig(), **SMALL), path)
    return path


def inputs(world, rows):
    step = world.reset()
    unknown = torch.zeros(rows, 0)
    return ActorInputs(step.observation, torch.zeros(rows, dtype=torch.long), step.reward, unknown, unknown), step


def test_a_run_goes_on_and_streams(run):
    longer = ImpalaConfig(world=DottedConfig(), **{**SMALL, "fit": replace(SMALL["fit"], steps=3)})
    trained, agent = fit(longer, run, resume=True).agent, load_model(run)
    assert checkpoints.steps(run / "checkpoint")[-1] == 3
    assert all(map(torch.equal, trained.state_dict().values(), agent.state_dict().values()))
    given_inputs, step = inputs(DottedConfig().build(3), 3)
    stream, state = agent.stream(3), agent.initial_state(3)
    streamed = stream.step(given_inputs, step.is_first)
    with torch.no_grad():
        whole, _ = agent(ActorInputs(*map(add_time, given_inputs)), state, step.is_first[:, None])
    torch.testing.assert_close(streamed.policy, whole.policy[:, 0])


def add_time(value):
    if isinstance(value, dict):
        return {key: add_time(part) for key, part in value.items()}
    return value[:, None]


def test_a_program_reads_every_part(run, tmp_path):
    export_model(load_model(run), tmp_path / "out", format="pt2")  # which compares it with the model
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    names = [port["name"] for port in manifest["inputs"] if port["name"].startswith("observation")]
    assert sorted(name.removeprefix("observation.") for name in names) == sorted(
        ["a%2Fb%252E", "agent%2Epos", "agent.50%", "agent.pos"]
    )


def test_a_recording_has_the_same_parts(tmp_path):
    write_recording(demonstrate(DottedConfig(), 12), tmp_path / "episodes.npz")
    found = read_recording(tmp_path / "episodes.npz")
    assert sorted(found.observation) == ["a%2Fb%252E", "agent%2Epos", "agent.50%", "agent.pos"]
    world = RecordingConfig(path=str(tmp_path / "episodes.npz"))
    assert sorted(world.spec.observation_space) == ["a/b%2E", "agent", "agent.pos"]
    config = replace(training(f"recording:{world.path}", "gru"), **SMALL)
    done = fit(config, tmp_path / "run")
    assert {name for name, _ in parts(done.agent.observation_space)} == {name for name, _ in parts(SPACE)}
