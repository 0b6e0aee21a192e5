"""Passive visual match: see a colour, collect apples, then walk through the door of that colour.

An episode has three phases on boards of 7 x 11 cells, each with a fixed number of actions. Actions are 0 north, 1
south, 2 west, 3 east: one cell, unless there is a wall.

    cue              apples           doors (3 choices)
    ...........      ###########      ###########
    ...........      #a a a a a#      # d  d  d #
    ....###....      # a a a a #      #         #
    ....#@C....      #a a a a a#      #         #
    ....###....      # a a a a #      ####   ####
    ...........      #a a @ a a#         # @ #
    ...........      ###########         #####

- *cue*: the agent ``@`` is enclosed by walls. One of the eight cells around it, drawn uniformly, has the cue's colour.
- *apples*: ``num_apples`` of the 22 cells ``a``, drawn without replacement, hold an apple. Stepping onto an apple gives
  one of the two values of ``apple_rewards``, drawn once per episode. An apple taken at frame f of the phase returns at
  frame f + ``respawn`` + 1.
- *doors*: ``choices`` doors, one of each colour. Stepping onto a door removes all doors, and gives ``target_reward`` if
  it has the cue's colour, else nothing. The phase continues until its time is over.

The last action of a phase still has its effect; then the agent is at the start of the next board. An observation shows
the 5 x 5 cells around the agent, one pixel per cell, uint8 RGB; outside the board is background. Colours of cues and
doors are the hues 0, 1/n, ..., (n - 1)/n at full saturation, n = ``choices``.

With ``random_walk`` the agent is moved at random in the apple phase, whatever it does.

The score is 1 when the right door was chosen, else 0; apples do not count. Chance: the cue's colour is drawn uniformly
and independently of the boards after the first phase, so a policy without memory chooses the right door with
probability at most 1 / ``choices``. A memory of a few steps is enough, however long the apple phase is: an agent can
stand at another wall for each colour and read from there which it was, or pass it on from action to action if it
observes its previous action. With ``random_walk``, an agent that does not observe its previous action has to remember.

Source: Hung et al., Optimizing agent behavior over long time scales by transporting value (Nature Communications,
2019), with its pycolab boards, timing and rewards; the passive first phase is that of Ni et al., When do transformers
shine in RL? (NeurIPS 2023). Differs: ``choices`` may be 4, with doors closer together; the doors' colours are permuted
in every episode, as in the 3-D task of the HTM paper (``shuffle_doors=False`` keeps them, as pycolab does within one
instance); ``random_walk`` is ours.
"""

from __future__ import annotations

import colorsys
import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require, require_at_least
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Advance, TensorWorld, Truth, WorldConfig, WorldSpec

BOARDS = (
    ("           ", "           ", "    rrr    ", "    r@r    ", "    rrr    ", "           ", "           "),
    ("###########", "#a a a a a#", "# a a a a #", "#a a a a a#", "# a a a a #", "#a a @ a a#", "###########"),
    ("###########", "#         #", "#         #", "#         #", "####   ####", "   # @ #   ", "   #####   "),
)
"""One board per phase: ``#`` wall, ``@`` start of the agent, ``r`` ring around the agent, ``a`` place of an apple."""
DOORS = {3: (2, 5, 8), 4: (2, 4, 6, 8)}
"""Columns of the doors in the second row of the last board, by number of choices."""
HEIGHT, WIDTH, VIEW = 7, 11, 5
CELLS = HEIGHT * WIDTH
RING, ORCHARD = 8, 22
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
CUE, APPLES, CHOICE = range(3)

RING_SLOTS = slice(3, 3 + RING)
ORCHARD_SLOTS = slice(3 + RING, 3 + RING + ORCHARD)
DOOR_SLOTS = 3 + RING + ORCHARD

