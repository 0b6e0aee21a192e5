"""Worlds and a core that make mistakes of a training loop visible, for the tests of rollouts and IMPALA."""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from torch import nn

from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.evaluation.recordings import Recording
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec


class Clock(NamedTuple):
    step: torch.Tensor  # long b
    length: torch.Tensor  # long b


@dataclass(frozen=True, kw_only=True)
class StepsConfig(WorldConfig):
    """Shows the number of the step in its episode. Ends after 1 to ``longest`` steps, or is cut after ``limit``."""

    longest: int = 12
    limit: int = 7

    @property
    def spec(self):
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(0, 1e6, (1,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
            max_steps=self.limit,
            memory_span=0,
            chance=0.5,
            oracle=1.0,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Steps(self, batch_size, seed=seed, device=device)


class Steps(TensorWorld[Clock]):
    def __init__(self, config, batch_size, **settings):
        self.longest = config.longest
        super().__init__(config.spec, batch_size, **settings)

    def begin(self, batch_size):
        length = torch.randint(1, self.longest + 1, (batch_size,), generator=self.generator)
        return Clock(torch.zeros(batch_size, dtype=torch.long), length)

    def advance(self, state, actions):
        moved = state._replace(step=state.step + 1)
        reward = actions.float() + 0.125 * moved.step
        return Advance(moved, reward, moved.step >= moved.length, moved.step / 8)

    def observe(self, state):
        return state.step[:, None].float()


class Count(NamedTuple):
    steps: torch.Tensor  # long b


@dataclass(frozen=True, kw_only=True)
class CounterConfig(CoreConfig):
    """Counts steps since the last reset, exactly, whatever it reads."""

    told: int = 0

    @property
    def output_feedback_dim(self):
        return self.told

    def build(self, input_dim):
        return Counter(input_dim)


class Counter(MemoryCore[Count]):
    output_shape = (1,)

    def __init__(self, input_dim):
        super().__init__()
        self.input_shape = (input_dim,)
        self.weight = nn.Parameter(torch.zeros(1))

    def initial_state(self, batch_size):
        return Count(torch.zeros(batch_size, dtype=torch.long))

    def unroll(self, inputs, state, is_first):
        count, outputs = state.steps, []
        for t in range(inputs.shape[1]):
            count = torch.where(is_first[:, t], 0, count)
            outputs.append(count)
            count = count + 1
        return torch.stack(outputs, 1)[..., None] + 0.0 * self.weight * inputs[..., :1], Count(count)

    def flops_per_step(self):
        return 0


@dataclass(frozen=True, kw_only=True)
class CueConfig(WorldConfig):
    """A cue at the first step; after ``delay`` blank ones the action that it named is worth 1."""

    delay: int = 2
    actions: str = "discrete"
    saveable: bool = True
    fault: str = ""
    """'' or what happens after 20 steps: nan-reward, nan-observation, raise, hang; or always: large-reward."""

    @property
    def spec(self):
        spaces = {
            "discrete": gymnasium.spaces.Discrete(2),
            "multi": gymnasium.spaces.MultiDiscrete([2, 3]),
            "binary": gymnasium.spaces.MultiBinary(2),
            "box": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        }
        return WorldSpec(
            observation_space=gymnasium.spaces.Dict({"cue": gymnasium.spaces.Box(-1, 1, (2,), np.float32)}),
            action_space=spaces[self.actions],
            max_steps=self.delay + 1,
            memory_span=self.delay,
            chance=0.5,
            oracle=1.0,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Cue(self, batch_size, seed=seed, device=device)


class CueState(NamedTuple):
    cue: torch.Tensor  # long b
    step: torch.Tensor  # long b


RELEASE = threading.Event()  # lets hanging worlds go


class Cue(TensorWorld[CueState]):
    faults = True  # a test that resumes puts the world right

    def __init__(self, config, batch_size, **settings):
        self.config = config
        self.taken = 0
        super().__init__(config.spec, batch_size, **settings)

    def begin(self, batch_size):
        return CueState(
            torch.randint(2, (batch_size,), generator=self.generator), torch.zeros(batch_size, dtype=torch.long)
        )

    def advance(self, state, actions):
        asked = state.step == self.config.delay
        chosen = actions.flatten(1)[:, 0] if actions.ndim > 1 else actions
        if self.config.actions == "box":
            chosen = chosen > 0
        right = (chosen == state.cue).float() * asked
        return Advance(state._replace(step=state.step + 1), right, asked, right)

    def observe(self, state):
        shown = torch.where(state.step == 0, 2.0 * state.cue - 1, 0.0)
        return {"cue": torch.stack((shown, (state.step == self.config.delay).float()), 1)}

    def step(self, actions):
        step = super().step(actions)
        self.taken += 1
        if self.config.fault == "large-reward":
            return step._replace(reward=torch.full_like(step.reward, -1e30))
        if self.taken != 20 or not Cue.faults or not self.config.fault:
            return step
        if self.config.fault == "hang":
            RELEASE.wait(20)
        if self.config.fault == "raise":
            raise OSError("row 3 fell over")
        if self.config.fault == "nan-reward":
            step.reward[1] = torch.nan
        if self.config.fault == "nan-observation":
            step.observation["cue"][2, 1] = torch.inf
        return step

    def save(self):
        if not self.config.saveable:
            raise ValueError("Cue cannot be saved")
        return super().save()


LENGTHS = np.array([2, 9, 4, 17, 3])


def episodes_of_cues(lengths=LENGTHS, seed=0):
    """Recorded episodes of :class:`CueConfig`, nobody's."""
    draw = np.random.default_rng(seed)
    steps = int(lengths.sum())
    first = np.concatenate(([0], lengths.cumsum()[:-1]))
    reward = draw.normal(size=steps).astype(np.float32)
    reward[first] = 0
    return Recording(
        observation={"cue": np.arange(2 * steps, dtype=np.float32).reshape(steps, 2)},
        action=draw.integers(0, 2, steps),
        reward=reward,
        lengths=lengths,
        terminated=np.ones(len(lengths), bool),
        score=np.zeros(len(lengths), np.float32),
        action_space=None,
    )
