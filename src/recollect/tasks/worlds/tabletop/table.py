"""The table, the hand and the picture that all tabletop worlds share.

The table is the square [-1, 1] x [-1, 1]; x points right, y down, as in the picture. An action has three numbers in
[-1, 1]: dx, dy (in units of ``speed``) and grip, which is closed above 0. The hand goes first, then grips.

**An episode has two parts.** For the first ``locked`` steps the arm does not move, whatever is asked of it, and the
hand is drawn in grey: something is shown, and hidden again. Then the hand turns white and is free. So nothing that an
agent does while it sees the secret leaves a trace in the world, and what a policy without memory can see afterwards
does not depend on the secret: its ceiling is exact. (An agent that is shown its own last action could pass it on
from step to step; what is said of policies without memory holds for those that see the picture and the words.)

An observation has a picture, a sentence and the hand's own state (x, y, closed or not), as robots have it.
Pictures are ``side`` x ``side`` pixels with soft edges, so that places are to be seen finer than a pixel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from recollect.config import require
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec

HOME = (0.0, 0.9)
"""Where the hand begins."""
REACH = 0.2
"""The hand takes hold of what is nearer than this."""
SURE = 0.1
"""The oracle grips, or lets go, when it will be nearer than this."""
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
"""Of what lies on the table, by their words."""
JITTER = 0.08
"""Things at fixed places are off them by up to this, along each axis."""

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class TabletopConfig(WorldConfig):
    """What all tabletop worlds have."""

    show_steps: int = 2
    """Steps at which the secret, or each part of it, is to be seen."""
    delay: int = 8
    """Steps between what was shown and the first that the hand is free."""
    slack: int = 40
    """Actions that an episode may take once the hand is free; then it is truncated, with score 0."""
    speed: float = 0.2
    """Most that the hand moves in a step; the table is 2 wide."""
    side: int = 32
    """Pixels along a side of the picture."""

    def __post_init__(self) -> None:
        require(self.show_steps >= 1, "show_steps", self.show_steps, "give at least 1, or nothing could be known")
        require(self.delay >= 0, "delay", self.delay, "give at least 0 steps")
        remedy = "give a part of the table, more than 0 and at most 1"
        require(0 < self.speed <= 1, "speed", self.speed, remedy)
        needed = self.steps_needed
        require(self.slack >= needed, "slack", self.slack, f"with speed={self.speed} give at least {needed}")
        require(self.side >= 20, "side", self.side, "give at least 20 pixels, or nothing can be told apart")

    def require_around(self, field: str) -> None:
        """Raise ``ValueError`` unless so many things have room around the middle."""
        count = getattr(self, field)
        require(2 <= count <= 6, field, count, "give 2 to 6, or they touch")

    @property
    def shown(self) -> int:
        """Steps at which the secret, all of it, is to be seen."""
        return self.show_steps

    @property
    @abstractmethod
    def ways(self) -> int:
        """Ways across the table that an episode asks for."""

    @property
    def locked(self) -> int:
        """Steps before the hand is free."""
        return self.shown + self.delay

    @property
    def steps_needed(self) -> int:
        """Enough for the best policy."""
        return self.ways * (math.ceil(2 * math.sqrt(2) / self.speed) + 2)

    @property
    def max_steps(self) -> int:
        """Actions of the longest episode."""
        return self.locked + self.slack

    def spec_of(
        self,
        vocabulary: tuple[str, ...],
        num_words: int,
        *,
        events: tuple[str, ...],
        num_labels: int,
        bits: float,
        chance: float,
    ) -> WorldSpec:
        """The spec, with picture, sentence and the hand's own state seen, and dx, dy and grip acted.

        Args:
            vocabulary: of the sentences.
            num_words: of a sentence.
            events: names of them.
            num_labels: secrets that there may be.
            bits: of the secret.
            chance: success without it.
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
    """The hand, the same in all tabletop worlds."""

    place: torch.Tensor
    """float ``[b, 2]``: x and y."""
    closed: torch.Tensor
    """bool ``[b]``."""