BACKGROUND, WALL, AGENT, APPLE, HUES = range(5)
"""Contents of a cell, as indices of the palette; from ``HUES`` on, the colours of cues and doors."""
NEVER = 2**31 - 1
"""A step that is never reached."""
FIXED_COLOURS = ((204, 204, 204), (25, 25, 25), (228, 148, 109), (140, 178, 0))


@dataclass(frozen=True, kw_only=True)
class VisualMatchConfig(WorldConfig):
    """Choose the door whose colour was shown before the apple phase."""

    choices: int = 3
    """Number of doors and colours: 3 or 4."""
    cue_steps: int = 15
    """Actions of the cue phase."""
    distractor_steps: int = 90
    """Actions of the apple phase; 0 skips it."""
    choice_steps: int = 15
    """Actions of the door phase; 7 are enough for every door."""
    num_apples: int = 10
    """Number of the 22 places with an apple."""
    respawn: int = 20
    """Frames until a taken apple returns; 0 for never."""
    apple_rewards: tuple[float, float] = (1.0, 10.0)
    """Possible rewards per apple; one is drawn per episode. Equal ones are a fixed reward."""
    target_reward: float = 10.0
    """Reward for the right door."""
    shuffle_doors: bool = True
    """Permute the doors in every episode."""
    random_walk: bool = False
    """Replace the agent's actions in the apple phase by random ones, so that its place cannot tell the colour."""

    def __post_init__(self) -> None:
        require(self.choices in DOORS, "choices", self.choices, f"use one of {sorted(DOORS)}")
        require_at_least(self, cue_steps=1, distractor_steps=0, choice_steps=7, respawn=0)
        require(0 <= self.num_apples <= ORCHARD, "num_apples", self.num_apples, f"give 0 to {ORCHARD}")

    @property
    def spec(self) -> WorldSpec:
        """A 5 x 5 image, four actions; the first frame's colour may be needed at the last frame."""
        steps = self.cue_steps + self.distractor_steps + self.choice_steps
        return WorldSpec(
            observation_space=gymnasium.spaces.Box(0, 255, (VIEW, VIEW, 3), np.uint8),
            action_space=gymnasium.spaces.Discrete(4),
            max_steps=steps,
            memory_span=steps - 1,
            chance=1 / self.choices,
            oracle=1.0,
            events=("cue", "apples", "doors"),
            action_names=("north", "south", "west", "east"),
            num_labels=self.choices,
            bits=math.log2(self.choices),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> VisualMatch:
        """Build the world with ``batch_size`` rows."""
        return VisualMatch(self, batch_size, seed=seed, device=device)


class VisualMatchState(NamedTuple):
    """State of the world. A *slot* (s of them) is a place whose content differs between rows: see :func:`_slots`."""

    step: torch.Tensor  # long [b]: actions so far
    cell: torch.Tensor  # long [b]: where the agent is, row * 11 + column
    cue: torch.Tensor  # int32 [b]: the right colour, as an index of the palette
    shows: torch.Tensor  # int32 [b, s]: content of a slot, as an index of the palette
    since: torch.Tensor  # int32 [b, s]: first step at which it is visible; background before that
    worth: torch.Tensor  # float32 [b]: reward for an apple
    chosen: torch.Tensor  # int32 [b]: colour of the door that was chosen, as an index of the palette; -1 before


class VisualMatch(TensorWorld[VisualMatchState]):
    """The world of :class:`VisualMatchConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: VisualMatchConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        boards = _boards(config.choices)
        self.starts = torch.tensor([board.index("@") for board in boards], device=self.device)
        walk = _move_table(boards)
        guide = _route_table(boards[CHOICE], walk[CHOICE].tolist(), config.choices)
        slots = _slots(boards)
        # One flat index is several times faster than a tuple of them, and index_select than brackets.
        self.next_cell = walk.flatten().to(self.device)
        self.slots = slots.flatten().to(self.device)
        self.views = _views(slots).flatten(0, 1).to(self.device)
        self.guide = guide.to(self.device)
        fixed = [BACKGROUND, WALL, AGENT, *[WALL] * RING, *[APPLE] * ORCHARD, *[BACKGROUND] * config.choices]
        self.fixed = torch.tensor(fixed, dtype=torch.int32, device=self.device)
        self.door_slots = torch.arange(len(fixed), device=self.device) >= DOOR_SLOTS
        self.palette = torch.tensor(_colours(config.choices), dtype=torch.uint8, device=self.device)

    def begin(self, batch_size: int) -> VisualMatchState:
        """Return episodes at the first frame, with new random choices."""
        c = self.config

        def shuffled(items: int) -> torch.Tensor:
            return torch.rand(batch_size, items, generator=self.generator, device=self.device).argsort(-1)

        cue = (HUES + self.draw_integers(c.choices, batch_size)).int()
        low, high = c.apple_rewards
        worth = torch.where(self.draw_integers(2, batch_size) == 1, high, low).float()
        fixed = torch.arange(c.choices, device=self.device).repeat(batch_size, 1)
        shows = self.fixed.repeat(batch_size, 1)
        shows[:, RING_SLOTS].scatter_(1, self.draw_integers(RING, batch_size, 1), cue[:, None])
        shows[:, DOOR_SLOTS:] = (HUES + (shuffled(c.choices) if c.shuffle_doors else fixed)).int()
        since = torch.zeros_like(shows)
        since[:, ORCHARD_SLOTS] = torch.where(shuffled(ORCHARD) < c.num_apples, 0, NEVER).int()
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        return VisualMatchState(zero, zero + self.starts[CUE], cue, shows, since, worth, torch.full_like(cue, -1))

    def advance(self, state: VisualMatchState, actions: torch.Tensor) -> Advance:
        """Walk, take what is there, and enter the next phase when its time has come."""
        c, phase, step = self.config, self._phase(state.step), state.step + 1
        if c.random_walk:
            actions = torch.where(phase == APPLES, self.draw_integers(len(MOVES), len(actions)), actions)
        cell = self.next_cell.index_select(0, (phase * CELLS + state.cell) * len(MOVES) + actions)
        slot = self.slots.index_select(0, phase * CELLS + cell)[:, None]
        shown, since = state.shows.gather(1, slot)[:, 0], state.since.gather(1, slot)[:, 0]

        there = since <= state.step
        apple = there & (shown == APPLE)
        door = there & (shown >= HUES)  # the cue's own cell cannot be entered, like the rest of the ring
        chosen = torch.where(door, shown, state.chosen)
        wait = min(c.respawn, self.spec.max_steps)  # longer is never: a sum with a larger number may not fit int32
        again = (step + wait + 1).int() if wait else torch.full_like(since, NEVER)
        since = state.since.scatter(1, slot, torch.where(apple, again, since)[:, None])
        since = since.masked_fill(door[:, None] & self.door_slots, NEVER)

        after = self._phase(step)
        cell = torch.where(after != phase, self.starts[after], cell)
        reward = apple * state.worth + (door & (shown == state.cue)) * c.target_reward
        moved = state._replace(step=step, cell=cell, since=since, chosen=chosen)
        return Advance(moved, reward, step >= self.spec.max_steps, (chosen == state.cue).float())

    def observe(self, state: VisualMatchState) -> torch.Tensor:
        """Return the agent's surroundings, uint8 ``[b, 5, 5, 3]``."""
        slots = self.views.index_select(0, self._phase(state.step) * CELLS + state.cell)  # b, 25
        shown = (state.since <= state.step.int()[:, None]) * state.shows  # BACKGROUND is 0
        return self.palette.index_select(0, shown.gather(1, slots).flatten()).view(-1, VIEW, VIEW, 3)

    def plan(self, state: VisualMatchState) -> torch.Tensor:
        """Take a shortest path to the right door; in earlier phases actions do not matter."""
        door = (state.shows[:, DOOR_SLOTS:] == state.cue[:, None]).long().argmax(1)
        return torch.where(self._phase(state.step) == CHOICE, self.guide[door, state.cell], 0)

    def look(self, state: VisualMatchState) -> Truth:
        """Return the ground truth: the choice of a door depends on the first phase; the label is the colour."""
        phase = self._phase(state.step)
        depends = (phase == CHOICE) & (state.chosen < 0) & ~self.over
        label = torch.where((phase > CUE) & (state.chosen < 0) & ~self.over, state.cue.long() - HUES, -1)
        return Truth(phase, torch.where(depends, 0, -1), torch.where(depends, self.config.cue_steps, -1), label)

    def _phase(self, step: torch.Tensor) -> torch.Tensor:
        first = self.config.cue_steps
        return (step >= first).long() + (step >= first + self.config.distractor_steps)


def _colours(choices: int) -> list[tuple[int, ...]]:
    hues = [colorsys.hsv_to_rgb(i / choices, 1, 1) for i in range(choices)]
    return [*FIXED_COLOURS, *(tuple(int(255 * part) for part in hue) for hue in hues)]


def _boards(choices: int) -> list[str]:
    doors = list(BOARDS[CHOICE][1])
    for column in DOORS[choices]:
        doors[column] = "d"
    last = (BOARDS[CHOICE][0], "".join(doors), *BOARDS[CHOICE][2:])
    return ["".join(board) for board in (*BOARDS[:CHOICE], last)]


def _move_table(boards: list[str]) -> torch.Tensor:
    """Return the cell after every action: long ``[phase, cell, action]``."""
    table = torch.arange(CELLS)[None, :, None].repeat(len(boards), 1, len(MOVES))
    for phase, board in enumerate(boards):
        for cell in range(CELLS):
            for action, (down, right) in enumerate(MOVES):
                y, x = cell // WIDTH + down, cell % WIDTH + right
                if 0 <= y < HEIGHT and 0 <= x < WIDTH and board[y * WIDTH + x] not in "#r":
                    table[phase, cell, action] = y * WIDTH + x
    return table


def _slots(boards: list[str]) -> torch.Tensor:
    """Return the slot of every cell, long ``[phase, cell]``.

    Slots are: background, wall, agent, then the cells of the ring, the places of apples, and the doors.
    """
    first = {" ": BACKGROUND, "@": BACKGROUND, "#": WALL, "r": RING_SLOTS.start, "a": ORCHARD_SLOTS.start}
    first["d"] = DOOR_SLOTS
    return torch.tensor(
        [
            [first[mark] + (board[:cell].count(mark) if mark in "rad" else 0) for cell, mark in enumerate(board)]
            for board in boards
        ]
    )


def _views(slots: torch.Tensor) -> torch.Tensor:
    """Return the slots of the 25 cells around every cell, long ``[phase, cell, 25]``."""
    margin, middle = VIEW // 2, VIEW * VIEW // 2
    padded = torch.nn.functional.pad(slots.view(-1, HEIGHT, WIDTH), [margin] * 4, value=BACKGROUND)
    views = padded.unfold(1, VIEW, 1).unfold(2, VIEW, 1).reshape(len(slots), CELLS, VIEW * VIEW)
    views[:, :, middle] = AGENT
    return views


def _route_table(board: str, walk: list[list[int]], choices: int) -> torch.Tensor:
    """Return the first action of a shortest path to a door around other doors: long ``[door, cell]``."""
    doors = [cell for cell, mark in enumerate(board) if mark == "d"]
    guide = torch.zeros(choices, CELLS, dtype=torch.long)
    for number, door in enumerate(doors):
        reached, queue = {door}, deque([door])
        while queue:
            target = queue.popleft()
            for cell in range(CELLS):
                if cell in reached or cell in doors or board[cell] == "#" or target not in walk[cell]:
                    continue
                guide[number, cell] = walk[cell].index(target)
                reached.add(cell)
                queue.append(cell)
    return guide
