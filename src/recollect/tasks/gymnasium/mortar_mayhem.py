"""Endless Mortar Mayhem, the official environment of Memory Gym, as a world with an oracle and ground truth.

A command is shown for three steps in the middle of an arena of 6 x 6 tiles: one of nine, to walk to a neighbouring tile
or stay. Eighteen steps later all other tiles explode, and an agent on the right tile has completed the command. When
all commands so far have been completed in order, one more is shown and the list starts again, until the first mistake
or ``steps``. So the list grows by one in every round, and each command is shown once.

The environment is memory-gym's, with its frames (84 x 84, or averaged over squares of pixels) and rewards (0.1 per
command); this file adds what it reads from the environment's state. The score is the number of commands completed.

- ``oracle`` walks to the middle of the tile of the present command, and stands still while walking has no effect;
  :class:`~recollect.training.imitation.config.TeacherConfig` can name it.
- ``truth``: the interval is that in which the present command was shown, the label is the command; both only while it
  is to be executed.

Chance is the score of a policy that repeats one of c commands: with p = 1 / c the new command of a round is right with
probability p, and the earlier ones, which are then equal to it, always: p (2 - p) / (1 - p)^2, without a limit of
steps. The oracle's score follows from the number of steps.

Source: Pleines et al., Memory Gym: towards endless tasks to benchmark memory capabilities of agents (JMLR 26(6), 2025).
        Differs: ``steps`` truncates an episode; the published environment has no limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from typing import Any

from recollect.config import require, require_at_least
from recollect.gymnasium_ids import MEMORY_GYM
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Step, Truth, World, WorldConfig, WorldSpec, require_form, require_range

SIDE = 84
"""Side of the official frames in pixels."""
TILES = 6
"""Side of the arena, which fills the frame, in tiles."""
SHOWN, DELAY, DURATION = 4, 18, 6
"""Steps of a command's display, with the pause after it; steps until tiles explode; steps of the explosion."""
NEAR = 1
"""Distance from the middle of a tile, in pixels, that is near enough; a step moves 2 or 3."""
STAND, BACK, ON = 0, 1, 2
"""Values of an entry of the action: stay, towards smaller pixels, towards larger ones."""


@dataclass(frozen=True, kw_only=True)
class EndlessMortarMayhemConfig(WorldConfig):
    """Execute all commands shown so far in order; one more is shown in every round."""

    steps: int = 1024
    """Actions of the longest episode."""
    side: int = 84
    """Side of an observation in pixels: 84, or 42, 28, ... averaged over squares."""
    commands: int = 9
    """Number of commands, 4 to 9; the first five are straight moves and stay."""

    def __post_init__(self) -> None:
        require_at_least(self, steps=1, side=1)
        require(SIDE % self.side == 0, "side", self.side, f"give a divisor of {SIDE}, for example 84, 42 or 28")
        require(4 <= self.commands <= 9, "commands", self.commands, "give 4 to 9")

    @property
    def spec(self) -> WorldSpec:
        """A colour frame, a direction along each axis; the first command may be needed at the last step."""
        p = 1 / self.commands
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(0, 255, (self.side, self.side, 3), np.uint8),
            action_space=gymnasium.spaces.MultiDiscrete([3, 3]),
            max_steps=self.steps,
            memory_span=self.steps - 1,
            chance=p * (2 - p) / (1 - p) ** 2,
            oracle=float(count_completable_commands(self.steps)),
            events=("command shown", "command completed"),
            num_labels=self.commands,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> EndlessMortarMayhem:
        """Build the world with ``batch_size`` environments in this process.

        Raises:
            ValueError: memory-gym or pygame is not installed.
        """
        return EndlessMortarMayhem(self, batch_size, seed=seed, device=device)

    @property
    def title(self) -> str:
        """Name for people."""
        return "Endless Mortar Mayhem"


def count_completable_commands(steps: int) -> int:
    """Return the number of commands that can be completed in so many actions of the official environment."""
    showing, walked, exploding, present, known, done = SHOWN - 1, 0, -1, 0, 1, 0
    for _ in range(steps):
        if showing:
            showing -= 1
            continue
        if walked == DELAY and exploding < 0:
            present, done, exploding, walked = present + 1, done + 1, 0, 1
            if present == known:
                present, known, showing = 0, known + 1, SHOWN
        if exploding == DURATION:
            exploding = -1
        elif exploding >= 0:
            exploding += 1
        else:
            walked += 1
    return done


