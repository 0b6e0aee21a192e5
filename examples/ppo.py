"""Recurrent PPO around any core in one file.

    python examples/ppo.py --env CartPole-v1 --hide 1 3 --core lstm          a vector, of which speeds are hidden
    python examples/ppo.py --env recollect/TMaze-v0 --core hcam --steps 300000
    python examples/ppo.py --env examples.ppo:Doors --autoreset SameStep     a Dict with a picture; two actions at once

Observations: a Box (three axes are a picture), Discrete, or a Dict of these. Actions: Discrete, MultiDiscrete or Box.
Both of Gymnasium's rules for the end of an episode are here, because they are where recurrent learners go wrong:

    NextStep   the last step returns the final observation, whose action the next step ignores: that step is not
               learned from, and the memory is cleared one step later
    SameStep   the last step returns the first observation of the next episode: the memory is cleared at once, and the
               value of the final observation, in info["final_obs"], is computed with the old memory

Lines that memory asks for are marked. Source of the algorithm: Schulman et al. (2017), Proximal policy optimization.
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

import recollect.gymnasium_ids
from recollect.cores import CORES, GENERAL_CORES
from recollect.cores.config import CoreConfig
from recollect.state import detach, take_rows


class Encoder(nn.Module):
    """A vector of every observation, ``[n, ...]`` to ``[n, dim]``."""

    def __init__(self, space: spaces.Space, dim: int) -> None:
        super().__init__()
        self.space = space
        if isinstance(space, spaces.Dict):
            self.parts = nn.ModuleDict({name: Encoder(part, dim) for name, part in space.items()})
            self.join = nn.Linear(len(space.spaces) * dim, dim)
        elif isinstance(space, spaces.Discrete):
            self.net = nn.Embedding(int(space.n), dim)
        elif isinstance(space, spaces.Box) and len(space.shape) == 3:
            self.last = space.shape[2] < space.shape[0]  # channels
            convolutions = nn.Sequential(
                nn.LazyConv2d(32, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.LazyConv2d(32, 3, stride=2, padding=1),
                nn.ReLU(),
            )
            self.net = nn.Sequential(convolutions, nn.Flatten(), nn.LazyLinear(dim), nn.ReLU())
            self(torch.zeros(1, *space.shape, dtype=torch.uint8))  # makes the lazy weights
        elif isinstance(space, spaces.Box):
            self.net = nn.Sequential(nn.Linear(int(np.prod(space.shape)), dim), nn.Tanh())
        else:
            raise ValueError(f"observation space {space}: use a Box, Discrete or a Dict of these")

    def forward(self, observation: Any) -> Tensor:
        """Encode n observations."""
        if isinstance(self.space, spaces.Dict):
            return torch.tanh(self.join(torch.cat([self.parts[name](observation[name]) for name in self.parts], -1)))
        if isinstance(self.space, spaces.Discrete):
            return self.net(observation.long())
        if len(self.space.shape) == 3:
            picture = observation.permute(0, 3, 1, 2) if self.last else observation
            return self.net(picture.float() / (255 if self.space.dtype == np.uint8 else 1))
        return self.net(observation.float().flatten(1))


class Several:
    """Independent categorical actions."""

    def __init__(self, logits: Tensor, sizes: list[int]) -> None:
        self.parts = [Categorical(logits=part) for part in logits.split(sizes, -1)]

    def sample(self) -> Tensor:
        """Draw actions ``[..., k]``."""
        return torch.stack([part.sample() for part in self.parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability of all actions together."""
        return sum(part.log_prob(one) for part, one in zip(self.parts, action.unbind(-1), strict=True))  # type: ignore

    def entropy(self) -> Tensor:
        """Return the entropy of all actions together."""
        return sum(part.entropy() for part in self.parts)  # type: ignore[return-value]


