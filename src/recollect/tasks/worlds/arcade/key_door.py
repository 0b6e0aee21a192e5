"""Key and door: reach a key, then a door, among moving distractors.

A frame has 42 x 42 units (frames.py). Actions are 0 up, 1 down, 2 left, 3 right: two units. The agent, 3 x 3, has to
touch the key, which then disappears, and after that the door, which ends the episode; before, the door has no effect.
``distractors`` diamonds move with a step of -1, 0 or 1 rows and columns each (not both 0), and bounce off the walls;
every step that touches one or more costs ``bump``. All places are drawn anew in every episode; agent, key and door
start apart.

The reward is 1 for the key and 1 for the door; the score is half of their sum. No memory is needed: whether the key was
taken is visible. What matters in the frame changes with it.

Source: ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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

AGENT = Sprite(("###", "###", "###"), 255)
KEY = Sprite(("#### ", "#  ##", "#### ", "  #  ", "  ## "), 200)
DOOR = Sprite(("#####", "#   #", "#   #", "#  ##", "#   #"), 200)
DIAMOND = replace(BALL, grey=130)
SPEED = 2
SMALL, LARGE = UNITS - 2, UNITS - 4
"""Positions along one axis of an object of 3 units, and of one of 5."""
CELLS, PITCH, ROOM = 4, 11, 5
"""Key, door and agent start in different cells: cells along one axis, units from one cell to the next, and positions
within a cell."""
LONGEST_ROUTE = 63
"""The oracle's steps from one corner to a key in another, and back to a door."""


@dataclass(frozen=True, kw_only=True)
class KeyDoorConfig(WorldConfig):
    """Fetch the key, then go to the door."""

    side: int = 84
    """Side of a frame in pixels: 42, 84, 126, ..."""
    distractors: int = 3
    """Number of moving distractors."""
    bump: float = 0.1
    """Subtracted from the reward for every step that touches a distractor."""
    max_steps: int = 100
    """Actions per episode; 63 are enough for any key and door."""

    def __post_init__(self) -> None:
        require_side(self.side)
        require_at_least(self, distractors=0, bump=0, max_steps=LONGEST_ROUTE)

    @property
    def spec(self) -> WorldSpec:
        """A grey frame, four actions; everything is visible."""
        return WorldSpec(
            observation_space=observation_space(self.side),
            action_space=gymnasium.spaces.Discrete(4),
            max_steps=self.max_steps,
            memory_span=0,
            chance=float("nan"),
            oracle=1.0,
            events=("seeks key", "seeks door"),
            object_names=("agent", "key", "door", *(f"distractor {number}" for number in range(self.distractors))),
            action_names=("up", "down", "left", "right"),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> KeyDoor:
        """Build the world with ``batch_size`` rows."""
        return KeyDoor(self, batch_size, seed=seed, device=device)


class KeyDoorState(NamedTuple):
    """State of the world."""

    agent: torch.Tensor  # long [b, 2]: top left unit
    goals: torch.Tensor  # long [b, 2, 2]: top left units of key and door
    has_key: torch.Tensor  # bool [b]
    start: torch.Tensor  # long [b, distractors, 2]: phases of row and column at the first frame: see :func:`bounce`
    step: torch.Tensor  # long [b, distractors, 2]: rows and columns a frame
    now: torch.Tensor  # long [b]: actions so far


class KeyDoor(TensorWorld[KeyDoorState]):
    """The world of :class:`KeyDoorConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: KeyDoorConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.moves = SPEED * torch.tensor(DIRECTIONS, device=self.device)
        self.steps = torch.tensor(STEPS, device=self.device)
        self.painter = Painter(config.side, (AGENT, KEY, DOOR, *[DIAMOND] * config.distractors), self.device)

    def begin(self, batch_size: int) -> KeyDoorState:
        """Return episodes with random places; agent, key and door are in different cells."""
        keys = torch.rand(batch_size, CELLS * CELLS, generator=self.generator, device=self.device)
        cells = keys.topk(3, dim=1).indices
        within = self.draw_integers(ROOM, batch_size, 3, 2)
        places = PITCH * torch.stack([cells // CELLS, cells % CELLS], 2) + within
        shape = (batch_size, self.config.distractors)
        return KeyDoorState(
            places[:, 0],
            places[:, 1:],
            torch.zeros(batch_size, dtype=torch.bool, device=self.device),
            self.draw_integers(2 * SMALL, *shape, 2),
            self.steps[self.draw_integers(len(STEPS), *shape)],
            torch.zeros(batch_size, dtype=torch.long, device=self.device),
        )

    def advance(self, state: KeyDoorState, actions: torch.Tensor) -> Advance:
        """Move the agent and the distractors, and check what the agent touches."""
        agent = (state.agent + self.moves[actions]).clamp(0, SMALL - 1)
        now = state.now + 1
        moved = state._replace(agent=agent, now=now)
        touched = _overlap(agent[:, None], 3, state.goals, 5)
        took = touched[:, 0] & ~state.has_key
        opened = touched[:, 1] & state.has_key
        bumped = _overlap(agent[:, None], 3, self._distractors(moved), 3).any(1)
        has_key = state.has_key | took
        reward = took.float() + opened.float() - self.config.bump * bumped
        return Advance(moved._replace(has_key=has_key), reward, opened, (has_key.float() + opened.float()) / 2)

    def observe(self, state: KeyDoorState) -> torch.Tensor:
        """Return the frame, uint8 ``[b, 1, side, side]``."""
        greys = self.painter.sprite_greys(len(state.now))
        greys[:, 1] *= ~state.has_key
        return self.painter.draw(self._places(state), greys)

    def plan(self, state: KeyDoorState) -> torch.Tensor:
        """Go to the key, then to the door, along the longer axis first, ignoring distractors."""
        goal = torch.where(state.has_key[:, None], state.goals[:, 1], state.goals[:, 0])
        return action_towards(goal + 1 - state.agent)

    def look(self, state: KeyDoorState) -> Truth:
        """Return the present aim as the event; no decision depends on the past."""
        nothing = torch.full_like(state.now, -1)
        return Truth(state.has_key.long(), nothing, nothing)

    def place(self, state: KeyDoorState) -> Scene:
        """Return the boxes of all objects; the agent and its present aim matter."""
        visible = torch.ones(len(state.now), 3 + self.config.distractors, dtype=torch.bool, device=self.device)
        visible[:, 1] = ~state.has_key
        matters = torch.zeros_like(visible)
        matters[:, 0], matters[:, 1], matters[:, 2] = True, ~state.has_key, state.has_key
        return self.painter.scene(self._places(state), visible, matters)

    def _distractors(self, state: KeyDoorState) -> torch.Tensor:
        return bounce(state.start + state.step * state.now[:, None, None], SMALL)

    def _places(self, state: KeyDoorState) -> torch.Tensor:
        return torch.cat([state.agent[:, None], state.goals, self._distractors(state)], 1)


def _overlap(a: torch.Tensor, size: int, b: torch.Tensor, other: int) -> torch.Tensor:
    """Return whether squares overlap, ``[b, n]``, from their places ``[b, n, 2]``."""
    return ((a + size > b) & (b + other > a)).all(2)
