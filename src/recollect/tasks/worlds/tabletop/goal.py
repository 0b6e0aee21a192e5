"""Goal shown once: put the named block on the pad that was lit at the start.

``num_pads`` pads lie around the middle of the table, ``num_blocks`` blocks of different colours between them. For
``show_steps`` steps one pad is lit, then none; after ``delay`` more steps the hand is unlocked (table.py). A sentence
names a block: "put the red block where the light was". Releasing a block on a pad ends the episode, with reward 1 if
block and pad are right. Beside the pads, blocks may be put down and taken up again.

Memory: the lit pad, log2(num_pads) bits, until the block is carried. Chance: the pad is drawn independently of
everything else, so a policy that has forgotten it is right with probability at most ``1 / num_pads``.

Source: ours; a tabletop form of the pick and move tasks of Ryoo et al. 2023 (section 3.3) with a goal that becomes
        invisible. Scores are not comparable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require
from recollect.lazy import torch
from recollect.tasks.worlds.contract import Advance, Truth, WorldSpec
from recollect.tasks.worlds.tabletop.table import (
    COLOURS,
    GREY,
    LIGHT,
    REACH,
    Hand,
    Shapes,
    Tabletop,
    TabletopConfig,
    colour_table,
    encode_sentence,
    points_on_circle,
)

WORDS = ("", "put", "the", "block", "where", "light", "was", *COLOURS)
"""Word of every number in the key ``language``."""
PAD, BLOCK = 0.2, 0.13
"""Half of the width of a pad and of a block."""


@dataclass(frozen=True, kw_only=True)
class GoalShownOnceConfig(TabletopConfig):
    """Put a block on the pad that was lit at the start."""

    num_pads: int = 4
    """Number of pads that may be lit."""
    num_blocks: int = 2
    """Number of blocks, one of which is requested."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_object_count("num_pads")
        blocks = self.num_blocks
        require(1 <= blocks <= 3, "num_blocks", blocks, "give 1 to 3, or there is no room between the pads")

    @property
    def num_targets(self) -> int:
        """Places that the hand must reach: the block and the pad."""
        return 2

    @property
    def spec(self) -> WorldSpec:
        """An image, seven words and the hand's state; dx, dy and grip."""
        return self.build_spec(
            WORDS,
            7,
            events=("light", "block in hand"),
            num_labels=self.num_pads,
            bits=math.log2(self.num_pads),
            chance=1 / self.num_pads,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> GoalShownOnce:
        """Build the world with ``batch_size`` rows."""
        return GoalShownOnce(self, batch_size, seed=seed, device=device)


class GoalState(NamedTuple):
    """State of the world."""

    hand: Hand  # Where it is
    blocks: torch.Tensor  # float [b, blocks, 2]: places
    asked: torch.Tensor  # long [b]: the block that is asked for
    goal: torch.Tensor  # long [b]: the pad that was lit
    held: torch.Tensor  # long [b]: the block in the hand; -1 for none


class GoalShownOnce(Tabletop[GoalState]):
    """The world of :class:`GoalShownOnceConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: GoalShownOnceConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.pads = points_on_circle(config.num_pads, 0.78).to(self.device)
        self.starts = points_on_circle(config.num_blocks, 0.24) if config.num_blocks > 1 else torch.zeros(1, 2)
        grey = torch.tensor(GREY, device=self.device).expand(1, config.num_pads, 3)
        always = torch.ones(1, config.num_pads, dtype=torch.bool, device=self.device)
        self.with_pads = self.draw_background([Shapes("ring", PAD, self.pads[None], grey, always)])
        self.light = torch.tensor(LIGHT, device=self.device)[None, None]
        names = tuple(COLOURS)[: config.num_blocks]
        self.colours = colour_table(names, self.device)
        told = [encode_sentence(("put", "the", name, "block", "where", "light", "was"), WORDS, 7) for name in names]
        self.sentences = torch.tensor(told, device=self.device)

    def begin(self, batch_size: int) -> GoalState:
        """Return episodes with new random blocks, requests and lit pads."""
        blocks = self.jitter(batch_size, self.starts)
        order = self.random_orders(batch_size, self.config.num_blocks)
        blocks = blocks.gather(1, order[..., None].expand_as(blocks))
        asked = self.draw_integers(self.config.num_blocks, batch_size)
        goal = self.draw_integers(self.config.num_pads, batch_size)
        return GoalState(self.begin_hand(batch_size), blocks, asked, goal, torch.full_like(goal, -1))

    def act(self, state: GoalState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move, grip, carry and release."""
        hand = self.move(state.hand, free, actions)
        distance = (state.blocks - hand.place[:, None]).norm(dim=2)  # b k
        nearest = distance.argmin(1)
        takes = (state.held < 0) & hand.closed & (distance.amin(1) < REACH)
        drops = (state.held >= 0) & ~hand.closed
        carried = torch.where(takes, nearest, state.held)
        mine = torch.arange(self.config.num_blocks, device=self.device) == carried[:, None]
        blocks = torch.where(mine[..., None], hand.place[:, None], state.blocks)
        pad, on_pad = self._nearest_pad(hand)
        over = drops & on_pad
        score = (over & (pad == state.goal) & (state.held == state.asked)).float()
        held = torch.where(drops, -1, carried)
        return Advance(GoalState(hand, blocks, state.asked, state.goal, held), score, over, score)

    def observe(self, state: GoalState) -> dict[str, torch.Tensor]:
        """Return the image, the sentence and the hand's state."""
        b = len(state.goal)
        lights = Shapes("disc", PAD, self.pads[state.goal][:, None], self.light, self.is_shown[:, None])
        seen = torch.ones(b, self.config.num_blocks, dtype=torch.bool, device=self.device)
        blocks = Shapes("square", BLOCK, state.blocks, self.colours.expand(b, -1, -1), seen)
        image = self.draw(state.hand, [lights, blocks], self.with_pads)
        return {"image": image, "language": self.sentences[state.asked], "state": self.hand_state(state.hand)}

    def plan(self, state: GoalState) -> torch.Tensor:
        """Take the block, carry it to the pad and release it; put a wrong block down beside the pads."""
        mine, empty = state.held == state.asked, state.held < 0
        block, goal = state.blocks[self.rows, state.asked], self.pads[state.goal]
        _, on_pad = self._nearest_pad(state.hand)
        middle = torch.zeros_like(goal)
        target = torch.where(mine[:, None], goal, torch.where(empty[:, None], block, middle))
        is_close_after_step = self.is_close_after_step(state.hand, target)
        closes = torch.where(
            empty, is_close_after_step, torch.where(mine, ~is_close_after_step, on_pad | ~is_close_after_step)
        )
        return self.zero_while_locked(self.move_action(state.hand, target, torch.where(closes, 1.0, -1.0)))

    def look(self, state: GoalState) -> Truth:
        """Return the ground truth: the movement of the carried block depends on the light; the label is the pad."""
        carries = (state.held == state.asked) & ~self.over
        event = torch.where(self.is_shown, 0, torch.where(state.held >= 0, 1, -1))
        start = torch.where(carries, 0, -1)
        return Truth(
            event, start, torch.where(carries, self.config.show_steps, -1), torch.where(self.over, -1, state.goal)
        )

    def _nearest_pad(self, hand: Hand) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pad nearest to the hand, long ``[b]``, and whether the hand is over it, bool ``[b]``."""
        distance = (self.pads - hand.place[:, None]).norm(dim=2)
        return distance.argmin(1), distance.amin(1) < PAD
