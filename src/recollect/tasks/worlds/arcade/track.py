"""Track: follow the ball that was marked at the start among others of the same appearance.

A frame has 42 x 42 units (frames.py). ``balls`` balls of 3 x 3 move with a step of -1, 0 or 1 rows and columns each
(not both 0), bounce off the walls and pass through each other. All places and steps are drawn anew in every episode.
Three phases:

- *cue*, ``cue_steps`` frames: one of the balls, drawn uniformly, is bright.
- *run*, ``run_steps`` frames: all look the same.
- *pick*: the balls stop and a cursor appears in the middle. Actions are 0 up, 1 down, 2 left, 3 right (two units) and 4
  pick, which ends the episode, with reward 1 when the ball nearest to the cursor is the marked one (on ties both
  count). Before this phase actions are ignored, so that the cursor cannot mark the ball.

The score is the reward. Among many balls the marked one may be so close to others that the cursor cannot be nearest to
it: in 3 of 1 000 episodes with 64 balls, in none of 4 000 with 16. Chance: balls are drawn alike, so a policy that has
forgotten the marked one and picks a ball is right with probability 1 / ``balls``. That is no upper bound: in 6 of 10
episodes some place is equally near to two of 4 balls, and a policy that looked for it could reach 0.41 instead of 0.25.
This holds for agents that do not observe their previous action.

Source: ours, after Pylyshyn and Storm, Tracking multiple independent targets (Spatial Vision, 1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require_at_least
from recollect.lazy import gymnasium, torch
from recollect.tasks.worlds.arcade.frames import (
    BALL,
    DIRECTIONS,
    STEPS,
    UNITS,
    Painter,
    Sprite,
    action_towards,
    bounce,
    observation_space,
    require_side,
)
from recollect.tasks.worlds.contract import Advance, Scene, TensorWorld, Truth, WorldConfig, WorldSpec

PICK = 4
CURSOR = Sprite(("# #", "   ", "# #"), 200)
"""Four corners, which a ball leaves visible."""
SPEED = 2
SPAN = UNITS - 2
"""Positions of a ball or the cursor along one axis."""
PLAIN, BRIGHT = 110, 255
CELL = 7
"""Side of a cell in units; labels name the marked ball's place by cell."""
CELLS = UNITS // CELL


