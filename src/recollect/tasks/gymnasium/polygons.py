"""The image world of MDP Playground: walk from polygon to polygon, and stay at the one that is rewarded.

Every state is a polygon of 3, 4, ... sides, drawn white on black at a random place and angle. In every state each
action leads to another state, by a table that is drawn once for each ``table`` and is the same in all episodes, so that
any state can be reached in one step. One state is rewarded, with ``1 / steps`` at every step that leads to it: the
score, which is the return of an episode, is the share of steps that were rewarded.

The states, tables, rewards and pictures are those of mdp-playground's ``RLToyEnv``; this file adds the oracle, which
takes the action that leads to the rewarded polygon, and its scene: the polygon, always visible. Nothing must be
remembered: the world shows what an agent attends to in a picture, not how far back. Its other worlds (rewards for
sequences, delays, noise, grids) are ``GymnasiumConfig(id="mdp_playground.envs:RLToyEnv", options={...})``.

Source: Rajan et al., MDP Playground (JAIR 77, 2023), proposed for agents with attention by George 2021, chapter 6.
        Differs: no terminal states; frames are ``[y, x, 1]``, and may be averaged over squares of pixels.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

from recollect.config import require, require_at_least
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.gymnasium.mortar_mayhem import average_blocks
from recollect.tasks.gymnasium.silence import Silence
from recollect.tasks.worlds.contract import Scene, Step, World, WorldConfig, WorldSpec, require_form, require_range

SIDE = 84
"""Side of the official frames in pixels; their polygons fill circles of radius 20."""


@dataclass(frozen=True, kw_only=True)
class PolygonsConfig(WorldConfig):
    """Find the rewarded one of several polygons, and stay there."""

    states: int = 8
    """Number of polygons, and of actions."""
    steps: int = 50
    """Actions of an episode."""
    side: int = 42
    """Side of an observation in pixels: 84, or 42, 28, ... averaged over squares."""
    table: int = 0
    """Seed of the table of transitions and of the rewarded state."""

    def __post_init__(self) -> None:
        require_at_least(self, steps=1, side=1, table=0)
        require(2 <= self.states <= 12, "states", self.states, "give 2 to 12: polygons of more sides look like circles")
        require(SIDE % self.side == 0, "side", self.side, f"give a divisor of {SIDE}, for example 84, 42 or 28")

    @property
    def spec(self) -> WorldSpec:
        """A grey frame, and one action per state; chance is the score of random actions."""
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(0, 255, (self.side, self.side, 1), np.uint8),
            action_space=gymnasium.spaces.Discrete(self.states),
            max_steps=self.steps,
            memory_span=0,
            chance=1 / self.states,
            oracle=1.0,
            object_names=("polygon",),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> Polygons:
        """Build the world with ``batch_size`` environments in this process.

        Raises:
            ValueError: mdp-playground is not installed.
        """
        return Polygons(self, batch_size, seed=seed, device=device)

    @property
    def title(self) -> str:
        """Name for people."""
        return "Polygons"


class Polygons(World):
    """The world of :class:`PolygonsConfig`. It cannot be saved within an episode."""

    def __init__(
        self, config: PolygonsConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a world has at least one row")
        self.config, self.spec, self.batch_size = config, config.spec, batch_size
        self.device = torch.device(device)
        made = import_official_class()
        self.rows = [make_row(made, config, seed + row) for row in range(batch_size)]
        goal, *others = self.rows[0].rewardable_sequences
        assert not others and len(goal) == 1, "the density asks for one state"
        # [state]: the action that leads to the rewarded state.
        self.best = np.argmax(self.rows[0].transition_matrix == goal[0], axis=1)
        self.seed: int | None = seed
        self.clock = np.zeros(batch_size, dtype=np.int64)
        self.total = np.zeros(batch_size, dtype=np.float32)
        self.over = np.zeros(batch_size, dtype=bool)
        self.frames = np.zeros((batch_size, config.side, config.side, 1), dtype=np.uint8)
        self.begun = False

    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows; row i is seeded with ``seed + i``."""
        if seed is not None:
            for row, environment in enumerate(self.rows):  # its reset does not seed places and angles
                environment.observation_space.seed(seed + row)
        seed, self.seed = self.seed if seed is None else seed, None
        for row in range(self.batch_size):
            self._begin(row, None if seed is None else seed + row)
        self.begun, self.over = True, np.zeros_like(self.over)
        return self._make_step(np.zeros_like(self.total), ~self.over)

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row."""
        if not self.begun:
            raise RuntimeError("Polygons: call reset() first")
        require_form(actions, self.spec.action_space, self.batch_size)
        require_range(actions, 0, self.config.states - 1)
        chosen = actions.cpu().numpy()
        first, reward = self.over, np.zeros_like(self.total)
        for row, environment in enumerate(self.rows):
            if first[row]:
                self._begin(row, None)
                continue
            frame, reward[row], *_ = environment.step(int(chosen[row]))
            self._show(row, frame)
            self.clock[row] += 1
        reward /= self.config.steps
        self.total = self.total + reward
        self.over = (self.clock >= self.config.steps) & ~first
        return self._make_step(reward, first)

    def oracle(self) -> torch.Tensor:
        """Return the best action of every row."""
        return torch.tensor([self.best[row.curr_state] for row in self.rows], device=self.device)

    def scene(self) -> Scene:
        """Return the box around the polygon of every row."""
        boxes = []
        for frame in self.frames[..., 0] > 0:
            ys, xs = np.flatnonzero(frame.any(1)), np.flatnonzero(frame.any(0))
            boxes.append([[ys[0], xs[0], ys[-1] + 1, xs[-1] + 1]])
        there = torch.ones(self.batch_size, 1, dtype=torch.bool, device=self.device)
        return Scene(torch.tensor(np.array(boxes), device=self.device), there, there)

    def _begin(self, row: int, seed: int | None) -> None:
        with Silence():
            frame, _ = self.rows[row].reset(seed=seed)
        self._show(row, frame)
        self.clock[row], self.total[row] = 0, 0.0

    def _show(self, row: int, frame: np.ndarray) -> None:
        rows_first = frame.swapaxes(0, 1)  # the package has [x, y, 1]
        self.frames[row] = average_blocks(rows_first, SIDE // self.config.side)

    def _make_step(self, reward: np.ndarray, first: np.ndarray) -> Step:
        none = np.zeros_like(self.over)
        parts = (reward, first, none, self.over, self.total * self.over)
        frames = torch.tensor(self.frames, device=self.device)
        return Step(frames, *(torch.tensor(part, device=self.device) for part in parts))


def make_row(made: Any, config: PolygonsConfig, seed: int) -> Any:
    """Return one environment of a table.

    Args:
        made: the official class.
        config: settings of the world.
        seed: of places and angles of the polygons.
    """
    draws = np.random.default_rng(config.table)
    names = ("env", "relevant_state_space", "relevant_action_space", "state_space", "action_space")
    seeds = {name: int(draws.integers(2**31)) for name in names} | {"image_representations": seed}
    options = {
        "state_space_type": "discrete",
        "state_space_size": config.states,
        "action_space_size": config.states,
        "maximally_connected": True,
        "terminal_state_density": 0,
        "reward_density": 1 / config.states,
        "image_representations": True,
        "image_width": SIDE,
        "image_height": SIDE,
        "image_transforms": "shift,rotate",
        "image_sh_quant": 1,
        "image_ro_quant": 1,
        "log_level": logging.CRITICAL,
    }
    with Silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made(seed=seeds, **options)


def import_official_class() -> Any:
    """Import the environment's class.

    Raises:
        ValueError: mdp-playground is not installed.
    """
    try:
        with Silence():
            from mdp_playground.envs.rl_toy_env import RLToyEnv
    except ImportError as error:
        raise ValueError(f"the polygons: {error}: run pip install 'recollect-torch[mdp]'") from error
    return RLToyEnv
