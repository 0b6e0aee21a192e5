"""Endless Mortar Mayhem, the official environment of Memory Gym, as a world that has an oracle and tells its truth.

A command is shown for three steps in the middle of an arena of 6 x 6 tiles: one of nine, walk to a neighbouring tile
or stay. Eighteen steps later all other tiles explode. Who stands right has completed the command. When all commands
that were ever shown have been done one after the other, one more is shown and the list begins anew, until the first
mistake or ``steps``. So the list grows by one every round, and each command is shown once.

The environment is memory-gym's own, with its own frames (84 x 84, or averaged over squares of pixels) and rewards (0.1
a command); what this file adds is read from the environment's state. Its score is the number of commands completed.

- ``oracle`` walks to the middle of the tile that the present command leads to, and stands still while nothing can be
  gained by walking: it is what :class:`~recollect.training.imitation.config.TeacherConfig` can name.
- ``truth``: the interval is that in which the present command was shown, the label which of the nine it is; while it
  is to be executed, else none.

Chance is the score of who does the same command again and again, one of c: with p = 1 / c a round's new command is
right with p, and the older ones, which are all the same then, for certain: p (2 - p) / (1 - p)^2, without a limit of
steps. The oracle's score follows from the steps alone.

Source: Pleines et al., Memory Gym: towards endless tasks to benchmark memory capabilities of agents (JMLR 26(6), 2025).
Differs: ``steps`` cuts an episode (a truncation), where the published one has no limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from typing import Any

from recollect.gymnasium_ids import MEMORY_GYM
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Step, Truth, World, WorldConfig, WorldSpec, require_form

SIDE = 84
"""Pixels along a side of the official frames."""
TILES = 6
"""Tiles along a side of the arena, which fills the frame."""
SHOWN, DELAY, DURATION = 4, 18, 6
"""Steps that a command is shown and gone before the next can be walked; until tiles explode; and how long they do."""
NEAR = 1
"""Pixels from the middle of a tile that are near enough; a step takes 2 or 3."""
STAND, BACK, ON = 0, 1, 2
"""Values of an entry of the action: towards smaller pixels, or larger ones."""


@dataclass(frozen=True, kw_only=True)
class EndlessMortarMayhemConfig(WorldConfig):
    """Do all commands ever shown, in order; one more is shown every round."""

    steps: int = 1024
    """Actions of the longest episode."""
    side: int = 84
    """Pixels along a side of what is shown: 84, or 42, 28, ... averaged over squares."""
    commands: int = 9
    """Kinds of commands, 4 to 9; without the last four it is straight moves and stay."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}: give at least 1")
        if self.side < 1 or SIDE % self.side:
            raise ValueError(f"side={self.side}: give a divisor of {SIDE}, for example 84, 42 or 28")
        if not 4 <= self.commands <= 9:
            raise ValueError(f"commands={self.commands}: give 4 to 9")

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
            oracle=float(commands_in(self.steps)),
            events=("command shown", "command completed"),
            num_labels=self.commands,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> EndlessMortarMayhem:
        """The world, with ``batch_size`` environments in this process.

        Raises:
            ValueError: memory-gym or pygame is not installed.
        """
        return EndlessMortarMayhem(self, batch_size, seed=seed, device=device)

    @property
    def title(self) -> str:
        """What a person calls it."""
        return "Endless Mortar Mayhem"


def commands_in(steps: int) -> int:
    """Commands that who makes no mistake completes in so many actions: the official environment's clocks."""
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


