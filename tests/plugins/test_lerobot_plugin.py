"""The plugin for LeRobot, against a stand-in of its interface: it acts as Recollect does, and resets row by row."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot_stand_in import PreTrainedConfig, modules, policy_class

from recollect.agents.contract import ActorInputs
from recollect.recipes.robots import robots
from recollect.tasks import TASKS
from recollect.training import CloningLossConfig, FitConfig, fit, load_model

PLUGIN = Path(__file__).parents[2] / "plugins" / "lerobot_policy_recollect" / "src"
WORLD = TASKS["goal-shown-once"](delay=1, side=20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps: what it does is no better than chance, and all of its own."""
    config = robots("ttm", world=WORLD)
    small = replace(config.core, dim=16, num_slots=2, num_reads=2, num_heads=2, num_tokens=3, hidden_dim=16)
    agent = replace(config.agent, width=16, previous_action="action", previous_reward=True)
    config = replace(
        config, core=small, agent=agent, batch_size=4, unroll=4, fit=FitConfig(steps=2), evaluation=replace(
            config.evaluation, episodes=4), loss=CloningLossConfig(baseline_cost=0.0)
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("runs") / "small"
    fit(config, directory)
    return directory


@pytest.fixture
def plugin(monkeypatch):
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(PLUGIN))
    yield importlib.import_module("lerobot_policy_recollect")
    for name in [name for name in sys.modules if name.startswith("lerobot_policy_recollect")]:
        del sys.modules[name]


def batch_of(step, *, words=True):
    """An observation as LeRobot's processors give it."""
    image = step.observation["image"].permute(0, 3, 1, 2).float() / 255
    told = [" ".join(WORLD.spec.words[token] for token in row if token) for row in step.observation["language"]]
    tokens = {"observation.language": step.observation["language"]} if words else {"task": told}
    return {"observation.images.image": image, "observation.state": step.observation["state"]} | tokens


def test_it_registers_under_its_name(plugin):
    assert PreTrainedConfig.choices["recollect"] is plugin.RecollectConfig
    assert policy_class("recollect") is plugin.RecollectPolicy and plugin.RecollectPolicy.name == "recollect"
    before, after = plugin.make_recollect_pre_post_processors(plugin.RecollectConfig(run="x"))
    assert before({"a": 1}) == {"a": 1} and torch.equal(after(torch.ones(2)), torch.ones(2))
    config = plugin.RecollectConfig(run="x")
    assert config.observation_delta_indices is config.reward_delta_indices is config.get_scheduler_preset() is None
    assert config.action_delta_indices == [0] and config.get_optimizer_preset().lr > 0


@pytest.mark.parametrize("words", [True, False])
def test_it_acts_as_the_run_does_over_whole_episodes(plugin, run, words):
    policy = plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run)))
    agent = load_model(run)
    stream, world = agent.stream(3), WORLD.build(3, seed=4)
    step, action = world.reset(), torch.zeros(3, 3)
    for clock in range(30):
        wanted = agent.distribution(
            stream.step(ActorInputs(step.observation, action, torch.zeros(3)), step.is_first).policy
        ).mode()
        policy.reset(step.is_first)
        action = policy.select_action(batch_of(step, words=words))
        assert torch.allclose(action, wanted, atol=1e-5)
        step = world.step(world.oracle() if clock % 2 else action)
    assert policy.get_optim_params() is not None


def test_it_reads_what_the_last_action_brought(plugin, run):
    agent = load_model(run)
    step = WORLD.build(2, seed=1).reset()
    for key, named in (("reward", {}), ("next.reward", {"reward": "next.reward"})):
        policy, stream = plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run), keys=named)), agent.stream(2)
        action = torch.zeros(2, 3)
        for clock, reward in enumerate(([9.0, 9.0], [0.5, -1.0], [0.0, 3.0])):
            told, first = torch.tensor(reward), torch.full((2,), clock == 0)
            wanted = stream.step(ActorInputs(step.observation, action, told), first).policy
            action = policy.select_action(batch_of(step) | {key: told})
            assert torch.allclose(action, agent.distribution(wanted).mode(), atol=1e-5)
    quiet = plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run)))
    for _ in range(3):
        unrewarded = quiet.select_action(batch_of(step))
    assert not torch.allclose(unrewarded, action, atol=1e-5)
    with pytest.raises(ValueError, match=r"rewards have shape \[3\], and there are 2 rows"):
        quiet.select_action(batch_of(step) | {"reward": torch.zeros(3)})


