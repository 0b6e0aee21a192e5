"""The single-file example: its bookkeeping at the ends of episodes against a literal loop, and that it learns."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

ROOT = Path(__file__).parents[1]


@pytest.fixture
def ppo(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import examples.ppo as module

    yield module
    sys.modules.pop("examples.ppo")


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_picture_in_a_dict_and_two_actions(ppo, mode):
    returns = ppo.train(ppo.parse(["--env", "examples.ppo:Doors", "--autoreset", mode, "--rows", "4", "--unroll", "16",
                                   "--steps", "128", "--epochs", "1", "--dim", "16"]))  # fmt: skip
    assert len(returns) == 2 and all(0 <= value <= 1 for value in returns)


def test_cores_have_the_sizes_for_which_they_have_a_field(ppo):
    settings = ppo.parse(["--core", "hybrid"]).settings
    assert ppo.CORES["hybrid"](**settings).dim == 64
    with pytest.raises(SystemExit):  # it reads maps of images
        ppo.parse(["--core", "mott"])


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))])
@pytest.mark.parametrize("core", ["gru", "hcam"])
def test_any_actions_and_cores(ppo, space, core):
    options = ppo.parse(["--core", core, "--dim", "16"])
    agent = ppo.Agent(spaces.Discrete(5), space, ppo.CORES[core](**options.settings))
    policy, value, _ = agent(torch.randint(5, (2, 3)), agent.core.initial_state(2), torch.zeros(2, 3, dtype=torch.bool))
    assert policy.log_prob(policy.sample()).shape == policy.entropy().shape == value.shape == (2, 3)


class Cut(gymnasium.Env):
    """Two steps, then a time limit; the observation counts."""

    observation_space, action_space = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.clock += 1
        return np.full(1, self.clock, np.float32), 1.0, False, self.clock == 2, {}


def test_the_value_of_a_final_observation_has_the_memory_of_its_episode(ppo):
    agent = ppo.Agent(Cut.observation_space, Cut.action_space, ppo.CORES["gru"](dim=8, num_layers=1))
    seen = torch.tensor([[[0.0], [1.0], [2.0]]]).expand(2, -1, -1)
    first = torch.tensor([[True, False, False]]).expand(2, -1)
    with torch.no_grad():
        expected = agent(seen, agent.core.initial_state(2), first)[1][:, 2]
        state = agent(seen[:, :2], agent.core.initial_state(2), first[:, :2])[2]
        info = {"final_obs": np.array([np.full(1, 2.0, np.float32), None], dtype=object)}
        found = ppo.value_of_final(agent, info, torch.tensor([0]), state)
    torch.testing.assert_close(found, expected[:1])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_it_learns_what_needs_memory(ppo, mode):
    returns = ppo.train(ppo.parse(["--env", "examples.ppo:Doors", "--autoreset", mode, "--unroll", "16",
                                   "--steps", "60000", "--learning-rate", "2e-3"]))  # fmt: skip
    assert np.mean(returns[-5:]) > 0.9, "without memory 0.5"