class Agent(nn.Module):
    """Encoder, core, and heads for policy and value."""

    def __init__(self, observation: spaces.Space, action: spaces.Space, core: CoreConfig, dim: int = 64) -> None:
        super().__init__()
        self.space, self.encoder = action, Encoder(observation, dim)
        self.core = core.build(dim)  # memory
        if isinstance(action, spaces.Box):
            numbers = int(np.prod(action.shape))
            self.log_std = nn.Parameter(torch.zeros(numbers))
        elif isinstance(action, spaces.MultiDiscrete):
            numbers = int(action.nvec.sum())
        else:
            numbers = int(action.n)  # type: ignore[attr-defined]
        self.policy, self.value = nn.Linear(self.core.output_shape[0], numbers), nn.Linear(self.core.output_shape[0], 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)

    def forward(self, observation: Any, state: Any, is_first: Tensor) -> tuple[Any, Tensor, Any]:
        """Run over rows: observations ``[b, t, ...]``, a state, and ``is_first`` ``[b, t]``."""
        rows, steps = is_first.shape
        encoded = self.encoder(apply(lambda part: part.flatten(0, 1), observation)).reshape(rows, steps, -1)
        outputs, state = self.core(encoded, state, is_first)  # memory
        return self.distribution(self.policy(outputs)), self.value(outputs)[..., 0], state

    def distribution(self, numbers: Tensor) -> Any:
        """Return the distribution of actions."""
        if isinstance(self.space, spaces.Box):
            return Independent(Normal(numbers, self.log_std.exp().expand_as(numbers)), 1)
        if isinstance(self.space, spaces.MultiDiscrete):
            return Several(numbers, self.space.nvec.tolist())
        return Categorical(logits=numbers)


def apply(function: Any, *observations: Any) -> Any:
    """Apply a function to the tensors of observations of one space."""
    if isinstance(observations[0], dict):
        return {name: apply(function, *(one[name] for one in observations)) for name in observations[0]}
    return function(*observations)


class Hide(gymnasium.ObservationWrapper):
    """Leaves numbers out of a vector: positions without speeds ask for memory."""

    def __init__(self, env: gymnasium.Env, hidden: list[int]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Box)
        self.kept = [i for i in range(env.observation_space.shape[0]) if i not in hidden]
        low, high = env.observation_space.low[self.kept], env.observation_space.high[self.kept]
        self.observation_space = spaces.Box(low, high, dtype=env.observation_space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Return the numbers that are kept."""
        return observation[self.kept]


class Doors(gymnasium.Env):
    """A lamp in a picture shows which door to open, and a number which key; both are seen once, at the start."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (12, 12, 3), np.uint8), "number": spaces.Box(-1, 1, (1,), np.float32)}
    )
    action_space = spaces.MultiDiscrete([2, 2])

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw door and key."""
        super().reset(seed=seed)
        self.clock, self.answer = 0, self.np_random.integers(2, size=2)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait, and at the last step open a door with a key: half a point each."""
        self.clock += 1
        is_last = self.clock == self.length
        return self._look(), float(is_last) * float(np.mean(action == self.answer)), is_last, False, {}

    def _look(self) -> dict[str, np.ndarray]:
        camera, number = np.zeros((12, 12, 3), np.uint8), np.zeros(1, np.float32)
        if self.clock == 0:
            camera[:, 6 * self.answer[0] : 6 * self.answer[0] + 6] = 255
            number[0] = 2 * self.answer[1] - 1
        return {"camera": camera, "number": number}


def make(name: str, rows: int, autoreset: str, hidden: list[int]) -> gymnasium.vector.VectorEnv:
    """Make a vector environment with one of the two rules."""
    recollect.gymnasium_ids.register()
    mode = AutoresetMode(autoreset)
    if name.startswith("recollect/"):
        return gymnasium.make_vec(name, num_envs=rows, autoreset_mode=mode)

    def one() -> gymnasium.Env:
        env = Doors() if name == "examples.ppo:Doors" else gymnasium.make(name)
        return Hide(env, hidden) if hidden else env

    return gymnasium.vector.SyncVectorEnv([one] * rows, autoreset_mode=mode)


def value_of_final(agent: Agent, info: Any, rows: Tensor, state: Any) -> Tensor:
    """Return the values of final observations, SameStep, with the memory that the episode has."""
    final = [info["final_obs"][row] for row in rows.tolist()]
    seen = apply(lambda *parts: torch.as_tensor(np.stack(parts))[:, None], *final)
    return agent(seen, take_rows(state, rows), torch.zeros(len(rows), 1, dtype=torch.bool))[1][:, 0]  # memory


