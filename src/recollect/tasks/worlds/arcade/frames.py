"""Frames of a small game: grey pictures on a grid of 42 x 42 units, and the boxes of the things in them.

A game is played in units; a frame of 42, 84, 126, ... pixels a side shows a unit as 1, 4, 9, ... pixels, so that the
same game is seen at every size. A thing is a :class:`Sprite`, placed by its top left unit. Where things lie over each
other, the brightest is seen.

Source: ours. Size and grey bytes are those of Mnih et al. (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Scene

UNITS = 42
"""Units along one side of the field."""
UP, DOWN, LEFT, RIGHT = range(4)
"""Actions of whatever moves in two directions."""
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns of these actions."""
STEPS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
"""Rows and columns a frame of things that run about."""


@dataclass(frozen=True)
class Sprite:
    """How a thing looks."""

    rows: tuple[str, ...]
    """Of equal length, a character a unit; a space is see-through."""
    grey: int = 255
    """0 black to 255 white."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in units."""
        return len(self.rows), len(self.rows[0])


BALL = Sprite((" # ", "###", " # "))
"""Of every game with balls; 3 x 3 units."""


def observation_space(side: int) -> gymnasium.spaces.Box:
    """One grey frame: uint8 ``[1, side, side]``.

    Raises:
        ValueError: a side that is no multiple of 42 pixels.
    """
    if side < UNITS or side % UNITS:
        raise ValueError(f"side={side}: frames have {UNITS}, {2 * UNITS} or another multiple of {UNITS} pixels a side")
    return gymnasium.spaces.Box(0, 255, (1, side, side), np.uint8)


class Painter:
    """Draws the same things again and again, at new places.

    Args:
        side: pixels along one side of a frame.
        sprites: the things.
        device: where.
    """

    def __init__(self, side: int, sprites: Sequence[Sprite], device: torch.device) -> None:
        self.side, self.unit = side, side // UNITS
        self.sprites = sprites
        masks = [self._pixels(sprite) for sprite in sprites]
        offsets = [mask.nonzero() @ torch.tensor([side, 1]) for mask in masks]
        counts = torch.tensor([len(offset) for offset in offsets])
        self.offsets = torch.cat(offsets).to(device)  # of every lit pixel, from the top left one of its sprite
        self.whose = torch.arange(len(sprites)).repeat_interleave(counts).to(device)
        self.own_greys = torch.tensor([sprite.grey for sprite in sprites], dtype=torch.uint8, device=device)
        self.sizes = torch.tensor([sprite.size for sprite in sprites], device=device) * self.unit
        self.device = device

    def draw(self, places: torch.Tensor, greys: torch.Tensor) -> torch.Tensor:
        """Frames.

        Args:
            places: long ``[b, things, 2]``, top left unit (y, x) of every thing, inside the field.
            greys: uint8 ``[b, things]``; 0 hides a thing.

        Returns:
            uint8 ``[b, 1, side, side]``.
        """
        b = len(places)
        frames = torch.zeros(b, self.side * self.side, dtype=torch.uint8, device=self.device)
        corners = (places[..., 0] * self.side + places[..., 1]) * self.unit
        pixels = corners.index_select(1, self.whose) + self.offsets
        return frames.scatter_reduce_(1, pixels, greys.index_select(1, self.whose), "amax").view(
            b, 1, self.side, self.side
        )

    def sprite_greys(self, batch_size: int) -> torch.Tensor:
        """The sprites' own greys, to be changed: uint8 ``[b, things]``."""
        return self.own_greys.repeat(batch_size, 1)

    def scene(self, places: torch.Tensor, visible: torch.Tensor, matters: torch.Tensor) -> Scene:
        """The boxes of the things, in pixels."""
        corners = places * self.unit
        return Scene(torch.cat([corners, corners + self.sizes], -1), visible, matters)

    def _pixels(self, sprite: Sprite) -> torch.Tensor:
        lit = torch.tensor([[mark != " " for mark in row] for row in sprite.rows])
        return lit.repeat_interleave(self.unit, 0).repeat_interleave(self.unit, 1)


def bounce(phase: torch.Tensor, span: int) -> torch.Tensor:
    """Where a thing is that runs to and fro between 0 and ``span - 1``, resting a step at each end.

    Args:
        phase: long, any; the way it has come.
        span: number of places.

    Returns:
        long in 0..span - 1. All places are equally likely if all phases are, after any number of steps.
    """
    phase = phase % (2 * span)
    return torch.minimum(phase, 2 * span - 1 - phase)


def towards(way: torch.Tensor) -> torch.Tensor:
    """The action that goes a way ``[b, 2]`` (rows, columns), its longer half first: long ``[b]``."""
    down, right = way.unbind(1)
    vertical = torch.where(down > 0, DOWN, UP)
    level = torch.where(right > 0, RIGHT, LEFT)
    return torch.where(down.abs() >= right.abs(), vertical, level)
