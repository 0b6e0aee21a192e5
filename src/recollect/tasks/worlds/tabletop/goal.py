"""The goal is shown once: put the named block on the pad that was lit at the start.

``num_pads`` pads lie around the middle of the table, ``num_blocks`` blocks of different colours somewhere between
them. For ``show_steps`` steps one pad is lit, then none; ``delay`` steps later the hand is free (table.py). A sentence
names a block: "put the red block where the light was". To let go of a block on a pad ends the episode, with reward 1
if block and pad are the right ones. Beside pads blocks may be put down and taken up again.

Memory: which pad was lit, log2(num_pads) bits, until the block is carried. Chance: the pad is drawn independently of
all else, so who does not know it any more is right with probability ``1 / num_pads`` at best.

Source: ours; a tabletop form of the pick and move tasks of Ryoo et al. 2023 (section 3.3) whose goal is not to be seen
any more. Numbers are not comparable with theirs.
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
    around,
    colours_of,
    sentence,
)

WORDS = ("", "put", "the", "block", "where", "light", "was", *COLOURS)
"""Word of every number in the key ``language``."""
PAD, BLOCK = 0.2, 0.13
"""Half of the width of a pad and of a block."""


@dataclass(frozen=True, kw_only=True)
class GoalShownOnceConfig(TabletopConfig):
    """Put a block where a light was at the start."""

    num_pads: int = 4
    """Places where the light may be."""
    num_blocks: int = 2
    """Blocks on the table, one of which is asked for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_around("num_pads")
        blocks = self.num_blocks
        require(1 <= blocks <= 3, "num_blocks", blocks, "give 1 to 3, or there is no room between the pads")

    @property
    def ways(self) -> int:
        """To the block and to the pad."""
        return 2

    @property
    def spec(self) -> WorldSpec:
        """A picture, seven words and the hand's state; dx, dy and grip."""
        return self.spec_of(
            WORDS,
            7,
            events=("light", "block in hand"),
            num_labels=self.num_pads,
            bits=math.log2(self.num_pads),
            chance=1 / self.num_pads,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> GoalShownOnce:
        """The world, with ``batch_size`` rows."""
        return GoalShownOnce(self, batch_size, seed=seed, device=device)


class GoalState(NamedTuple):
    """What a row of the world is."""

    hand: Hand
    """Where it is."""
    blocks: torch.Tensor
    """float ``[b, blocks, 2]``: places."""
    asked: torch.Tensor
    """long ``[b]``: the block that is asked for."""
    goal: torch.Tensor
    """long ``[b]``: the pad that was lit."""
    held: torch.Tensor
    """long ``[b]``: the block in the hand; -1 for none."""


class GoalShownOnce(Tabletop[GoalState]):
    """The world of :class:`GoalShownOnceConfig`; the rules stand at the top of this file."""

    def __init__(
        self, config: GoalShownOnceConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.pads = around(config.num_pads, 0.78).to(self.device)
        self.starts = around(config.num_blocks, 0.24) if config.num_blocks > 1 else torch.zeros(1, 2)
        grey = torch.tensor(GREY, device=self.device).expand(1, config.num_pads, 3)
        always = torch.ones(1, config.num_pads, dtype=torch.bool, device=self.device)
        self.with_pads = self.ground([Shapes("ring", PAD, self.pads[None], grey, always)])
        self.light = torch.tensor(LIGHT, device=self.device)[None, None]
        names = tuple(COLOURS)[: config.num_blocks]
        self.colours = colours_of(names, self.device)
        told = [sentence(("put", "the", name, "block", "where", "light", "was"), WORDS, 7) for name in names]
        self.sentences = torch.tensor(told, device=self.device)

    def begin(self, batch_size: int) -> GoalState:
        """Blocks, the one that is asked for and the lit pad drawn anew."""
        drawn = {"generator": self.generator, "device": self.device}
        blocks = self.scatter(batch_size, self.starts)
        order = self.shuffled(batch_size, self.config.num_blocks)
        blocks = blocks.gather(1, order[..., None].expand_as(blocks))
        asked = torch.randint(self.config.num_blocks, (batch_size,), **drawn)
        goal = torch.randint(self.config.num_pads, (batch_size,), **drawn)
        return GoalState(self.begin_hand(batch_size), blocks, asked, goal, torch.full_like(goal, -1))

    def act(self, state: GoalState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move, grip, carry, let go."""
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
        """Pads, the light, blocks and the hand; the sentence."""
        b = len(state.goal)
        lights = Shapes("disc", PAD, self.pads[state.goal][:, None], self.light, self.is_shown[:, None])
        seen = torch.ones(b, self.config.num_blocks, dtype=torch.bool, device=self.device)
        blocks = Shapes("square", BLOCK, state.blocks, self.colours.expand(b, -1, -1), seen)
        image = self.paint(state.hand, [lights, blocks], self.with_pads)
        return {"image": image, "language": self.sentences[state.asked], "state": self.state_of(state.hand)}

    def plan(self, state: GoalState) -> torch.Tensor:
        """Take the block, carry it to the pad, let go. A wrong block is put down beside the pads."""
        rows = torch.arange(len(state.goal), device=self.device)
        mine, empty = state.held == state.asked, state.held < 0
        block, goal = state.blocks[rows, state.asked], self.pads[state.goal]
        _, on_pad = self._nearest_pad(state.hand)
        middle = torch.zeros_like(goal)
        target = torch.where(mine[:, None], goal, torch.where(empty[:, None], block, middle))
        arrives = self.arrives(state.hand, target)
        closes = torch.where(empty, arrives, torch.where(mine, ~arrives, on_pad | ~arrives))
        return self.wait_while_locked(self.go(state.hand, target, torch.where(closes, 1.0, -1.0)))

    def look(self, state: GoalState) -> Truth:
        """Where to carry the block depends on the light; the label is the pad."""
        carries = (state.held == state.asked) & ~self.over
        event = torch.where(self.is_shown, 0, torch.where(state.held >= 0, 1, -1))
        start = torch.where(carries, 0, -1)
        return Truth(
            event, start, torch.where(carries, self.config.show_steps, -1), torch.where(self.over, -1, state.goal)
        )

    def _nearest_pad(self, hand: Hand) -> tuple[torch.Tensor, torch.Tensor]:
        """The pad that is nearest to the hand, long ``[b]``, and whether the hand is over it, bool ``[b]``."""
        distance = (self.pads - hand.place[:, None]).norm(dim=2)
        return distance.argmin(1), distance.amin(1) < PAD
