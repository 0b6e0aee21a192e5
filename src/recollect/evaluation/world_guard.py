"""A world that may raise, exit, hang or answer nonsense, and is named when it does."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from recollect.runs.errors import RunError, WorldError
from recollect.runs.interrupts import Interrupted, TimeLimitExceeded, is_user_interrupt, time_limited
from recollect.tasks.worlds.answers import Answers
from recollect.tasks.worlds.contract import Scene, Step, Truth, World, WorldConfig

CLOSING = 5.0
"""Seconds that a world may take to close."""


class world_errors:  # noqa: N801  (a function of contextlib would let a StopIteration through)
    """Whatever code of a world raises in this context becomes a :class:`WorldError` with its name.

    Args:
        name: of the world.
        doing: what it was asked for, for the message.
    """

    def __init__(self, name: str, doing: str = "") -> None:
        self.name, self.when = name, f" in {doing}" if doing else ""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, place: object) -> None:
        if error is None or isinstance(error, (RunError, TimeLimitExceeded, Interrupted, GeneratorExit)):
            return
        if isinstance(error, KeyboardInterrupt) and is_user_interrupt(error):
            return
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            said = f"wants to end the program (SystemExit: {error.code})"
        raise WorldError(f"{self.name}: {' '.join(said.split())}{self.when}") from error


def build_world(config: WorldConfig, batch_size: int, name: str, *, seed: int, device: torch.device) -> World:
    """Build a world; one that cannot be built is named."""
    with world_errors(name, "its constructor"):
        world = config.build(batch_size, seed=seed, device=device)
        if not isinstance(world, World):
            raise TypeError(f"build made a {type(world).__name__}, not a World")
        return world


def close_world(world: World, name: str) -> None:
    """Close a world. One that cannot be closed is left behind with a warning: what was computed stands."""
    try:
        with time_limited(CLOSING, math.inf), world_errors(name, "close"):
            world.close()
    except (RunError, TimeLimitExceeded) as error:
        reason = str(error) or f"{name} did not close in {CLOSING:g} s"
        warnings.warn(f"{reason}: left behind", RuntimeWarning, stacklevel=2)


class GuardedWorld(World):
    """A world whose answers are looked at, and whose errors carry its name.

    Args:
        config: of the world, which is built here.
        batch_size: rows.
        seed: of the world.
        device: where it is.
    """

    def __init__(self, config: WorldConfig, batch_size: int, *, seed: int, device: torch.device) -> None:
        self.name = type(config).__name__.removesuffix("Config")
        self.world = build_world(config, batch_size, self.name, seed=seed, device=device)
        with world_errors(self.name, "its constructor"):
            self.spec = self.world.spec
            self.batch_size, self.device = self.world.batch_size, self.world.device
            self.answers = Answers(self.spec.observation_space, self.batch_size)
        self.last: Step | None = None

    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows."""
        with world_errors(self.name, "its reset"):
            step = self.world.reset(seed)
            self.answers.check(step)
            self.answers.check_numbers(step)
            return step

    def step(self, actions: Tensor) -> Step:
        """Advance every row."""
        with world_errors(self.name, "its step"):
            step = self.last = self.world.step(actions)
            self.answers.check(step)
            return step

    def blame(self) -> None:
        """Raise :class:`WorldError` if the newest answer is outside its space: no agent can read it."""
        if self.last is not None:
            with world_errors(self.name, "its step"):
                self.answers.check_numbers(self.last)

    def oracle(self) -> Tensor | None:
        """The best action of every row."""
        return self.world.oracle()

    def expert(self, name: str) -> Tensor | None:
        """The actions of a policy that the world offers."""
        return self.world.expert(name)

    def truth(self) -> Truth | None:
        """What only the world knows."""
        return self.world.truth()

    def scene(self) -> Scene | None:
        """The things in the present frame."""
        return self.world.scene()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step reads."""
        return self.world.save()

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.world.load(tensors, data)

    def close(self) -> None:
        """Let go of it."""
        close_world(self.world, self.name)