@dataclass(frozen=True, kw_only=True)
class TrackConfig(WorldConfig):
    """Follow the ball that was marked."""

    side: int = 84
    """Side of a frame in pixels: 42, 84, 126, ..."""
    balls: int = 4
    """Number of balls, at least 2."""
    cue_steps: int = 4
    """Frames in which one ball is bright."""
    run_steps: int = 16
    """Frames in which all balls move and look the same."""
    pick_steps: int = 30
    """Actions to move the cursor to a ball and pick it; 21 are enough for every ball."""

    def __post_init__(self) -> None:
        require_side(self.side)
        require_at_least(self, balls=2, cue_steps=1, run_steps=0, pick_steps=21)

    @property
    def spec(self) -> WorldSpec:
        """A grey frame, five actions; the cue may be needed at the last step."""
        steps = self.cue_steps + self.run_steps + self.pick_steps
        return WorldSpec(
            observation_space=observation_space(self.side),
            action_space=gymnasium.spaces.Discrete(5),
            max_steps=steps,
            memory_span=steps - 1,
            chance=1 / self.balls,
            oracle=1.0,
            events=("cue", "run", "pick"),
            object_names=(*(f"ball {number}" for number in range(self.balls)), "cursor"),
            action_names=("up", "down", "left", "right", "pick"),
            num_labels=CELLS**2,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> Track:
        """Build the world with ``batch_size`` rows."""
        return Track(self, batch_size, seed=seed, device=device)


class TrackState(NamedTuple):
    """State of the world."""

    start: torch.Tensor  # long [b, balls, 2]: phases of row and column at the first frame: see :func:`bounce`
    step: torch.Tensor  # long [b, balls, 2]: rows and columns a frame
    marked: torch.Tensor  # long [b]: the ball
    now: torch.Tensor  # long [b]: actions so far
    cursor: torch.Tensor  # long [b, 2]: its top left unit


class Track(TensorWorld[TrackState]):
    """The world of :class:`TrackConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: TrackConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.stop = config.cue_steps + config.run_steps
        self.moves = SPEED * torch.tensor([*DIRECTIONS, (0, 0)], device=self.device)
        self.steps = torch.tensor(STEPS, device=self.device)
        self.painter = Painter(config.side, (*[BALL] * config.balls, CURSOR), self.device)

    def begin(self, batch_size: int) -> TrackState:
        """Return episodes with random balls, one of them marked."""
        shape = (batch_size, self.config.balls)
        return TrackState(
            self.draw_integers(2 * SPAN, *shape, 2),
            self.steps[self.draw_integers(len(STEPS), *shape)],
            self.draw_integers(self.config.balls, batch_size),
            torch.zeros(batch_size, dtype=torch.long, device=self.device),
            torch.full((batch_size, 2), SPAN // 2, device=self.device),
        )

    def advance(self, state: TrackState, actions: torch.Tensor) -> Advance:
        """Move the balls; in the last phase move the cursor, or pick."""
        free = state.now >= self.stop
        cursor = torch.where(free[:, None], self._move_cursor(state, self.moves[actions]), state.cursor)
        picked = free & (actions == PICK)
        score = (picked & self._is_nearest(state)).float()
        return Advance(state._replace(now=state.now + 1, cursor=cursor), score, picked, score)

    def observe(self, state: TrackState) -> torch.Tensor:
        """Return the balls, and in the last phase the cursor: uint8 ``[b, 1, side, side]``."""
        greys = self.painter.sprite_greys(len(state.now))
        greys[:, :-1] = PLAIN
        cue = torch.where(state.now < self.config.cue_steps, BRIGHT, PLAIN).to(torch.uint8)
        greys.scatter_(1, state.marked[:, None], cue[:, None])
        greys[:, -1] *= state.now >= self.stop
        return self.painter.draw(self._places(state), greys)

    def plan(self, state: TrackState) -> torch.Tensor:
        """Move the cursor to the marked ball along the longer axis first and pick it; pass over a nearer one."""
        way = self._marked(state) - state.cursor
        close, ahead = way.abs().amax(1) < SPEED, action_towards(way)
        # Close to the ball prefer a move that makes it the nearest: otherwise two others could alternate for ever.
        beside = [self._is_nearest(state._replace(cursor=self._move_cursor(state, move))) for move in self.moves[:PICK]]
        better = torch.stack(beside, 1).float() + 0.5 * (ahead[:, None] == torch.arange(PICK, device=self.device))
        ahead = torch.where(close, better.argmax(1), ahead)
        return torch.where(close & self._is_nearest(state), PICK, ahead)

    def look(self, state: TrackState) -> Truth:
        """Return the ground truth: the pick depends on all frames until the stop; the label is the ball's cell."""
        phase = (state.now >= self.config.cue_steps).long() + (state.now >= self.stop)
        known = (phase == 2) & ~self.over
        row, column = ((self._marked(state) + 1) // CELL).unbind(1)
        where = torch.where(self.over, -1, CELLS * row + column)
        return Truth(phase, torch.where(known, 0, -1), torch.where(known, self.stop, -1), where)

    def place(self, state: TrackState) -> Scene:
        """Return the boxes of all objects; the marked ball matters, and in the last phase the cursor."""
        picking = state.now >= self.stop
        visible = torch.ones(len(state.now), self.config.balls + 1, dtype=torch.bool, device=self.device)
        visible[:, -1] = picking
        matters = torch.zeros_like(visible).scatter_(1, state.marked[:, None], True)
        matters[:, -1] = picking
        return self.painter.scene(self._places(state), visible, matters)

    def _balls(self, state: TrackState) -> torch.Tensor:
        run = state.now.clamp(max=self.stop)[:, None, None]
        return bounce(state.start + state.step * run, SPAN)

    def _marked(self, state: TrackState) -> torch.Tensor:
        """Return the top left unit of the marked ball, ``[b, 2]``."""
        return self._balls(state).gather(1, state.marked[:, None, None].expand(-1, 1, 2))[:, 0]

    def _places(self, state: TrackState) -> torch.Tensor:
        return torch.cat([self._balls(state), state.cursor[:, None]], 1)

    def _move_cursor(self, state: TrackState, move: torch.Tensor) -> torch.Tensor:
        """Return the cursor after a move, ``[b, 2]``."""
        return (state.cursor + move).clamp(0, SPAN - 1)

    def _is_nearest(self, state: TrackState) -> torch.Tensor:
        """Return whether no ball is nearer to the cursor than the marked one, bool ``[b]``."""
        away = (self._balls(state) - state.cursor[:, None]).square().sum(2)
        return away.gather(1, state.marked[:, None])[:, 0] == away.amin(1)
