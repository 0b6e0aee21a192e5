"""Order shown once: press the buttons in the order in which they were lit at the start.

``num_buttons`` buttons of the same appearance lie around the middle of the table. At the start they light up one after
another, each for ``show_steps`` steps; after ``delay`` more steps the hand is unlocked (table.py). A hand that closes
over a button presses it, and the button stays dark. A press out of order ends the episode with score 0, the last right
one with reward 1. The sentence is "press in order"; with ``backwards`` it is "press in reverse" in half of the
episodes, which then require the reverse order.

Memory: the order, log2(num_buttons!) bits; the number of buttons pressed so far is visible. Chance: the order is drawn
independently of everything else. A policy that has forgotten it presses the right first button with probability 1 / n,
the next with 1 / (n - 1), and so on, as only right presses continue: ``1 / n!`` for all of them.

Source: ours; a tabletop form of the sequence tasks in memory benchmarks for robots.
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
    LIGHT,
    REACH,
    Hand,
    Shapes,
    Tabletop,
    TabletopConfig,
    encode_sentence,
    points_on_circle,
)

WORDS = ("", "press", "in", "order", "reverse")
"""Word of every number in the key ``language``."""
BUTTON = 0.18
"""Half of the width of a button."""
DARK = (80, 76, 90)
"""Colour of a pressed button."""


@dataclass(frozen=True, kw_only=True)
class OrderShownOnceConfig(TabletopConfig):
    """Press buttons in the order in which they were lit at the start."""

    slack: int = 60
    """Actions after the hand is unlocked; then the episode is truncated, with score 0."""
    num_buttons: int = 3
    """Number of buttons, all of which must be pressed."""
    backwards: bool = False
    """Request the reverse order in half of the episodes, once the hand is unlocked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_object_count("num_buttons")

    @property
    def shown_steps(self) -> int:
        """Steps at the start in which lights show the order."""
        return self.show_steps * self.num_buttons

    @property
    def num_targets(self) -> int:
        """Places that the hand must reach: every button."""
        return self.num_buttons

    @property
    def spec(self) -> WorldSpec:
        """An image, three words and the hand's state; dx, dy and grip."""
        orders = math.factorial(self.num_buttons)
        return self.build_spec(
            WORDS,
            3,
            events=("light", "button pressed"),
            num_labels=orders,
            bits=arrangement_bits(self.num_buttons, self.num_buttons),
            chance=1 / orders,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> OrderShownOnce:
        """Build the world with ``batch_size`` rows."""
        return OrderShownOnce(self, batch_size, seed=seed, device=device)


class OrderState(NamedTuple):
    """State of the world."""

    hand: Hand  # Where it is
    buttons: torch.Tensor  # float [b, buttons, 2]: places
    order: torch.Tensor  # long [b, buttons]: buttons as they are lit
    reverse: torch.Tensor  # bool [b]: they are asked for in the reverse order
    pressed: torch.Tensor  # long [b]: how many were pressed


class OrderShownOnce(Tabletop[OrderState]):
    """The world of :class:`OrderShownOnceConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: OrderShownOnceConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.places = points_on_circle(config.num_buttons, 0.62)
        told = [encode_sentence(("press", "in", word), WORDS, 3) for word in ("order", "reverse")]
        self.sentences = torch.tensor(told, device=self.device)

    def begin(self, batch_size: int) -> OrderState:
        """Return episodes with new random places and orders."""
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        reverse = torch.rand(batch_size, generator=self.generator, device=self.device) < 0.5
        return OrderState(
            self.begin_hand(batch_size),
            self.jitter(batch_size, self.places),
            self.random_orders(batch_size, self.config.num_buttons),
            reverse & self.config.backwards,
            zero,
        )

    def act(self, state: OrderState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move the hand and press the buttons."""
        hand = self.move(state.hand, free, actions)
        distance = (state.buttons - hand.place[:, None]).norm(dim=2).masked_fill(self._is_dark(state), torch.inf)
        touched = distance.argmin(1)
        presses = hand.closed & (distance.amin(1) < REACH)
        right = presses & (touched == self._next_button(state))
        pressed = state.pressed + right
        done = pressed == self.config.num_buttons
        score = (right & done).float()
        return Advance(state._replace(hand=hand, pressed=pressed), score, (presses & ~right) | done, score)

    def observe(self, state: OrderState) -> dict[str, torch.Tensor]:
        """Return the image, the sentence (which requests the order once the hand is unlocked) and the hand's state."""
        b = len(state.pressed)
        plain, dark, light = (torch.tensor(colour, device=self.device) for colour in (COLOURS["blue"], DARK, LIGHT))
        colour = torch.where(self._is_dark(state)[..., None], dark, plain)
        colour = torch.where(self._is_lit(state)[..., None], light, colour)
        always = torch.ones(b, self.config.num_buttons, dtype=torch.bool, device=self.device)
        image = self.draw(state.hand, [Shapes("disc", BUTTON, state.buttons, colour, always)])
        told = self.sentences[(state.reverse & self.is_free).long()]
        return {"image": image, "language": told, "state": self.hand_state(state.hand)}

    def plan(self, state: OrderState) -> torch.Tensor:
        """Go to the next button with an open hand, and close it there."""
        return self.press_action(state.hand, state.buttons[self.rows, self._next_button(state)])

    def look(self, state: OrderState) -> Truth:
        """Return the ground truth: the movement depends on the light of the next button; the label is the order."""
        decides = self.is_free & ~self.over
        start = self._light_index(state) * self.config.show_steps
        event = torch.where(self.is_shown, 0, torch.where(state.pressed > 0, 1, -1))
        label = torch.where(~self.is_shown & ~self.over, arrangement_number(state.order), -1)
        return Truth(
            event, torch.where(decides, start, -1), torch.where(decides, start + self.config.show_steps, -1), label
        )

    def _next_button(self, state: OrderState) -> torch.Tensor:
        """Return the button to press now, long ``[b]``."""
        return state.order.gather(1, self._light_index(state)[:, None])[:, 0]

    def _light_index(self, state: OrderState) -> torch.Tensor:
        """Return the position of that button in the order of lights, long ``[b]``."""
        turn = state.pressed.clamp(max=self.config.num_buttons - 1)
        return torch.where(state.reverse, self.config.num_buttons - 1 - turn, turn)

    def _is_dark(self, state: OrderState) -> torch.Tensor:
        """Return which buttons were pressed, bool ``[b, buttons]``."""
        turn = state.order.argsort(1)
        turn = torch.where(state.reverse[:, None], self.config.num_buttons - 1 - turn, turn)
        return turn < state.pressed[:, None]

    def _is_lit(self, state: OrderState) -> torch.Tensor:
        """Return which button is lit now, bool ``[b, buttons]``."""
        return self.is_shown[:, None] & (state.order.argsort(1) == (self.clock // self.config.show_steps)[:, None])