def train(options: argparse.Namespace) -> list[float]:
    """Learn; return the mean return of the episodes of every rollout."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    envs = make(options.env, options.rows, options.autoreset, options.hide)
    same_step = options.autoreset == "SameStep"
    core = CORES[options.core](**options.settings)
    agent = Agent(envs.single_observation_space, envs.single_action_space, core)
    optimizer = torch.optim.Adam(agent.parameters(), lr=options.learning_rate)
    tensor = lambda array: apply(lambda part: torch.as_tensor(np.array(part)), array)  # noqa: E731

    observation = tensor(envs.reset(seed=options.seed)[0])
    is_first, is_last = torch.ones(options.rows, dtype=torch.bool), torch.zeros(options.rows, dtype=torch.bool)
    state, returns, total = agent.core.initial_state(options.rows), [], torch.zeros(options.rows)  # memory
    began = time.perf_counter()
    for rollout in range(1, options.steps // (options.rows * options.unroll) + 1):
        start, rows, ended = detach(state), [], []  # memory: one state for a rollout
        for _ in range(options.unroll):
            with torch.no_grad():
                policy, value, state = agent(apply(lambda part: part[:, None], observation), state, is_first[:, None])
            action = policy.sample()
            sent = action[:, 0].numpy()
            if isinstance(envs.single_action_space, spaces.Box):
                sent = np.clip(sent, envs.action_space.low, envs.action_space.high)
            after, reward, terminated, truncated, info = envs.step(sent)
            reward, over = torch.as_tensor(reward).float(), torch.as_tensor(terminated | truncated)
            valid = ~is_last  # NextStep: the action behind a final observation is ignored
            total = torch.where(valid, total + reward, 0.0)
            ended += total[over].tolist()
            total = torch.where(over, 0.0, total)
            bonus = torch.zeros(options.rows)
            if same_step and truncated.any():
                cut = torch.as_tensor(truncated & ~terminated).nonzero()[:, 0]
                with torch.no_grad():
                    bonus[cut] = options.gamma * value_of_final(agent, info, cut, state)
            goes_on = ~over if same_step else ~torch.as_tensor(terminated)
            made = (action[:, 0], policy.log_prob(action)[:, 0], value[:, 0])
            rows.append((observation, is_first, valid, *made, reward / options.scale + bonus, goes_on))
            is_first, is_last = (over, is_last) if same_step else (is_last, over)
            observation = tensor(after)
        with torch.no_grad():
            ahead = agent(apply(lambda part: part[:, None], observation), state, is_first[:, None])[1][:, 0]
        seen = apply(lambda *parts: torch.stack(parts, 1), *(row[0] for row in rows))
        first, valid, action, log_prob, value, reward, goes_on = (
            torch.stack(part, 1) for part in list(zip(*rows, strict=True))[1:]
        )

        advantage, later = torch.zeros_like(value), torch.zeros(options.rows)
        for t in reversed(range(options.unroll)):
            discount = options.gamma * goes_on[:, t]
            delta = reward[:, t] + discount * (value[:, t + 1] if t + 1 < options.unroll else ahead) - value[:, t]
            advantage[:, t] = later = valid[:, t] * (delta + options.trace * discount * later)
        target = advantage + value
        advantage = (advantage - advantage[valid].mean()) / (advantage[valid].std() + 1e-8)

        for index in torch.cat([torch.randperm(options.rows) for _ in range(options.epochs)]).split(options.rows // 4):
            policy, value, _ = agent(apply(lambda part: part[index], seen), take_rows(start, index), first[index])  # noqa: B023
            change = (policy.log_prob(action[index]) - log_prob[index]).exp()
            gain = torch.minimum(change * advantage[index], change.clamp(0.8, 1.2) * advantage[index])
            loss = 0.5 * (value - target[index]) ** 2 - gain - options.entropy * policy.entropy()
            optimizer.zero_grad()
            loss[valid[index]].mean().backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        returns.append(float(np.mean(ended)) if ended else float("nan"))
        if rollout % 20 == 0:
            steps = rollout * options.rows * options.unroll
            speed = steps / (time.perf_counter() - began)
            print(f"{steps:>9} steps  return {np.nanmean(returns[-20:]):7.2f}  {speed:6.0f} steps/s", flush=True)
    envs.close()
    return returns


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="an id of Gymnasium, recollect/..., or examples.ppo:Doors")
    parser.add_argument("--hide", type=int, nargs="*", default=[], help="numbers of a vector to leave out")
    parser.add_argument("--autoreset", choices=["NextStep", "SameStep"], default="NextStep")
    parser.add_argument("--core", choices=list(GENERAL_CORES), default="lstm")
    parser.add_argument("--dim", type=int, default=64, help="width of the core")
    parser.add_argument("--num-layers", type=int, default=1, help="layers of the core, where it has a number of them")
    parser.add_argument("--rows", type=int, default=16, help="environments, a multiple of 4")
    parser.add_argument("--unroll", type=int, default=64, help="steps of a rollout")
    parser.add_argument("--steps", type=int, default=200_000, help="steps of all environments together")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--trace", type=float, default=0.95, help="lambda of the advantages")
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="rewards are divided by it: returns of about 1 are best"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    sizes = {"dim": options.dim, "num_layers": options.num_layers}
    options.settings = {name: size for name, size in sizes.items() if name in CORES[options.core].__dataclass_fields__}
    return options


if __name__ == "__main__":
    train(parse())
