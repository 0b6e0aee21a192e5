"""Base of the tabletop worlds: the table, the hand and the drawing.

The table is the square [-1, 1] x [-1, 1]; x points right, y down, as in the image. An action has three numbers in [-1,
1]: dx, dy (in units of ``speed``) and grip, which is closed above 0. Larger numbers are clipped, and NaN is 0. The hand
moves first, then grips.

**An episode has two parts.** For the first ``locked_steps`` steps the hand ignores actions and is drawn in grey, while
something is shown and hidden again. Then the hand turns white and is unlocked. So actions cannot record the secret in
the world, later observations do not depend on it, and the score of a policy without memory is known exactly. (This
holds for policies that see the image and the words; an agent that observes its own last action could pass the secret
on.)

An observation has an image, a sentence and the state of the hand (x, y, closed or not), as robots have it. Images have
``side`` x ``side`` pixels with soft edges, so that positions are visible more finely than a pixel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from recollect.config import require, require_at_least
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec

HOME = (0.0, 0.9)
"""Start of the hand."""
REACH = 0.2
"""Largest distance at which the hand grips an object."""
ORACLE_REACH = 0.1
"""Distance at which the oracle grips or releases."""
TABLE = (40, 36, 48)
GREY, WHITE, LIGHT = (120, 120, 120), (255, 255, 255), (255, 230, 60)
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (230, 50, 50),
    "blue": (70, 90, 255),
    "green": (40, 190, 80),
    "violet": (170, 60, 220),
    "orange": (245, 140, 20),
    "cyan": (40, 200, 220),
}
"""Colours of objects, by name."""
JITTER = 0.08
"""Largest random offset of an object along each axis."""

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class TabletopConfig(WorldConfig):
    """Settings of all tabletop worlds."""

    show_steps: int = 2
    """Steps at which the secret, or each part of it, is visible."""
    delay: int = 8
    """Steps between the display and the unlocking of the hand."""
    slack: int = 40
    """Actions after the hand is unlocked; then the episode is truncated, with score 0."""
    speed: float = 0.2
    """Largest movement of the hand per step; the table is 2 wide."""
    side: int = 32
    """Side of the image in pixels."""

    def __post_init__(self) -> None:
        require(0 < self.speed <= 1, "speed", self.speed, "give more than 0 and at most 1")
        require_at_least(self, show_steps=1, delay=0, slack=self.steps_needed, side=20)

    def require_object_count(self, field: str) -> None:
        """Raise ``ValueError`` unless that many objects fit on a circle."""
        count = getattr(self, field)
        require(2 <= count <= 6, field, count, "give 2 to 6: more would touch")

    @property
    def shown_steps(self) -> int:
        """Steps at which any part of the secret is visible."""
        return self.show_steps

    @property
    @abstractmethod
    def num_targets(self) -> int:
        """Number of places that the hand must reach."""

    @property
    def locked_steps(self) -> int:
        """Steps before the hand is unlocked."""
        return self.shown_steps + self.delay

    @property
    def steps_needed(self) -> int:
        """Upper bound of the oracle's actions after unlocking."""
        return self.num_targets * (math.ceil(2 * math.sqrt(2) / self.speed) + 2)

    @property
    def max_steps(self) -> int:
        """Actions of the longest episode."""
        return self.locked_steps + self.slack

    def build_spec(
        self,
        vocabulary: tuple[str, ...],
        num_words: int,
        *,
        events: tuple[str, ...],
        num_labels: int,
        bits: float,
        chance: float,
    ) -> WorldSpec:
        """Return the spec of a world with image, sentence and hand, and the actions dx, dy and grip.

        Args:
            vocabulary: words of the sentences.
            num_words: words per sentence.
            events: names of events.
            num_labels: number of possible secrets.
            bits: size of the secret in bits.
            chance: score of a policy without memory.
        """
        image = gymnasium.spaces.Box(0, 255, (self.side, self.side, 3), np.uint8)
        language = gymnasium.spaces.MultiDiscrete([len(vocabulary)] * num_words)
        hand = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        return WorldSpec(
            observation_space=gymnasium.spaces.Dict({"image": image, "language": language, "state": hand}),
            action_space=gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32),
            max_steps=self.max_steps,
            memory_span=self.max_steps - 1,
            chance=chance,
            oracle=1.0,
            events=events,
            words=vocabulary,
            num_labels=num_labels,
            bits=bits,
        )


