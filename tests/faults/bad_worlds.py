"""A world with any fault at any moment, for the tests of this folder."""

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch

from recollect.tasks.worlds.contract import Advance, Step, TensorWorld, WorldConfig, WorldSpec


class Clock(NamedTuple):
    step: torch.Tensor  # long b


class Plan:
    """What goes wrong, and in which of the worlds that a run builds."""

    fault: str = ""
    moment: str = "step"
    world: int = 0
    """0 is the world of training; each evaluation builds another."""
    built: int = 0
    release: bool = False
    hangs: threading.Event = threading.Event()
    """Set when a world begins to hang."""


class LeaveError(Exception):
    """A world of somebody's own error."""


def go_wrong(step=None):
    """Do what the plan says; a step may come back changed."""
    fault = Plan.fault
    if fault == "raise":
        raise LeaveError("it fell over")
    if fault == "oserror":
        raise OSError("the plug was pulled")
    if fault == "value-error":
        raise ValueError("42 is no colour")
    if fault == "assert":
        raise AssertionError
    if fault == "key-error":
        raise KeyError("left")
    if fault == "memory":
        raise MemoryError("no room")
    if fault == "recursion":
        return go_wrong(step)
    if fault == "stop-iteration":
        raise StopIteration
    if fault == "exit":
        raise SystemExit(3)
    if fault == "keyboard":
        raise KeyboardInterrupt
    if fault == "hang":
        Plan.hangs.set()
        time.sleep(60)
    if fault == "busy":
        while not Plan.release:
            pass
    if fault == "stubborn":
        while not Plan.release:
            try:
                time.sleep(60)
            except Exception:  # it listens to no error
                continue
    return nonsense(fault, step) if step is not None else None


def nonsense(fault, step):
    """A step that no world should answer."""
    batch = len(step.reward)
    changed = {
        "none": None,
        "tuple": tuple(step),
        "nan-reward": step._replace(reward=torch.full((batch,), torch.nan)),
        "inf-reward": step._replace(reward=torch.full((batch,), torch.inf)),
        "nan-observation": step._replace(observation=step.observation * torch.nan),
        "nan-score": step._replace(score=torch.full((batch,), torch.nan)),
        "wide-observation": step._replace(observation=torch.cat((step.observation, step.observation), 1)),
        "flat-observation": step._replace(observation=step.observation[:, 0]),
        "one-row": step._replace(observation=step.observation[:1]),
        "array-observation": step._replace(observation=step.observation.numpy()),
        "no-observation": step._replace(observation=None),
        "dict-observation": step._replace(observation={"seen": step.observation}),
        "column-reward": step._replace(reward=step.reward[:, None]),
        "number-reward": step._replace(reward=0.5),
        "whole-reward": step._replace(reward=step.reward.long()),
        "float-flags": step._replace(terminated=step.terminated.float()),
        "list-flags": step._replace(is_first=step.is_first.tolist()),
        "short-flags": step._replace(truncated=step.truncated[:-1]),
    }
    return changed.get(fault, step)


@dataclass(frozen=True, kw_only=True)
class BrittleConfig(WorldConfig):
    """Episodes of ``length`` steps; action 1 is right."""

    length: int = 3

    @property
    def spec(self):
        if Plan.fault and Plan.moment == "spec":
            go_wrong()
        endless = Plan.fault == "endless"
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
            max_steps=0 if endless else self.length,
            memory_span=0,
            chance=0.5,
            oracle=1.0,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        number, Plan.built = Plan.built, Plan.built + 1
        if Plan.moment == "constructor" and Plan.fault == "no-world":
            return None
        if Plan.moment == "constructor" and number >= Plan.world:
            go_wrong()
        return Brittle(self, batch_size, number, seed=seed, device=device)


class Brittle(TensorWorld[Clock]):
    def __init__(self, config, batch_size, number, **settings):
        self.length, self.number, self.taken = config.length, number, 0
        super().__init__(config.spec, batch_size, **settings)

    def begin(self, batch_size):
        return Clock(torch.zeros(batch_size, dtype=torch.long))

    def advance(self, state, actions):
        moved = state.step + 1
        over = torch.zeros_like(moved, dtype=torch.bool)
        if Plan.fault != "endless":
            over = moved >= self.length
        elif self.number:
            over[::2] = (moved >= self.length)[::2]  # the other rows never end
        return Advance(Clock(moved), actions.float(), over, actions.float())

    def observe(self, state):
        return torch.stack((state.step.float() / 8, torch.ones(len(state.step))), 1)

    def reset(self, seed=None) -> Step:
        step = super().reset(seed)
        return go_wrong(step) if Plan.moment == "reset" and self._mine() else step

    def step(self, actions) -> Step:
        step = super().step(actions)
        self.taken += 1
        due = self.taken == 10 or (Plan.world > 0 and (self.taken == 2 or Plan.fault == "nan-score"))
        return go_wrong(step) if Plan.moment == "step" and due and self._mine() else step

    def close(self):
        if Plan.moment == "close" and self._mine():
            go_wrong()

    def _mine(self):
        return bool(Plan.fault) and (self.number == 0 if Plan.world == 0 else self.number >= Plan.world)
