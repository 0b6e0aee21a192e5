"""Guards around user-defined worlds, which may raise, exit, hang or return invalid steps: errors name the world."""

import math
import warnings

import torch
from torch import Tensor

from recollect.runs.errors import RunError, WorldError
from recollect.runs.interrupts import Interrupted, TimeLimitExceeded, is_user_interrupt, time_limited
from recollect.tasks.process_settings import kept_process_settings
from recollect.tasks.worlds.answers import Answers
from recollect.tasks.worlds.contract import Step, World, WorldConfig

CLOSING = 5.0  # seconds that a world may take to close


class world_errors:  # noqa: N801  (a function of contextlib would let a StopIteration through)
    """A context that turns what a world's code raises into a :class:`WorldError` with the world's name.

    Settings of the process that the code changed are put back (:class:`kept_process_settings`).

    Args:
        name: of the world.
        doing: the call, for the message.
    """

    def __init__(self, name: str, doing: str = "") -> None:
        self.name = f"{name} in {doing}" if doing else name
        self.settings = kept_process_settings()

    def __enter__(self) -> None:
        self.settings.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, place: object) -> None:
        self.settings.__exit__()
        if error is None or isinstance(error, (RunError, TimeLimitExceeded, Interrupted, GeneratorExit)):
            return
        if isinstance(error, KeyboardInterrupt) and is_user_interrupt(error):
            return
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            reason = f"wants to end the program (SystemExit: {error.code})"
        raise WorldError(f"{self.name}: {' '.join(reason.split())}") from error


def build_world(config: WorldConfig, batch_size: int, name: str, *, seed: int, device: torch.device) -> World:
    """Build a world; errors name it."""
    with world_errors(name, "its constructor"):
        world = config.build(batch_size, seed=seed, device=device)
        if not isinstance(world, World):
            raise TypeError(f"build made a {type(world).__name__}, not a World")
        return world


def close_world(world: World, name: str) -> None:
    """Close a world; one that cannot be closed is left open with a warning, so that results are not lost."""
    try:
        with time_limited(CLOSING, math.inf), world_errors(name, "close"):
            world.close()
    except (RunError, TimeLimitExceeded) as error:
        reason = str(error) or f"{name} did not close in {CLOSING:g} s"
        warnings.warn(f"{reason}: left open", RuntimeWarning, stacklevel=2)


class GuardedWorld(World):
    """A world whose steps are checked and whose errors carry its name; ``world`` is the world itself."""

    def __init__(self, config: WorldConfig, batch_size: int, *, seed: int, device: torch.device) -> None:
        self.name = config.title
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
        """Advance every row of the world, and check what it returns."""
        with world_errors(self.name, "its step"):
            step = self.last = self.world.step(actions)
            self.answers.check(step)
            return step

    def check_last_step(self) -> None:
        """Raise :class:`WorldError` if an agent cannot read the newest step.

        An observation is outside its space, or a reward is not finite.
        """
        if self.last is not None:
            with world_errors(self.name, "its step"):
                self.answers.check_numbers(self.last)
                broken = (~self.last.reward.isfinite()).nonzero()[:, 0].tolist()
                if broken:
                    raise ValueError(f"the reward is {float(self.last.reward[broken[0]])} in row {broken[0]}")

    def expert(self, name: str) -> Tensor | None:
        """Return the actions of one of the world's policies."""
        return self.world.expert(name)

    def close(self) -> None:
        """Close the world."""
        close_world(self.world, self.name)