class Hand(NamedTuple):
    """Position and grip of the hand above the table."""

    place: torch.Tensor  # float [b, 2]: x and y
    closed: torch.Tensor  # bool [b]


class Shapes(NamedTuple):
    """k objects of one form per image."""

    form: str  # disc, square or ring
    radius: float  # Half of their width
    place: torch.Tensor  # float [b, k, 2]
    colour: torch.Tensor  # uint8 or float [b, k, 3]
    visible: torch.Tensor  # bool [b, k]


def encode_sentence(words: tuple[str, ...], vocabulary: tuple[str, ...], length: int) -> list[int]:
    """Return the numbers of words, padded with 0."""
    return [vocabulary.index(word) for word in words] + [0] * (length - len(words))


def points_on_circle(count: int, radius: float) -> torch.Tensor:
    """Return ``count`` points on a circle, none of them at :data:`HOME`: float ``[count, 2]``."""
    turn = 2 * math.pi * (torch.arange(count) + 0.5) / count + math.pi / 2
    return radius * torch.stack((turn.cos(), turn.sin()), 1)


class Tabletop(TensorWorld[S]):
    """Base of the tabletop worlds: movements of the hand, actions of the oracle, and drawing."""

    def __init__(
        self, config: TabletopConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.settings = config
        self.pixel = 2.2 / config.side  # the picture shows a little more than the table
        self.centers = (torch.arange(config.side, device=self.device) + 0.5) * self.pixel - 1.1

    @abstractmethod
    def act(self, state: S, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """Return the state after actions within bounds; ``free`` is bool ``[b]``: the hand is unlocked."""

    def advance(self, state: S, actions: torch.Tensor) -> Advance:
        """Move, where the hand is unlocked."""
        return self.act(state, self.clock >= self.settings.locked_steps, actions.float().nan_to_num().clamp(-1, 1))

    @property
    def is_free(self) -> torch.Tensor:
        """Rows whose hand is unlocked, bool ``[b]``."""
        return self.clock >= self.settings.locked_steps

    @property
    def is_shown(self) -> torch.Tensor:
        """Rows in which the secret is visible, bool ``[b]``."""
        return self.clock < self.settings.shown_steps

    def begin_hand(self, batch_size: int) -> Hand:
        """Return open hands at their start."""
        place = torch.tensor(HOME, device=self.device).repeat(batch_size, 1)
        return Hand(place, torch.zeros(batch_size, dtype=torch.bool, device=self.device))

    def move(self, hand: Hand, free: torch.Tensor, actions: torch.Tensor) -> Hand:
        """Return the hand after an action."""
        place = (hand.place + self.settings.speed * actions[:, :2]).clamp(-1, 1)
        return Hand(torch.where(free[:, None], place, hand.place), free & (actions[:, 2] > 0))

    def jitter(self, batch_size: int, places: torch.Tensor, spread: float = JITTER) -> torch.Tensor:
        """Add a random offset to the places ``[k, 2]``: ``[b, k, 2]``."""
        noise = torch.rand(batch_size, *places.shape, generator=self.generator, device=self.device)
        return places.to(self.device) + spread * (2 * noise - 1)

    def random_orders(self, batch_size: int, count: int) -> torch.Tensor:
        """Draw a random permutation per row: long ``[b, count]``."""
        return torch.rand(batch_size, count, generator=self.generator, device=self.device).argsort(1)

    def move_action(self, hand: Hand, target: torch.Tensor, grip: torch.Tensor) -> torch.Tensor:
        """Return the action ``[b, 3]`` that moves straight to ``target [b, 2]`` with grip -1 or 1, float ``[b]``."""
        way = (target - hand.place) / self.settings.speed
        way = way / way.norm(dim=1, keepdim=True).clamp(min=1)
        return torch.cat((way, grip[:, None]), 1)

    def is_close_after_step(self, hand: Hand, target: torch.Tensor) -> torch.Tensor:
        """Return whether the next step of :meth:`move_action` comes close enough, bool ``[b]``."""
        return (target - hand.place).norm(dim=1) <= self.settings.speed + ORACLE_REACH

    def press_action(self, hand: Hand, target: torch.Tensor) -> torch.Tensor:
        """Return the action that goes to ``target [b, 2]`` and closes the hand there; zeros while it is locked."""
        return self.zero_while_locked(
            self.move_action(hand, target, torch.where(self.is_close_after_step(hand, target), 1.0, -1.0))
        )

    def zero_while_locked(self, actions: torch.Tensor) -> torch.Tensor:
        """Replace the actions of locked hands by zeros."""
        return torch.where(self.is_free[:, None], actions, 0.0)

    def hand_state(self, hand: Hand) -> torch.Tensor:
        """Return x, y, and 1 for a closed or -1 for an open hand; float ``[b, 3]``."""
        return torch.cat((hand.place, 2 * hand.closed[:, None].float() - 1), 1)

    def draw(self, hand: Hand, things: list[Shapes], ground: torch.Tensor | None = None) -> torch.Tensor:
        """Draw the images: uint8 ``[b, side, side, 3]``.

        Args:
            hand: drawn on top.
            things: later ones are drawn over earlier ones.
            ground: background from :meth:`draw_background`; None is the empty table.
        """
        b = len(hand.closed)
        images = self.draw_background([]) if ground is None else ground
        images = images.expand(b, -1, -1, -1)
        for thing in (*things, *self._hand_shapes(hand)):
            images = self._draw_over(images, thing)
        return images.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()

    def draw_background(self, things: list[Shapes]) -> torch.Tensor:
        """Draw the table with immobile objects: float ``[1, 3, side, side]``."""
        image = torch.tensor(TABLE, device=self.device, dtype=torch.float32)[None, :, None, None]
        image = image.expand(1, 3, len(self.centers), len(self.centers))
        for thing in things:
            image = self._draw_over(image, thing)
        return image

    def _hand_shapes(self, hand: Hand) -> list[Shapes]:
        b = len(hand.closed)
        grey, white = (torch.tensor(colour, device=self.device) for colour in (GREY, WHITE))
        colour = torch.where(self.is_free[:, None], white, grey)[:, None]
        place = hand.place[:, None]
        always = torch.ones(b, 1, dtype=torch.bool, device=self.device)
        return [
            Shapes("ring", 0.12, place, colour, always),
            Shapes("disc", 0.09, place, colour, hand.closed[:, None]),
        ]

    def _draw_over(self, images: torch.Tensor, thing: Shapes) -> torch.Tensor:
        """Draw objects over images ``[b, 3, y, x]``; overlapping objects mix."""
        cover = self._coverage(thing.form, thing.radius, thing.place) * thing.visible[..., None, None]  # b k y x
        whole = cover.sum(1, keepdim=True)
        cover, whole = cover / whole.clamp(min=1), whole.clamp(max=1)
        mixed = torch.einsum("bkc,bkyx->bcyx", thing.colour.to(cover.dtype).expand(len(cover), -1, -1), cover)
        return images * (1 - whole) + mixed

    def _coverage(self, form: str, radius: float, place: torch.Tensor) -> torch.Tensor:
        """Return the share of every pixel that each object covers: float ``[b, k, y, x]`` in [0, 1]."""
        x = (self.centers - place[..., :1])[:, :, None]  # b k 1 x
        y = (self.centers - place[..., 1:])[..., None]  # b k y 1
        distance = torch.maximum(x.abs(), y.abs()) if form == "square" else (x.square() + y.square()).sqrt()
        inside = ((radius - distance) / self.pixel + 0.5).clamp(0, 1)
        if form != "ring":
            return inside
        return inside - ((radius - 1.2 * self.pixel - distance) / self.pixel + 0.5).clamp(0, 1)


def colour_table(names: tuple[str, ...], device: torch.device) -> torch.Tensor:
    """Return the RGB values of colour names, ``[k, 3]``."""
    return torch.tensor([COLOURS[name] for name in names], device=device)
