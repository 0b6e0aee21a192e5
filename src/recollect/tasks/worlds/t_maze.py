"""The T-maze: see a cue, walk down a long corridor, turn to the side of the cue.

             S . . . . J        x = 0: the start S, x = length: the junction J

An episode draws a side, up or down, with equal probability. The agent moves with four actions: 0 right, 1 up,
2 left, 3 down. In the corridor right and left move one cell, as far as there is one; up and down do nothing. At
the junction up and down end the episode: with reward 1 for the right side, else with 0.

- *passive*: the cue is visible at the start. The shortest episode has ``length + 1`` actions.
- *active*: the cue is visible in an oracle cell at x = -1, one step behind the start. The agent has to go there first:
  ``length + 3`` actions.

An observation has four numbers, 0 or 1: at the start, at the junction, cue up, cue down. All cells between start
and junction look the same: four zeros.

Random actions hardly ever reach the end of a long corridor. ``penalty`` is therefore subtracted from the reward for
every action without progress: in the corridor, all but the step towards the junction; at the junction, all but the two
turns. The step back to the oracle cell is free until the cue was seen. The penalty gives no information about the side.

Chance: the side is independent of all other observations, so a policy without memory of the cue takes the right side
with probability 1/2; 0 if it never gets there. This holds for agents whose previous action is no input: with it, an
agent can pass on the side by moving up or down in the corridor, as often as ``slack`` allows.

Source: Bakker, Reinforcement learning with long short-term memory (NeurIPS 2001); the passive and active form are
those of Ni et al., When do transformers shine in RL? (NeurIPS 2023). Differs: episodes end at the turn, and more
actions than the shortest path are allowed (``slack``), so that the score depends on the side and not on a perfect walk;
the penalty is for the action and not for the delay; the score is the reward at the junction alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require_at_least
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.t_maze_picture import draw

RIGHT, UP, LEFT, DOWN = range(4)
ORACLE, START, CORRIDOR, JUNCTION = range(-1, 3)
"""Kinds of cells. The first three are also the cells' x; all of the corridor looks like its first cell."""


@dataclass(frozen=True, kw_only=True)
class TMazeConfig(WorldConfig):
    """Turn to the side of a cue that was shown many steps ago."""

    length: int = 100
    """Steps from the start to the junction."""
    active: bool = False
    """Show the cue one step behind the start, instead of at the start."""
    slack: int = 60
    """Actions beyond the shortest path, needed for exploration; the episode is then truncated with score 0."""
    penalty: float = 0.01
    """Subtracted from the reward for an action without progress."""

    def __post_init__(self) -> None:
        require_at_least(self, length=1, slack=0, penalty=0)

    @property
    def spec(self) -> WorldSpec:
        """Four features, four actions; the cue may be seen at the first step and needed at the last."""
        max_steps = self.length + 1 + 2 * self.active + self.slack
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32),
            action_space=gymnasium.spaces.Discrete(4),
            max_steps=max_steps,
            memory_span=max_steps - 1 - self.active,
            chance=0.5,
            oracle=1.0,
            events=("cue", "junction"),
            action_names=("right", "up", "left", "down"),
            num_labels=2,
            bits=1.0,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> TMaze:
        """Build the world with ``batch_size`` rows."""
        return TMaze(self, batch_size, seed=seed, device=device)


class TMazeState(NamedTuple):
    """State of the world, all ``[b]``."""

    x: torch.Tensor  # long: cell, from -1 (the oracle cell) to length (the junction)
    up: torch.Tensor  # bool: up is the right side
    seen: torch.Tensor  # long: the latest step at which the cue was visible; -1 before that


class TMaze(TensorWorld[TMazeState]):
    """The world of :class:`TMazeConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: TMazeConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.cue_cell = ORACLE if config.active else START
        self.moves = torch.tensor([1, 0, -1, 0], device=self.device)
        self.views = self._views()
        self.actions = torch.zeros(batch_size, dtype=torch.long)
        """Last actions, for pictures."""

    def begin(self, batch_size: int) -> TMazeState:
        """Return episodes at the start, with random sides."""
        up = self.draw_integers(2, batch_size).bool()
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        return TMazeState(zero, up, torch.full_like(zero, -1 if self.config.active else 0))

    def advance(self, state: TMazeState, actions: torch.Tensor) -> Advance:
        """Walk, or turn at the junction."""
        self.actions = actions
        at_junction = state.x == self.config.length
        turned = at_junction & (actions % 2 == 1)
        right = (actions == UP) == state.up
        x = (state.x + self.moves[actions]).clamp(self.cue_cell, self.config.length)

        score = (turned & right).float()
        idle = ~turned & (at_junction | (actions != RIGHT))
        if self.config.active:
            idle &= (actions != LEFT) | (state.x != START) | (state.seen >= 0)
        seen = torch.where(x == self.cue_cell, self.clock + 1, state.seen)
        return Advance(TMazeState(x, state.up, seen), score - self.config.penalty * idle, turned, score)

    def observe(self, state: TMazeState) -> torch.Tensor:
        """Return start, junction, cue up and cue down: float32 ``[b, 4]``."""
        place = torch.where(state.x == self.config.length, JUNCTION, state.x.clamp(max=CORRIDOR))
        return self.views[place + 1, state.up.long()]

    def plan(self, state: TMazeState) -> torch.Tensor:
        """Look at the cue if necessary, walk to the junction, take the right side."""
        turn = torch.where(state.up, UP, DOWN)
        walk = torch.where(state.seen < 0, LEFT, RIGHT)
        return torch.where(state.x == self.config.length, turn, walk)

    def look(self, state: TMazeState) -> Truth:
        """Return the ground truth: the turn depends on the latest step that showed the cue; the label is the side."""
        at_junction = state.x == self.config.length
        event = torch.where(at_junction, 1, torch.where(state.x == self.cue_cell, 0, -1))
        known = at_junction & (state.seen >= 0) & ~self.over
        label = torch.where((state.seen >= 0) & ~self.over, state.up.long(), -1)
        return Truth(event, torch.where(known, state.seen, -1), torch.where(known, state.seen + 1, -1), label)

    def render(self, row: int) -> np.ndarray:
        """Draw at most ``VIEW`` cells of the maze from above: uint8 ``[y, x, 3]``."""
        state = self._present()
        x, action = int(state.x[row]), int(self.actions[row])
        turned = bool(self.over[row]) and x == self.config.length and action in (UP, DOWN)
        return draw(
            self.config.length,
            self.cue_cell,
            x,
            up=bool(state.up[row]),
            turn=0 if not turned else 1 if action == UP else -1,
        )

    def _views(self) -> torch.Tensor:
        views = torch.zeros(4, 2, 4)  # kind of cell, side, features
        views[START + 1, :, 0] = 1
        views[JUNCTION + 1, :, 1] = 1
        views[self.cue_cell + 1, 0, 3] = 1
        views[self.cue_cell + 1, 1, 2] = 1
        return views.to(self.device)
