import math
from dataclasses import dataclass, field
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recollect.agents.config import ActorCriticConfig, DecisionTransformerConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.policies import policy_for
from recollect.cores import CORES
from recollect.evaluation.agent_videos import episode_frames
from recollect.evaluation.agents import METRICS, evaluate_agent, initial_action, play
from recollect.runs.errors import WorldError
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec
from recollect.tasks.worlds.t_maze import TMazeConfig


@dataclass(frozen=True, kw_only=True)
class LotteryConfig(WorldConfig):
    """Episodes of random length; the reward is 1 a step, or broken, and the score is the length."""

    broken: bool = False
    longest: int = 6
    limit: int = 4
    actions: gymnasium.Space = field(default_factory=lambda: gymnasium.spaces.Discrete(3))

    @property
    def spec(self) -> WorldSpec:
        seen = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        return WorldSpec(
            observation_space=seen,
            action_space=self.actions,
            max_steps=self.limit,
            memory_span=0,
            chance=math.nan,
            oracle=math.nan,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Lottery(self, batch_size, seed=seed, device=device)


class LotteryState(NamedTuple):
    length: Tensor
    taken: Tensor


class Lottery(TensorWorld[LotteryState]):
    def __init__(self, config, batch_size, *, seed, device):
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.longest, self.reward = config.longest, math.nan if config.broken else 1.0

    def begin(self, batch_size):
        length = torch.randint(1, self.longest + 1, (batch_size,), generator=self.generator, device=self.device)
        return LotteryState(length, torch.zeros_like(length))

    def advance(self, state, actions):
        taken = state.taken + 1
        reward = torch.full((len(taken),), self.reward)
        return Advance(LotteryState(state.length, taken), reward, taken >= state.length, taken.float())

    def observe(self, state):
        return torch.rand(len(state.taken), 2, generator=self.generator)


def agent(world=None, core="gru", seed=0, **fields):
    torch.manual_seed(seed)
    spec = (world or LotteryConfig()).spec
    config = ActorCriticConfig(width=8, policy_gain=1.0, **fields)
    dim = {"dim": 6, "num_layers": 1}
    return config.build(CORES[core](**dim), spec.observation_space, spec.action_space)


class Counter(nn.Module):
    """An agent of somebody else: no core, no critic; it turns to the same side for ever and counts its steps."""

    class Said(NamedTuple):
        policy: Tensor
        value: Tensor
        features: Tensor

    class Live:
        def __init__(self, agent, batch_size):
            self.agent, self.state = agent, torch.zeros(batch_size)

        def load_state(self, state):
            self.state = state

        def step(self, inputs, is_first):
            self.state = torch.where(is_first, 0.0, self.state + 1)
            return Counter.Said(self.agent.logits.expand(len(is_first), -1), self.state, self.state[:, None])

    feature_dim = 0

    def __init__(self, action_space, action):
        super().__init__()
        self.policy = policy_for(action_space)
        logits = torch.full((self.policy.num_parameters,), -50.0)
        logits[action] = 0.0
        self.logits = nn.Parameter(logits)

    def stream(self, batch_size):
        return Counter.Live(self, batch_size)

    def distribution(self, policy):
        return self.policy.distribution(policy)


def test_whoever_keeps_the_protocol_can_play_and_be_filmed():
    world = TMazeConfig(length=2, slack=3)
    for action in range(world.spec.action_space.n):
        played = Counter(world.spec.action_space, action)
        found = evaluate_agent(played, world, 4, seed=1, greedy=action % 2 == 0)
        assert len(found.scores) == 4
        frames = list(episode_frames(played, world, episodes=2, seed=1))
        assert [frame.value for frame in frames] == [frame.step for frame in frames]
        assert {frame.action for frame in frames if not frame.over} == {world.spec.action_names[action]}


@pytest.mark.parametrize(("episodes", "rows"), [(5, 8), (7, 3), (6, 2), (4, 1)])
def test_counts_equal_a_literal_loop(episodes, rows):
    found = evaluate_agent(agent(), LotteryConfig(), episodes, seed=5, batch_size=rows)
    rows = min(rows, episodes)
    world = LotteryConfig().build(rows, seed=5)
    world.reset()
    share = [len(range(row, episodes, rows)) for row in range(rows)]
    lengths = [[] for _ in range(rows)]
    clock = [0] * rows
    cut = 0
    while any(len(done) < due for done, due in zip(lengths, share, strict=True)):
        step = world.step(torch.zeros(rows, dtype=torch.long))  # the lottery does not look at actions
        for row in range(rows):
            clock[row] = 0 if step.is_first[row] else clock[row] + 1
            if step.is_last[row] and len(lengths[row]) < share[row]:
                lengths[row].append(clock[row])
                cut += int(step.truncated[row])
    flat = [length for done in lengths for length in done]
    assert len(flat) == episodes
    assert found.lengths == flat and found.scores == flat and found.returns == flat
    assert found.rows == [row for row, done in enumerate(lengths) for _ in done]
    assert found.score == found.mean_return == found.mean_length == pytest.approx(np.mean(flat))
    assert found.truncated == cut / episodes
    assert math.isnan(found.low) if rows == 1 else found.low <= found.score <= found.high
    assert list(found.metrics()) == list(METRICS)


def test_short_episodes_are_not_counted_more_often():
    # Whoever counts the first n episodes that end, of any row, finds 2.2 here.
    found = evaluate_agent(agent(), LotteryConfig(longest=9, limit=9), 600, batch_size=300)
    assert found.score == pytest.approx(5.0, abs=0.35)
    assert found.low < 5.0 < found.high


def test_no_trace_is_left():
    one = agent().train()
    one.core.eval()
    modes = [module.training for module in one.modules()]
    weights = [p.clone() for p in one.parameters()]
    torch.manual_seed(3)
    np.random.seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    evaluate_agent(one, LotteryConfig(), 4, greedy=False)
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()
    assert modes == [module.training for module in one.modules()]
    assert all(torch.equal(old, new) for old, new in zip(weights, one.parameters(), strict=True))
    assert all(p.grad is None for p in one.parameters())


@pytest.mark.parametrize("greedy", [True, False])
def test_a_seed_is_an_evaluation(greedy):
    one, maze = agent(TMazeConfig(length=3)), TMazeConfig(length=3)
    found = evaluate_agent(one, maze, 20, seed=1, greedy=greedy)
    torch.manual_seed(99)
    assert found == evaluate_agent(one, maze, 20, seed=1, greedy=greedy)
    assert (found.chance, found.oracle) == (0.5, 1.0)


@pytest.mark.parametrize("previous", ["action", "logits"])
def test_what_was_done_and_said_reaches_the_agent_as_in_one_long_call(previous):
    maze = TMazeConfig(length=2, slack=1)
    one = agent(maze, previous_action=previous).eval()
    world = maze.build(3, seed=0)
    moments = [moment for moment, _ in zip(play(one, world, seed=0, greedy=False), range(12), strict=False)]
    stack = lambda tensors: torch.stack(list(tensors), 1)  # noqa: E731
    inputs = ActorInputs(
        stack(m.step.observation for m in moments),
        stack([initial_action(world), *(m.action for m in moments[:-1])]),
        stack(m.step.reward for m in moments),
        stack([torch.full_like(moments[0].output.policy, torch.nan), *(m.output.policy for m in moments[:-1])]),
    )
    is_first = stack(m.step.is_first for m in moments)
    assert is_first[:, 1:].any()
    with torch.no_grad():
        output, _ = one(inputs, one.initial_state(3), is_first)
    torch.testing.assert_close(output.policy, stack(m.output.policy for m in moments))
    torch.testing.assert_close(output.value, stack(m.output.value for m in moments))


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(2),
        gymnasium.spaces.MultiDiscrete([2, 3]),
        gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
    ],
)
def test_every_action_space_can_be_played(space):
    world = LotteryConfig(actions=space)
    assert evaluate_agent(agent(world), world, 3, greedy=False).mean_length >= 1


@pytest.mark.parametrize("kind", [ActorCriticConfig, DecisionTransformerConfig])
def test_a_world_with_a_reward_that_is_no_number_is_named(kind):
    world = LotteryConfig(broken=True)
    player = kind(width=6).build(CORES["gru"](dim=6), world.spec.observation_space, world.spec.action_space)
    with pytest.raises(WorldError, match=r"Lottery.* reward .*in row 0"):
        evaluate_agent(player, world, 3)


def test_an_episode_without_end_is_named():
    with pytest.raises(WorldError, match=r"Lottery is not over after .* steps .2 of 2 rows .*: 0, 1") as caught:
        evaluate_agent(agent(), LotteryConfig(longest=10**9, limit=0), 2, step_limit=20)
    assert "begin a run whose episodes have a limit: max_steps" in caught.value.remedy
    assert "--world.options max_episode_steps" in caught.value.remedy  # others have no field of that name


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="episodes=0"):
        evaluate_agent(agent(), LotteryConfig(), 0)


def test_modes_are_put_back_after_an_error():
    one: nn.Module = agent().train()
    with pytest.raises(WorldError, match="is not over"):
        evaluate_agent(one, LotteryConfig(longest=10**9, limit=0), 2, step_limit=5)
    assert one.training
