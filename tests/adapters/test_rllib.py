"""A core in RLlib's PPO and IMPALA, against a literal loop over the core."""

import logging
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("ray.rllib", exc_type=ImportError)

import ray
from gymnasium import spaces
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

from recollect import HierarchicalChunkMemoryConfig, LSTMConfig, TokenTuringMachineConfig
from recollect.adapters.rllib import CoreRLModule

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]
CORES = {
    "hcam": HierarchicalChunkMemoryConfig(
        dim=16, num_layers=1, num_heads=2, memory_len=4, chunk_len=4, num_chunks=4, top_k=2
    ),
    "lstm": LSTMConfig(dim=16, num_layers=1, learned_initial_state=True),
}


def make_module(core, observation=None, action=None, **config):
    return CoreRLModule(
        observation_space=observation or spaces.Box(-1, 1, (4,), np.float32),
        action_space=action or spaces.Discrete(2),
        model_config={"core": core, "max_seq_len": 8, **config},
    )


@pytest.fixture(scope="module")
def engine():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
             object_store_memory=200_000_000)  # fmt: skip
    yield
    ray.shutdown()


@pytest.mark.parametrize("acting", [True, False])
@pytest.mark.parametrize("key", CORES)
def test_steps_and_rows_are_a_loop_over_the_core(key, acting):
    module = make_module(CORES[key])
    for name, weight in module.memory.core.named_parameters():
        if "initial" in name:
            nn.init.normal_(weight)  # otherwise zeros, as the bytes of an episode that has not begun
    observations = torch.randn(3, 11, 4)
    first = torch.zeros(3, 11, dtype=torch.bool)
    first[:, 0] = True
    expected, _ = module.memory.core(observations, module.memory.core.initial_state(3), first)
    content = torch.as_tensor(np.stack([module.get_initial_state()["content"]] * 3))
    state = {"content": content}
    stored, played = [content], []
    for t in range(11):
        with torch.set_grad_enabled(not acting):
            step = module._forward({Columns.OBS: observations[:, t : t + 1], Columns.STATE_IN: state})
        state = {"content": torch.as_tensor(step[Columns.STATE_OUT]["content"].numpy().copy())}
        stored.append(state["content"])
        played.append(step[Columns.ACTION_DIST_INPUTS])
    torch.testing.assert_close(torch.cat(played, 1), module.policy(expected), atol=1e-5, rtol=1e-5)
    for begin in (0, 5):
        row = {Columns.OBS: observations[:, begin:], Columns.STATE_IN: {"content": stored[begin]}}
        out = module._forward_train(row)
        torch.testing.assert_close(out[Columns.EMBEDDINGS], expected[:, begin:], atol=1e-5, rtol=1e-5)
        values = module.compute_values(row)
        torch.testing.assert_close(values, module.compute_values(row, out[Columns.EMBEDDINGS]))
    module.compute_values({Columns.OBS: observations, Columns.STATE_IN: {"content": stored[0]}}).sum().backward()
    assert all(weight.grad is not None for weight in module.memory.core.parameters()), "initial states are learned, too"


def spec_of(core):
    return RLModuleSpec(module_class=CoreRLModule, model_config={"core": core, "max_seq_len": 8})


def test_ppo_learns_saves_and_continues(engine, tmp_path):
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=spec_of(CORES["hcam"]))
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .reporting(min_time_s_per_iteration=0)
    )
    algorithm = config.build_algo()
    algorithm.train()
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    again = config.build_algo()
    again.restore_from_path(path)
    weights, others = (one.get_module().state_dict() for one in (algorithm, again))
    assert weights and all(torch.equal(weights[name], others[name]) for name in weights)
    again.train()
    for one in (algorithm, again):
        one.stop()


def test_impala_takes_steps(engine):
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1, num_envs_per_env_runner=2, rollout_fragment_length=16)
        .rl_module(rl_module_spec=spec_of(CORES["lstm"]))
        .training(train_batch_size_per_learner=64)
        .reporting(min_time_s_per_iteration=1)
    )
    algorithm = config.build_algo()
    before = {name: weight.clone() for name, weight in algorithm.get_module().memory.core.named_parameters()}
    for _ in range(10):
        algorithm.train()
        learner = algorithm.learner_group.get_weights()["default_policy"]
        if any(not np.array_equal(learner[f"memory.core.{name}"], weight.detach()) for name, weight in before.items()):
            break
    else:
        pytest.fail("the core's weights never changed")
    algorithm.stop()


class Camera(nn.Module):
    """Encoder of a Dict with a picture and a vector."""

    output_dim = 7

    def __init__(self, space):
        super().__init__()
        self.look = nn.Linear(space["camera"].shape[0] ** 2 * 3, 4)

    def forward(self, observation):
        return torch.cat([self.look(observation["camera"].flatten(1) / 255), observation["arm"]], -1)


class Room(gymnasium.Env):
    """A picture and a vector; two actions at once."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (9, 9, 3), np.uint8), "arm": spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def __init__(self, config=None):
        self.clock = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.clock += 1
        return self.observation_space.sample(), float(action[0]), self.clock == 7, False, {}


def test_pictures_in_a_dict_and_several_actions(engine):
    register_env("room", Room)
    spec = RLModuleSpec(
        module_class=CoreRLModule, model_config={"core": CORES["lstm"], "max_seq_len": 8, "encoder": Camera}
    )
    algorithm = (
        PPOConfig()
        .environment("room")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=spec)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .reporting(min_time_s_per_iteration=0)
        .build_algo()
    )
    algorithm.train()
    algorithm.stop()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="core='lstm': give the settings of a core"):
        make_module("lstm")
    with pytest.raises(ValueError, match="give an encoder, or flatten"):
        make_module(CORES["lstm"], observation=Room.observation_space)
    with pytest.raises(ValueError, match="one vector a step"):
        make_module(TokenTuringMachineConfig(num_tokens=4))