def averaged(frame: np.ndarray, block: int) -> np.ndarray:
    """Means over squares of ``block`` x ``block`` pixels, rounded down; bytes ``[y, x, c]``.

    Sums of whole slices are several times as fast as a mean over two axes, which goes pixel by pixel.
    """
    if block == 1:
        return frame
    rows = reduce(np.add, (frame[shift::block].astype(np.uint32) for shift in range(block)))
    total = reduce(np.add, (rows[:, shift::block] for shift in range(block)))
    return (total // block**2).astype(np.uint8)


class Arena:
    """One environment, what is shown of it, and what it knows.

    Args:
        make: the official class.
        config: of the world.
    """

    def __init__(self, make: Any, config: EndlessMortarMayhemConfig) -> None:
        self.environment, self.config = make(), config
        self.clock = 0
        self.shown: list[tuple[int, int]] = []
        """First step of each command on the screen, and the step after its last."""
        self.completed = False

    def reset(self, seed: int | None) -> np.ndarray:
        """A new episode; its first frame."""
        options = {"allowed_commands": self.config.commands}
        frame, _ = self.environment.reset(seed=seed, options=options)
        self.clock, self.shown, self.completed = 0, [(0, 1)], False
        return self._frame(frame)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """The next frame, the reward, and whether a mistake was made."""
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
        return averaged(frame, SIDE // self.config.side)

    @property
    def walks(self) -> bool:
        """Whether the present command is to be executed: nothing is shown, nothing explodes."""
        return not self.environment._command_visualization and not self.environment.arena.tiles_on

    @property
    def score(self) -> int:
        """Commands completed."""
        return self.environment._total_commands_completed

    def best(self) -> tuple[int, int]:
        """The oracle's action."""
        inner = self.environment
        if not self.walks:
            return STAND, STAND
        tile = inner.arena.tile_dim
        aims = [tile * (target + 0.5) for target in inner._target_pos]
        at = [centre - corner for centre, corner in zip(inner.agent.rect.center, inner.arena.rect.topleft, strict=True)]
        across, along = (self._direction(aim - now, tile * TILES) for aim, now in zip(aims, at, strict=True))
        return across, along

    @staticmethod
    def _direction(way: float, around: float) -> int:
        """The shorter way round: who leaves the arena comes in on the other side."""
        way = (way + around / 2) % around - around / 2
        return STAND if abs(way) <= NEAR else ON if way > 0 else BACK

    def truth(self) -> tuple[int, int, int, int]:
        """Event, start and stop of the interval, label."""
        inner = self.environment
        event = 1 if self.completed else 0 if self.shown[-1][0] == self.clock else -1
        if not self.walks:
            return event, -1, -1, -1
        number = inner._current_command
        return event, *self.shown[number], list(self._kinds()).index(inner._commands[number])

    @staticmethod
    def _kinds() -> dict[str, tuple[int, int]]:
        from memory_gym.pygame_assets import Command

        return Command.COMMANDS


class EndlessMortarMayhem(World):
    """The world of :class:`EndlessMortarMayhemConfig`. It cannot be saved in the middle of an episode."""

    def __init__(
        self, config: EndlessMortarMayhemConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a world has at least one row")
        self.config, self.spec, self.batch_size = config, config.spec, batch_size
        self.device = torch.device(device)
        made = official_class()
        # Never closed: closing one of these environments closes the screen of all of them.
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
        return self._answer(frames, none, ~self.over, self.over, self.over)

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row."""
        if not self.begun:
            raise RuntimeError("EndlessMortarMayhem: call reset() before anything else")
        require_form(actions, self.spec.action_space, self.batch_size)
        chosen = actions.cpu().numpy()
        if (chosen < 0).any() or (chosen > ON).any():
            raise ValueError(f"action {chosen[(chosen < 0) | (chosen > ON)][0]} is out of range: use 0..{ON}")
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
        return self._answer(frames, reward, first, failed, late)

    def oracle(self) -> torch.Tensor:
        """The best action of every row."""
        return torch.tensor([arena.best() for arena in self.arenas], device=self.device)

    def truth(self) -> Truth:
        """The command that is to be executed, and when it was shown."""
        event, start, stop, label = torch.tensor([arena.truth() for arena in self.arenas], device=self.device).unbind(1)
        over = torch.from_numpy(self.over).to(self.device)
        return Truth(event, *(torch.where(over, -1, part) for part in (start, stop, label)))

    def _answer(self, frames: list[np.ndarray], reward: Any, first: Any, terminated: Any, truncated: Any) -> Step:
        score = np.array([arena.score for arena in self.arenas], dtype=np.float32) * (terminated | truncated)
        numbers = (torch.tensor(part, device=self.device) for part in (reward, first, terminated, truncated, score))
        return Step(torch.from_numpy(np.stack(frames)).to(self.device), *numbers)


def official_class() -> Any:
    """The environment's class.

    Raises:
        ValueError: memory-gym or pygame is not installed.
    """
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # or pygame looks for a sound card, and complains
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        from memory_gym.endless_mortar_mayhem import EndlessMortarMayhemEnv
    except ImportError as error:
        raise ValueError(f"Endless Mortar Mayhem needs the package {error.name}: {MEMORY_GYM}") from None
    return EndlessMortarMayhemEnv
