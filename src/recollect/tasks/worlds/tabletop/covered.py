"""Covered objects: remember where coloured balls were, and lift the cup over the named one.

``num_cups`` balls of different colours are visible around the middle of the table for ``show_steps`` steps; then each
is covered by a cup, and all cups look the same. After ``delay`` more steps the hand is unlocked (table.py), and only
then a sentence names a ball: "lift the cup over the red ball". A hand that closes over a cup lifts it, which ends the
episode, with reward 1 for the right cup.

Memory: the colour at every place, log2(num_cups!) bits, until the sentence. Chance: colours are placed independently of
everything else, so a policy that has forgotten them is right with probability at most ``1 / num_cups``.

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
    colour_table,
    encode_sentence,
    points_on_circle,
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
    """Number of balls and cups."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_object_count("num_cups")

    @property
    def num_targets(self) -> int:
        """Places that the hand must reach: one cup."""
        return 1

    @property
    def spec(self) -> WorldSpec:
        """An image, seven words and the hand's state; dx, dy and grip."""
        return self.build_spec(
            WORDS,
            7,
            events=("balls", "cups", "question"),
            num_labels=math.factorial(self.num_cups),
            bits=arrangement_bits(self.num_cups, self.num_cups),
            chance=1 / self.num_cups,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> CoveredObjects:
        """Build the world with ``batch_size`` rows."""
        return CoveredObjects(self, batch_size, seed=seed, device=device)


class CoveredState(NamedTuple):
    """State of the world."""

    hand: Hand  # Where it is
    places: torch.Tensor  # float [b, cups, 2]
    colours: torch.Tensor  # long [b, cups]: colour of the ball at every place
    asked: torch.Tensor  # long [b]: colour that is asked for
    lifted: torch.Tensor  # long [b]: the cup that was lifted; -1 for none


class CoveredObjects(Tabletop[CoveredState]):
    """The world of :class:`CoveredObjectsConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: CoveredObjectsConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.middles = points_on_circle(config.num_cups, 0.6)
        names = tuple(COLOURS)[: config.num_cups]
        self.colours = colour_table(names, self.device)
        told = [encode_sentence(("lift", "the", "cup", "over", "the", name, "ball"), WORDS, 7) for name in names]
        self.sentences = torch.tensor([*told, encode_sentence(("watch",), WORDS, 7)], device=self.device)

    def begin(self, batch_size: int) -> CoveredState:
        """Return episodes with new random places, colours and requests."""
        asked = self.draw_integers(self.config.num_cups, batch_size)
        return CoveredState(
            self.begin_hand(batch_size),
            self.jitter(batch_size, self.middles),
            self.random_orders(batch_size, self.config.num_cups),
            asked,
            torch.full_like(asked, -1),
        )

    def act(self, state: CoveredState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move the hand and lift the covers."""
        hand = self.move(state.hand, free, actions)
        distance = (state.places - hand.place[:, None]).norm(dim=2)
        lifts = hand.closed & (distance.amin(1) < REACH)
        lifted = torch.where(lifts, distance.argmin(1), -1)
        score = (lifted == self._right_cup(state)).float()
        return Advance(state._replace(hand=hand, lifted=lifted), score, lifts, score)

    def observe(self, state: CoveredState) -> dict[str, torch.Tensor]:
        """Return the image, the sentence and the hand's state."""
        b, cups = state.places.shape[:2]
        lifted = torch.arange(cups, device=self.device) == state.lifted[:, None]
        covered = ~self.is_shown[:, None] & ~lifted  # draw no ball under a cup: its soft edges would be visible
        cup = torch.tensor(CUP_COLOUR, device=self.device).expand(b, cups, 3)
        things = [
            Shapes("disc", BALL, state.places, self.colours[state.colours], ~covered),
            Shapes("disc", CUP, state.places, cup, covered),
        ]
        told = torch.where(self.is_free, state.asked, self.config.num_cups)
        image = self.draw(state.hand, things)
        return {"image": image, "language": self.sentences[told], "state": self.hand_state(state.hand)}

    def plan(self, state: CoveredState) -> torch.Tensor:
        """Go to the right cup and lift it."""
        return self.press_action(state.hand, state.places[self.rows, self._right_cup(state)])

    def look(self, state: CoveredState) -> Truth:
        """Return the ground truth: the movement depends on the steps without cups; the label is the colours' order."""
        decides = self.is_free & ~self.over
        event = torch.where(self.is_shown, 0, torch.where(self.is_free, 2, 1))
        label = torch.where(~self.is_shown & ~self.over, arrangement_number(state.colours), -1)
        return Truth(event, torch.where(decides, 0, -1), torch.where(decides, self.config.show_steps, -1), label)

    def _right_cup(self, state: CoveredState) -> torch.Tensor:
        """Return the cup over the requested ball, long ``[b]``."""
        return (state.colours == state.asked[:, None]).long().argmax(1)
