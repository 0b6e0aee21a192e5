"""Shown, then covered: lift the cup under which the named ball is.

``num_cups`` balls of different colours lie around the middle of the table for ``show_steps`` steps; then every one is
under a cup, and all cups look the same. ``delay`` steps later the hand is free (table.py), and only then a sentence
says which ball is wanted: "lift the cup over the red ball". A hand that is closed over a cup lifts it, which ends the
episode, with reward 1 for the right one.

Memory: which colour is where, log2(num_cups!) bits, until the question comes. Chance: places of colours are drawn
independently of all else, so who does not know them any more is right with probability ``1 / num_cups`` at best.

Source: ours; a tabletop form of the shell game, and of the object permanence of Lampinen et al. 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from recollect.lazy import torch
from recollect.tasks.arrangements import arrangement_bits, arrangement_number
from recollect.tasks.worlds.contract import Advance, Truth, WorldSpec
from recollect.tasks.worlds.tabletop.table import (
    COLOURS,
    REACH,
    Hand,
    Shapes,
    Tabletop,
    TabletopConfig,
    around,
    colours_of,
    sentence,
)

WORDS = ("", "watch", "lift", "the", "cup", "over", "ball", *COLOURS)
"""Word of every number in the key ``language``."""
CUP, BALL = 0.2, 0.13
"""Half of the width of a cup and of a ball."""
CUP_COLOUR = (175, 165, 140)


@dataclass(frozen=True, kw_only=True)
class CoveredObjectsConfig(TabletopConfig):
    """Lift the cup that covers a ball of the named colour."""

    num_cups: int = 3
    """Balls, and cups over them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_around("num_cups")

    @property
    def ways(self) -> int:
        """To the cup."""
        return 1

    @property
    def spec(self) -> WorldSpec:
        """A picture, seven words and the hand's state; dx, dy and grip."""
        return self.spec_of(
            WORDS,
            7,
            events=("balls", "cups", "question"),
            num_labels=math.factorial(self.num_cups),
            bits=arrangement_bits(self.num_cups, self.num_cups),
            chance=1 / self.num_cups,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> CoveredObjects:
        """The world, with ``batch_size`` rows."""
        return CoveredObjects(self, batch_size, seed=seed, device=device)


class CoveredState(NamedTuple):
    """What a row of the world is."""

    hand: Hand
    """Where it is."""
    places: torch.Tensor
    """float ``[b, cups, 2]``."""
    colours: torch.Tensor
    """long ``[b, cups]``: colour of the ball at every place."""
    asked: torch.Tensor
    """long ``[b]``: colour that is asked for."""
    lifted: torch.Tensor
    """long ``[b]``: the cup that was lifted; -1 for none."""


class CoveredObjects(Tabletop[CoveredState]):
    """The world of :class:`CoveredObjectsConfig`; the rules stand at the top of this file."""

    def __init__(
        self, config: CoveredObjectsConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.middles = around(config.num_cups, 0.6)
        names = tuple(COLOURS)[: config.num_cups]
        self.colours = colours_of(names, self.device)
        told = [sentence(("lift", "the", "cup", "over", "the", name, "ball"), WORDS, 7) for name in names]
        self.sentences = torch.tensor([*told, sentence(("watch",), WORDS, 7)], device=self.device)

    def begin(self, batch_size: int) -> CoveredState:
        """Places, colours and question drawn anew."""
        asked = torch.randint(self.config.num_cups, (batch_size,), generator=self.generator, device=self.device)
        return CoveredState(
            self.begin_hand(batch_size),
            self.scatter(batch_size, self.middles),
            self.shuffled(batch_size, self.config.num_cups),
            asked,
            torch.full_like(asked, -1),
        )

    def act(self, state: CoveredState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move and lift."""
        hand = self.move(state.hand, free, actions)
        distance = (state.places - hand.place[:, None]).norm(dim=2)
        lifts = hand.closed & (distance.amin(1) < REACH)
        lifted = torch.where(lifts, distance.argmin(1), -1)
        score = (lifted == self._right(state)).float()
        return Advance(state._replace(hand=hand, lifted=lifted), score, lifts, score)

    def observe(self, state: CoveredState) -> dict[str, torch.Tensor]:
        """Balls, cups and the hand; the sentence."""
        b, cups = state.places.shape[:2]
        lifted = torch.arange(cups, device=self.device) == state.lifted[:, None]
        covered = ~self.is_shown[:, None] & ~lifted  # no ball is drawn there: soft edges would shine out
        cup = torch.tensor(CUP_COLOUR, device=self.device).expand(b, cups, 3)
        things = [
            Shapes("disc", BALL, state.places, self.colours[state.colours], ~covered),
            Shapes("disc", CUP, state.places, cup, covered),
        ]
        told = torch.where(self.is_free, state.asked, self.config.num_cups)
        image = self.paint(state.hand, things)
        return {"image": image, "language": self.sentences[told], "state": self.state_of(state.hand)}

    def plan(self, state: CoveredState) -> torch.Tensor:
        """To the right cup, and lift it."""
        rows = torch.arange(len(state.asked), device=self.device)
        return self.press(state.hand, state.places[rows, self._right(state)])

    def look(self, state: CoveredState) -> Truth:
        """Where to go depends on what was to be seen without cups; the label is which colour is where."""
        decides = self.is_free & ~self.over
        event = torch.where(self.is_shown, 0, torch.where(self.is_free, 2, 1))
        label = torch.where(~self.is_shown & ~self.over, arrangement_number(state.colours), -1)
        return Truth(event, torch.where(decides, 0, -1), torch.where(decides, self.config.show_steps, -1), label)

    def _right(self, state: CoveredState) -> torch.Tensor:
        """Over the ball that is asked for, long ``[b]``."""
        return (state.colours == state.asked[:, None]).long().argmax(1)
