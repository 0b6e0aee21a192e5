"""The order is shown once: press the buttons one after another as they were lit at the start.

``num_buttons`` buttons of the same look lie around the middle of the table. At the start they light up one after
another, each for ``show_steps`` steps; ``delay`` steps later the hand is free (table.py). A hand that is closed over a
button presses it, and a pressed button is dark from then on. A press out of order ends the episode with score 0, the
last right one with reward 1. The sentence is "press in order", or with ``backwards`` in half of the episodes "press in
reverse": the buttons are then to be pressed in the reverse order.

Memory: the order, log2(num_buttons!) bits; how far one is can be seen. Chance: the order is drawn independently of all
else. Who does not know it has the right first button with probability 1 / n, and the next with 1 / (n - 1) since only
right presses lead on: ``1 / n!`` for all of them, whatever is tried.

Source: ours; a tabletop form of what memory suites for robots call remembering a sequence.
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
    around,
    sentence,
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
    """Actions that an episode may take once the hand is free; then it is truncated, with score 0."""
    num_buttons: int = 3
    """Buttons, all of which are to be pressed."""
    backwards: bool = False
    """Half of the episodes ask for the reverse order, once the hand is free."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_around("num_buttons")

    @property
    def shown(self) -> int:
        """All lights."""
        return self.show_steps * self.num_buttons

    @property
    def ways(self) -> int:
        """One to every button."""
        return self.num_buttons

    @property
    def spec(self) -> WorldSpec:
        """A picture, three words and the hand's state; dx, dy and grip."""
        orders = math.factorial(self.num_buttons)
        return self.spec_of(
            WORDS,
            3,
            events=("light", "button pressed"),
            num_labels=orders,
            bits=arrangement_bits(self.num_buttons, self.num_buttons),
            chance=1 / orders,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> OrderShownOnce:
        """The world, with ``batch_size`` rows."""
        return OrderShownOnce(self, batch_size, seed=seed, device=device)


class OrderState(NamedTuple):
    """What a row of the world is."""

    hand: Hand
    """Where it is."""
    buttons: torch.Tensor
    """float ``[b, buttons, 2]``: places."""
    order: torch.Tensor
    """long ``[b, buttons]``: buttons as they are lit."""
    reverse: torch.Tensor
    """bool ``[b]``: they are asked for in the reverse order."""
    pressed: torch.Tensor
    """long ``[b]``: how many were pressed."""


class OrderShownOnce(Tabletop[OrderState]):
    """The world of :class:`OrderShownOnceConfig`; the rules stand at the top of this file."""

    def __init__(
        self, config: OrderShownOnceConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config, batch_size, seed=seed, device=device)
        self.config = config
        self.places = around(config.num_buttons, 0.62)
        told = [sentence(("press", "in", word), WORDS, 3) for word in ("order", "reverse")]
        self.sentences = torch.tensor(told, device=self.device)

    def begin(self, batch_size: int) -> OrderState:
        """Places and order drawn anew."""
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        reverse = torch.rand(batch_size, generator=self.generator, device=self.device) < 0.5
        return OrderState(
            self.begin_hand(batch_size),
            self.scatter(batch_size, self.places),
            self.shuffled(batch_size, self.config.num_buttons),
            reverse & self.config.backwards,
            zero,
        )

    def act(self, state: OrderState, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Move and press."""
        hand = self.move(state.hand, free, actions)
        distance = (state.buttons - hand.place[:, None]).norm(dim=2).masked_fill(self._is_dark(state), torch.inf)
        touched = distance.argmin(1)
        presses = hand.closed & (distance.amin(1) < REACH)
        right = presses & (touched == self._next(state))
        pressed = state.pressed + right
        done = pressed == self.config.num_buttons
        score = (right & done).float()
        return Advance(state._replace(hand=hand, pressed=pressed), score, (presses & ~right) | done, score)

    def observe(self, state: OrderState) -> dict[str, torch.Tensor]:
        """Buttons, the light and the hand; the sentence, which says nothing of the order before the hand is free."""
        b = len(state.pressed)
        plain, dark, light = (torch.tensor(colour, device=self.device) for colour in (COLOURS["blue"], DARK, LIGHT))
        colour = torch.where(self._is_dark(state)[..., None], dark, plain)
        colour = torch.where(self._is_lit(state)[..., None], light, colour)
        always = torch.ones(b, self.config.num_buttons, dtype=torch.bool, device=self.device)
        image = self.paint(state.hand, [Shapes("disc", BUTTON, state.buttons, colour, always)])
        told = self.sentences[(state.reverse & self.is_free).long()]
        return {"image": image, "language": told, "state": self.state_of(state.hand)}

    def plan(self, state: OrderState) -> torch.Tensor:
        """To the next button, closed when it is there and open on the way."""
        rows = torch.arange(len(state.pressed), device=self.device)
        return self.press(state.hand, state.buttons[rows, self._next(state)])

    def look(self, state: OrderState) -> Truth:
        """Where to go depends on when the next button was lit; the label is the order."""
        decides = self.is_free & ~self.over
        start = self._turn(state) * self.config.show_steps
        event = torch.where(self.is_shown, 0, torch.where(state.pressed > 0, 1, -1))
        label = torch.where(~self.is_shown & ~self.over, arrangement_number(state.order), -1)
        return Truth(
            event, torch.where(decides, start, -1), torch.where(decides, start + self.config.show_steps, -1), label
        )

    def _next(self, state: OrderState) -> torch.Tensor:
        """The button that is to be pressed now, long ``[b]``."""
        return state.order.gather(1, self._turn(state)[:, None])[:, 0]

    def _turn(self, state: OrderState) -> torch.Tensor:
        """When the button was lit that is to be pressed now: first, second, ...; long ``[b]``."""
        turn = state.pressed.clamp(max=self.config.num_buttons - 1)
        return torch.where(state.reverse, self.config.num_buttons - 1 - turn, turn)

    def _is_dark(self, state: OrderState) -> torch.Tensor:
        """Buttons that were pressed, bool ``[b, buttons]``."""
        turn = state.order.argsort(1)
        turn = torch.where(state.reverse[:, None], self.config.num_buttons - 1 - turn, turn)
        return turn < state.pressed[:, None]

    def _is_lit(self, state: OrderState) -> torch.Tensor:
        """The button that is lit now, bool ``[b, buttons]``."""
        return self.is_shown[:, None] & (state.order.argsort(1) == (self.clock // self.config.show_steps)[:, None])