def average_blocks(frame: np.ndarray, block: int) -> np.ndarray:
    """Return means over squares of ``block`` x ``block`` pixels, rounded down; bytes ``[y, x, c]``.

    Sums of slices are several times as fast as a mean over two axes.
    """
    if block == 1:
        return frame
    rows = reduce(np.add, (frame[shift::block].astype(np.uint32) for shift in range(block)))
    total = reduce(np.add, (rows[:, shift::block] for shift in range(block)))
    return (total // block**2).astype(np.uint8)


class Arena:
    """One environment, with its display times and ground truth.

    Args:
        make: the official class.
        config: settings of the world.
    """

    def __init__(self, make: Any, config: EndlessMortarMayhemConfig) -> None:
        self.environment, self.config = make(), config
        self.clock = 0
        self.shown: list[tuple[int, int]] = []
        """First step of each command on the screen, and the step after its last."""
        self.completed = False

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin an episode and return its first frame."""
        options = {"allowed_commands": self.config.commands}
        frame, _ = self.environment.reset(seed=seed, options=options)
        self.clock, self.shown, self.completed = 0, [(0, 1)], False
        return self._frame(frame)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Return the next frame, the reward, and whether a mistake was made."""
        coming = self.environment._command_visualization
        shows = bool(coming and coming[0])
        self.clock += 1
        frame, reward, over, _, _ = self.environment.step(action)
        if shows:
            begun = len(self.shown) == len(self.environment._commands)
            start = self.shown.pop()[0] if begun else self.clock
            self.shown.append((start, self.clock + 1))
        self.completed = reward > 0
        return self._frame(frame), float(reward), bool(over)

    def _frame(self, frame: np.ndarray) -> np.ndarray:
        return average_blocks(frame, SIDE // self.config.side)

    @property
    def is_executing(self) -> bool:
        """Whether the present command is to be executed: nothing is shown, nothing explodes."""
        return not self.environment._command_visualization and not self.environment.arena.tiles_on

    @property
    def score(self) -> int:
        """Number of commands that were carried out."""
        return self.environment._total_commands_completed

    def oracle_action(self) -> tuple[int, int]:
        """Return the oracle's action."""
        inner = self.environment
        if not self.is_executing:
            return STAND, STAND
        tile = inner.arena.tile_dim
        aims = [tile * (target + 0.5) for target in inner._target_pos]
        at = [centre - corner for centre, corner in zip(inner.agent.rect.center, inner.arena.rect.topleft, strict=True)]
        across, along = (self._direction(aim - now, tile * TILES) for aim, now in zip(aims, at, strict=True))
        return across, along

    @staticmethod
    def _direction(way: float, around: float) -> int:
        """Return the shorter direction; leaving the arena leads to the opposite side."""
        way = (way + around / 2) % around - around / 2
        return STAND if abs(way) <= NEAR else ON if way > 0 else BACK

    def truth(self) -> tuple[int, int, int, int]:
        """Return the event, start and stop of the interval, and the label."""
        inner = self.environment
        event = 1 if self.completed else 0 if self.shown[-1][0] == self.clock else -1
        if not self.is_executing:
            return event, -1, -1, -1
        number = inner._current_command
        return event, *self.shown[number], list(self._kinds()).index(inner._commands[number])

    @staticmethod
    def _kinds() -> dict[str, tuple[int, int]]:
        from memory_gym.pygame_assets import Command

        return Command.COMMANDS


class EndlessMortarMayhem(World):
    """The world of :class:`EndlessMortarMayhemConfig`. It cannot be saved within an episode."""

    def __init__(
        self, config: EndlessMortarMayhemConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a world has at least one row")
        self.config, self.spec, self.batch_size = config, config.spec, batch_size
        self.device = torch.device(device)
        made = import_official_class()
        # Never closed, because closing one of these environments closes the screen of all.
        self.arenas = [Arena(made, config) for _ in range(batch_size)]
        self.seed: int | None = seed
        self.over = np.zeros(batch_size, dtype=bool)
        self.begun = False

    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows; row i is seeded with ``seed + i``."""
        seed, self.seed = self.seed if seed is None else seed, None
        frames = [arena.reset(None if seed is None else seed + row) for row, arena in enumerate(self.arenas)]
        self.begun, self.over = True, np.zeros_like(self.over)
        none = np.zeros(self.batch_size, dtype=np.float32)
        return self._make_step(frames, none, ~self.over, self.over, self.over)

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row."""
        if not self.begun:
            raise RuntimeError("EndlessMortarMayhem: call reset() first")
        require_form(actions, self.spec.action_space, self.batch_size)
        require_range(actions, STAND, ON)
        chosen = actions.cpu().numpy()
        first = self.over
        frames, reward, failed = [], np.zeros(self.batch_size, dtype=np.float32), np.zeros_like(first)
        for row, arena in enumerate(self.arenas):
            if first[row]:
                frames.append(arena.reset(None))
                continue
            frame, reward[row], failed[row] = arena.step(chosen[row])
            frames.append(frame)
        late = np.array([arena.clock >= self.config.steps for arena in self.arenas]) & ~failed & ~first
        self.over = failed | late
        return self._make_step(frames, reward, first, failed, late)

    def oracle(self) -> torch.Tensor:
        """Return the best action of every row."""
        return torch.tensor([arena.oracle_action() for arena in self.arenas], device=self.device)

    def truth(self) -> Truth:
        """Return the command to execute, and when it was shown."""
        event, start, stop, label = torch.tensor([arena.truth() for arena in self.arenas], device=self.device).unbind(1)
        over = torch.from_numpy(self.over).to(self.device)
        return Truth(event, *(torch.where(over, -1, part) for part in (start, stop, label)))

    def _make_step(self, frames: list[np.ndarray], reward: Any, first: Any, terminated: Any, truncated: Any) -> Step:
        score = np.array([arena.score for arena in self.arenas], dtype=np.float32) * (terminated | truncated)
        numbers = (torch.tensor(part, device=self.device) for part in (reward, first, terminated, truncated, score))
        return Step(torch.from_numpy(np.stack(frames)).to(self.device), *numbers)


def import_official_class() -> Any:
    """Import the environment's class.

    Raises:
        ValueError: memory-gym or pygame is not installed.
    """
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # otherwise pygame warns about a missing sound card
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        from memory_gym.endless_mortar_mayhem import EndlessMortarMayhemEnv
    except ImportError as error:
        raise ValueError(f"Endless Mortar Mayhem needs the package {error.name}: {MEMORY_GYM}") from None
    return EndlessMortarMayhemEnv