def test_a_row_is_reset_alone(plugin, run):
    policy, fresh = (plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run))) for _ in range(2))
    world = WORLD.build(2, seed=1)
    steps = [world.reset()] + [world.step(world.oracle()) for _ in range(5)]
    kept = []
    for at, step in enumerate(steps):
        if at == 3:
            policy.reset(torch.tensor([True, False]))
            fresh.reset()
        kept.append(policy.select_action(batch_of(step)))
        other = fresh.select_action(batch_of(step))
        if at >= 3:
            assert torch.allclose(kept[-1][0], other[0], atol=1e-6)
            assert not torch.allclose(kept[-1][1], other[1], atol=1e-6), "the other row remembers"
        else:
            assert torch.equal(kept[-1], other)


def test_saved_it_needs_no_run(plugin, run, tmp_path):
    policy = plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run)))
    policy.save_pretrained(tmp_path / "saved")
    again = plugin.RecollectPolicy.from_pretrained(tmp_path / "saved")
    step = WORLD.build(2).reset()
    assert again.config.run == "" and again.words == list(WORLD.spec.words)
    assert torch.equal(policy.select_action(batch_of(step)), again.select_action(batch_of(step)))


def test_wrong_use_is_named(plugin, run):
    policy = plugin.RecollectPolicy(plugin.RecollectConfig(run=str(run)))
    step = WORLD.build(2).reset()
    with pytest.raises(ValueError, match=r"no observation.images.image or observation.image"):
        policy.select_action({"task": ["put"]})
    policy.select_action(batch_of(step))
    with pytest.raises(ValueError, match="3 rows now and were 2"):
        policy.select_action(batch_of(WORLD.build(3).reset()))
    with pytest.raises(ValueError, match=r"rows has shape \[3\]"):
        policy.reset(torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="task='fly away': this policy knows put, the"):
        policy.select_action(batch_of(step, words=False) | {"task": ["fly away"] * 2})
    with pytest.raises(ValueError, match=r"pictures have shape \[3, 9, 9\]"):
        policy.select_action(batch_of(step) | {"observation.images.image": torch.zeros(2, 3, 9, 9)})
    with pytest.raises(ValueError, match=r"pictures have shape \[9, 9\]"):
        policy.select_action(batch_of(step) | {"observation.images.image": torch.zeros(2, 9, 9)})
    with pytest.raises(ValueError, match="run='': name the directory"):
        plugin.RecollectPolicy(plugin.RecollectConfig())
    with pytest.raises(NotImplementedError, match="windows"):
        policy.forward({})
    with pytest.raises(NotImplementedError, match="select_action"):
        policy.predict_action_chunk({})


def test_keys_and_sampling_are_options(plugin, run):
    torch.manual_seed(0)
    config = plugin.RecollectConfig(run=str(run), keys={"image": "observation.images.top"}, sample=True)
    policy, step = plugin.RecollectPolicy(config), WORLD.build(2).reset()
    batch = batch_of(step)
    batch["observation.images.top"] = batch.pop("observation.images.image")
    one = policy.select_action(batch)
    policy.reset()
    assert not np.allclose(one, policy.select_action(batch)) and one.abs().max() <= 1


def test_without_lerobot_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "lerobot", None)
    monkeypatch.syspath_prepend(str(PLUGIN))
    with pytest.raises(ImportError, match="pip install lerobot"):
        importlib.import_module("lerobot_policy_recollect")