class Shapes(NamedTuple):
    """k things of one form in each picture."""

    form: str
    """``disc``, ``square`` or ``ring``."""
    radius: float
    """Half of their width."""
    place: torch.Tensor
    """float ``[b, k, 2]``."""
    colour: torch.Tensor
    """uint8 or float ``[b, k, 3]``."""
    visible: torch.Tensor
    """bool ``[b, k]``."""


def sentence(words: tuple[str, ...], vocabulary: tuple[str, ...], length: int) -> list[int]:
    """Numbers of words, 0 behind the last."""
    return [vocabulary.index(word) for word in words] + [0] * (length - len(words))


def around(count: int, radius: float) -> torch.Tensor:
    """``count`` places on a circle, none of them at :data:`HOME`: float ``[count, 2]``."""
    turn = 2 * math.pi * (torch.arange(count) + 0.5) / count + math.pi / 2
    return radius * torch.stack((turn.cos(), turn.sin()), 1)


class Tabletop(TensorWorld[S]):
    """The hand's movements, the oracle's way, and the picture.

    Args:
        config: settings.
        batch_size: rows.
        seed: of the world.
        device: where it lives.
    """

    def __init__(
        self, config: TabletopConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.settings = config
        self.pixel = 2.2 / config.side  # the picture shows a little more than the table
        self.centers = (torch.arange(config.side, device=self.device) + 0.5) * self.pixel - 1.1

    @abstractmethod
    def act(self, state: S, free: torch.Tensor, actions: torch.Tensor) -> Advance:
        """As ``advance``, with actions within bounds and where the hand is free: bool ``[b]``."""

    def advance(self, state: S, actions: torch.Tensor) -> Advance:
        """Move, where the hand is free."""
        return self.act(state, self.clock >= self.settings.locked, actions.float().nan_to_num().clamp(-1, 1))

    @property
    def is_free(self) -> torch.Tensor:
        """Rows whose hand does as it is told from now on, bool ``[b]``."""
        return self.clock >= self.settings.locked

    @property
    def is_shown(self) -> torch.Tensor:
        """Rows that show their secret, bool ``[b]``."""
        return self.clock < self.settings.shown

    def begin_hand(self, batch_size: int) -> Hand:
        """Open, and at home."""
        place = torch.tensor(HOME, device=self.device).repeat(batch_size, 1)
        return Hand(place, torch.zeros(batch_size, dtype=torch.bool, device=self.device))

    def move(self, hand: Hand, free: torch.Tensor, actions: torch.Tensor) -> Hand:
        """The hand after an action."""
        place = (hand.place + self.settings.speed * actions[:, :2]).clamp(-1, 1)
        return Hand(torch.where(free[:, None], place, hand.place), free & (actions[:, 2] > 0))

    def scatter(self, batch_size: int, places: torch.Tensor, spread: float = JITTER) -> torch.Tensor:
        """Places ``[k, 2]``, each a little off: ``[b, k, 2]``."""
        noise = torch.rand(batch_size, *places.shape, generator=self.generator, device=self.device)
        return places.to(self.device) + spread * (2 * noise - 1)

    def shuffled(self, batch_size: int, count: int) -> torch.Tensor:
        """Each row a permutation: long ``[b, count]``."""
        return torch.rand(batch_size, count, generator=self.generator, device=self.device).argsort(1)

    def go(self, hand: Hand, target: torch.Tensor, grip: torch.Tensor) -> torch.Tensor:
        """The action ``[b, 3]`` that leads straight to ``target [b, 2]`` with a grip: -1 or 1, float ``[b]``."""
        way = (target - hand.place) / self.settings.speed
        way = way / way.norm(dim=1, keepdim=True).clamp(min=1)
        return torch.cat((way, grip[:, None]), 1)

    def arrives(self, hand: Hand, target: torch.Tensor) -> torch.Tensor:
        """Whether the next step of :meth:`go` ends near enough, bool ``[b]``."""
        return (target - hand.place).norm(dim=1) <= self.settings.speed + SURE

    def press(self, hand: Hand, target: torch.Tensor) -> torch.Tensor:
        """The action that closes the hand over ``target [b, 2]``, open on the way; none while the hand is not free."""
        return self.wait_while_locked(self.go(hand, target, torch.where(self.arrives(hand, target), 1.0, -1.0)))

    def wait_while_locked(self, actions: torch.Tensor) -> torch.Tensor:
        """Nothing at all, where the hand is not free."""
        return torch.where(self.is_free[:, None], actions, 0.0)

    def state_of(self, hand: Hand) -> torch.Tensor:
        """What the hand knows of itself: x, y, and 1 where it is closed, else -1; float ``[b, 3]``."""
        return torch.cat((hand.place, 2 * hand.closed[:, None].float() - 1), 1)

    def paint(self, hand: Hand, things: list[Shapes], ground: torch.Tensor | None = None) -> torch.Tensor:
        """The picture: uint8 ``[b, side, side, 3]``.

        Args:
            hand: on top of all.
            things: each lies over those before it.
            ground: what lies below all, as :meth:`ground` gave it; None: the table.
        """
        b = len(hand.closed)
        images = self.ground([]) if ground is None else ground
        images = images.expand(b, -1, -1, -1)
        for thing in (*things, *self._hand(hand)):
            images = self._over(images, thing)
        return images.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()

    def ground(self, things: list[Shapes]) -> torch.Tensor:
        """The table with things that never move, in one picture: float ``[1, 3, side, side]``."""
        image = torch.tensor(TABLE, device=self.device, dtype=torch.float32)[None, :, None, None]
        image = image.expand(1, 3, len(self.centers), len(self.centers))
        for thing in things:
            image = self._over(image, thing)
        return image

    def _hand(self, hand: Hand) -> list[Shapes]:
        b = len(hand.closed)
        grey, white = (torch.tensor(colour, device=self.device) for colour in (GREY, WHITE))
        colour = torch.where(self.is_free[:, None], white, grey)[:, None]
        place = hand.place[:, None]
        always = torch.ones(b, 1, dtype=torch.bool, device=self.device)
        return [
            Shapes("ring", 0.12, place, colour, always),
            Shapes("disc", 0.09, place, colour, hand.closed[:, None]),
        ]

    def _over(self, images: torch.Tensor, thing: Shapes) -> torch.Tensor:
        """Images ``[b, 3, y, x]`` with things over them; where these overlap they mix."""
        cover = self._cover(thing.form, thing.radius, thing.place) * thing.visible[..., None, None]  # b k y x
        whole = cover.sum(1, keepdim=True)
        cover, whole = cover / whole.clamp(min=1), whole.clamp(max=1)
        paint = torch.einsum("bkc,bkyx->bcyx", thing.colour.to(cover.dtype).expand(len(cover), -1, -1), cover)
        return images * (1 - whole) + paint

    def _cover(self, form: str, radius: float, place: torch.Tensor) -> torch.Tensor:
        """How much of every pixel a thing covers: float ``[b, k, y, x]`` in [0, 1]."""
        x = (self.centers - place[..., :1])[:, :, None]  # b k 1 x
        y = (self.centers - place[..., 1:])[..., None]  # b k y 1
        distance = torch.maximum(x.abs(), y.abs()) if form == "square" else (x.square() + y.square()).sqrt()
        inside = ((radius - distance) / self.pixel + 0.5).clamp(0, 1)
        if form != "ring":
            return inside
        return inside - ((radius - 1.2 * self.pixel - distance) / self.pixel + 0.5).clamp(0, 1)


def colours_of(names: tuple[str, ...], device: torch.device) -> torch.Tensor:
    """RGB values of names, ``[k, 3]``."""
    return torch.tensor([COLOURS[name] for name in names], device=device)
