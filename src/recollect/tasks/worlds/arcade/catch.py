"""Catch: move a paddle below a falling ball, which may become invisible before it lands.

A frame has 42 x 42 units (frames.py). A ball of 3 x 3 enters at the top, at any of 40 columns with equal probability,
and falls two rows per step; it moves one column to the left or right per step, or none, and bounces off the walls. The
paddle is 7 wide, in the lowest two rows, and starts in the middle. Actions are 0 stay, 1 left, 2 right: two columns.
After 19 steps the ball reaches the paddle's rows: it is caught, with reward 1, when they touch. Then the next ball
enters, and the paddle returns to the middle. An episode has ``balls`` balls; its score is the share that was caught.
The last observation shows one more ball, which does not count.

With ``blackout`` the ball is invisible in the last ``blackout`` steps before it lands, and the paddle is locked until
then. So the place of landing must be remembered, and the position of the paddle cannot record it.

Chance, with a blackout: all columns of landing are equally likely given what is visible then, and the paddle catches at
most 9 of 40. This holds for agents that do not observe their previous action, with which others could pass on a
direction. Without a blackout no memory is needed.

Source: ours, after the game in Mnih et al., Recurrent models of visual attention (NeurIPS 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require, require_at_least
from recollect.lazy import gymnasium, torch
from recollect.tasks.worlds.arcade.frames import BALL, UNITS, Painter, Sprite, bounce, observation_space, require_side
from recollect.tasks.worlds.contract import Advance, Scene, TensorWorld, Truth, WorldConfig, WorldSpec

STAY, LEFT, RIGHT = range(3)
PADDLE = Sprite(("#######", "#######"), 160)
FALL = 19
"""Steps of a ball from the top to the paddle."""
COLUMNS = UNITS - 2
"""Positions of a ball, which is 3 wide."""
PLACES = UNITS - 6
"""Positions of the paddle."""
MIDDLE = PLACES // 2
SPEED = 2
"""Rows of the ball and columns of the paddle per step."""


@dataclass(frozen=True, kw_only=True)
class CatchConfig(WorldConfig):
    """Catch balls, also after they became invisible."""

    side: int = 84
    """Side of a frame in pixels: 42, 84, 126, ..."""
    balls: int = 5
    """Balls per episode."""
    blackout: int = 0
    """Steps before landing in which the ball is invisible, and before which the paddle is locked: 0, or 8 (enough to
    reach a wall) to 17."""

    def __post_init__(self) -> None:
        require_side(self.side)
        require_at_least(self, balls=1)
        remedy = f"give 0, or 8 to {FALL - 2} steps: time to reach a wall, and two frames to see the ball's direction"
        require(self.blackout == 0 or 8 <= self.blackout <= FALL - 2, "blackout", self.blackout, remedy)

    @property
    def spec(self) -> WorldSpec:
        """A grey frame, three actions; during a blackout a decision may depend on the last two frames before it."""
        return WorldSpec(
            observation_space=observation_space(self.side),
            action_space=gymnasium.spaces.Discrete(3),
            max_steps=self.balls * FALL,
            memory_span=self.blackout + 1 if self.blackout else 0,
            chance=9 / COLUMNS if self.blackout else float("nan"),
            oracle=1.0,
            events=("ball", "dark"),
            object_names=("ball", "paddle"),
            action_names=("stay", "left", "right"),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> Catch:
        """Build the world with ``batch_size`` rows."""
        return Catch(self, batch_size, seed=seed, device=device)


class CatchState(NamedTuple):
    """State of the world, all long ``[b]``."""

    start: torch.Tensor  # Phase of the ball's column when it entered: see :func:`bounce`
    drift: torch.Tensor  # Columns a step: -1, 0 or 1
    fallen: torch.Tensor  # Steps since it entered
    paddle: torch.Tensor  # Leftmost column of the paddle
    balls: torch.Tensor  # Balls that have landed
    caught: torch.Tensor  # Balls that were caught


class Catch(TensorWorld[CatchState]):
    """The world of :class:`CatchConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: CatchConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.moves = torch.tensor([0, -SPEED, SPEED], device=self.device)
        self.painter = Painter(config.side, (BALL, PADDLE), self.device)

    def begin(self, batch_size: int) -> CatchState:
        """Return episodes with the first ball at the top."""
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        return CatchState(*self._draw_ball(batch_size), zero, zero + MIDDLE, zero, zero)

    def advance(self, state: CatchState, actions: torch.Tensor) -> Advance:
        """Move the paddle unless it is locked, then the ball; replace a ball that landed."""
        free = state.fallen >= FALL - self.config.blackout if self.config.blackout else state.fallen >= 0
        paddle = (state.paddle + torch.where(free, self.moves[actions], 0)).clamp(0, PLACES - 1)
        fallen = state.fallen + 1
        landed = fallen == FALL
        column = bounce(state.start + state.drift * fallen, COLUMNS)
        caught = landed & (column + 2 >= paddle) & (column <= paddle + 6)
        balls, total = state.balls + landed, state.caught + caught
        start, drift = self._draw_ball(len(actions))
        present = CatchState(
            torch.where(landed, start, state.start),
            torch.where(landed, drift, state.drift),
            torch.where(landed, 0, fallen),
            torch.where(landed, MIDDLE, paddle),
            balls,
            total,
        )
        # All balls take equally long, so the last one lands when the time is over.
        return Advance(present, caught.float(), balls == self.config.balls, total / self.config.balls)

    def observe(self, state: CatchState) -> torch.Tensor:
        """Return the ball, unless it is invisible, and the paddle: uint8 ``[b, 1, side, side]``."""
        greys = self.painter.sprite_greys(len(state.paddle))
        greys[:, 0] *= ~self._is_invisible(state)
        return self.painter.draw(self._places(state), greys)

    def plan(self, state: CatchState) -> torch.Tensor:
        """Go below the place where the ball will land."""
        ahead = bounce(state.start + state.drift * FALL, COLUMNS) + 1 - (state.paddle + 3)
        return torch.where(ahead >= SPEED, RIGHT, torch.where(ahead <= -SPEED, LEFT, STAY))

    def look(self, state: CatchState) -> Truth:
        """Return the ground truth: during a blackout, the decision depends on the last two frames before it."""
        dark = self._is_invisible(state) & ~self.over
        since = state.fallen - (FALL - self.config.blackout)
        lit = self.clock - since
        event = torch.where(dark, 1, torch.where(state.fallen == 0, 0, -1))
        return Truth(event, torch.where(dark, lit - 2, -1), torch.where(dark, lit, -1))

    def place(self, state: CatchState) -> Scene:
        """Return the boxes of ball, also when invisible, and paddle; both matter."""
        visible = torch.stack([~self._is_invisible(state), torch.ones_like(self.over)], 1)
        return self.painter.scene(self._places(state), visible, torch.ones_like(visible))

    def _draw_ball(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.draw_integers(2 * COLUMNS, number), self.draw_integers(3, number) - 1

    def _is_invisible(self, state: CatchState) -> torch.Tensor:
        if not self.config.blackout:
            return torch.zeros_like(state.fallen, dtype=torch.bool)
        return state.fallen >= FALL - self.config.blackout

    def _places(self, state: CatchState) -> torch.Tensor:
        column = bounce(state.start + state.drift * state.fallen, COLUMNS)
        floor = torch.full_like(column, UNITS - 2)
        ball, paddle = (SPEED * state.fallen, column), (floor, state.paddle)
        return torch.stack([torch.stack(ball, 1), torch.stack(paddle, 1)], 1)
