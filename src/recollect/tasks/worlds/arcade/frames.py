"""Frames of small games: grey images on a grid of 42 x 42 units, and the bounding boxes of objects.

A game is computed in units; in a frame of 42, 84, 126, ... pixels a unit is a square of 1, 2, 3, ... pixels, so that
the same game exists in every size. An object is a :class:`Sprite`, placed by its top left unit. Of overlapping objects
the brightest is visible.

Source: ours. Size and grey bytes are those of Mnih et al. (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.config import require
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.contract import Scene

UNITS = 42
"""Side of the field in units."""
UP, DOWN, LEFT, RIGHT = range(4)
"""Actions that move in two dimensions."""
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""(down, right) of these actions."""
STEPS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
"""Possible (down, right) steps per frame of balls and distractors."""


@dataclass(frozen=True)
class Sprite:
    """Shape and colour of an object in a frame."""

    rows: tuple[str, ...]
    """Lines of equal length, one character per unit; a space is transparent."""
    grey: int = 255
    """Grey value, 0 black to 255 white."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in units."""
        return len(self.rows), len(self.rows[0])


BALL = Sprite((" # ", "###", " # "))
"""The ball of all games, 3 x 3 units."""


def require_side(side: int) -> None:
    """Refuse a side of a frame that is no multiple of 42 pixels.

    Raises:
        ValueError: naming the side and the remedy.
    """
    require(side >= UNITS and side % UNITS == 0, "side", side, f"give a multiple of {UNITS} pixels")


def observation_space(side: int) -> gymnasium.spaces.Box:
    """Return the space of one grey frame: uint8 ``[1, side, side]``."""
    return gymnasium.spaces.Box(0, 255, (1, side, side), np.uint8)


class Painter:
    """Draws the same objects at new places.

    Args:
        side: side of a frame in pixels.
        sprites: the objects.
        device: device of the frames.
    """

    def __init__(self, side: int, sprites: Sequence[Sprite], device: torch.device) -> None:
        self.side, self.unit = side, side // UNITS
        self.sprites = sprites
        masks = [self._pixels(sprite) for sprite in sprites]
        offsets = [mask.nonzero() @ torch.tensor([side, 1]) for mask in masks]
        counts = torch.tensor([len(offset) for offset in offsets])
        self.offsets = torch.cat(offsets).to(device)  # of every lit pixel, from the top left one of its sprite
        self.sprite_of_pixel = torch.arange(len(sprites)).repeat_interleave(counts).to(device)
        self.own_greys = torch.tensor([sprite.grey for sprite in sprites], dtype=torch.uint8, device=device)
        self.sizes = torch.tensor([sprite.size for sprite in sprites], device=device) * self.unit
        self.device = device

    def draw(self, places: torch.Tensor, greys: torch.Tensor) -> torch.Tensor:
        """Draw frames, uint8 ``[b, 1, side, side]``.

        Args:
            places: long ``[b, objects, 2]``, top left unit (y, x) of every object, inside the field.
            greys: uint8 ``[b, objects]``; 0 hides an object.
        """
        b = len(places)
        frames = torch.zeros(b, self.side * self.side, dtype=torch.uint8, device=self.device)
        corners = (places[..., 0] * self.side + places[..., 1]) * self.unit
        pixels = corners.index_select(1, self.sprite_of_pixel) + self.offsets
        return frames.scatter_reduce_(1, pixels, greys.index_select(1, self.sprite_of_pixel), "amax").view(
            b, 1, self.side, self.side
        )

    def sprite_greys(self, batch_size: int) -> torch.Tensor:
        """Return a copy of the sprites' grey values: uint8 ``[b, objects]``."""
        return self.own_greys.repeat(batch_size, 1)

    def scene(self, places: torch.Tensor, visible: torch.Tensor, matters: torch.Tensor) -> Scene:
        """Return the bounding boxes of the objects in pixels."""
        corners = places * self.unit
        return Scene(torch.cat([corners, corners + self.sizes], -1), visible, matters)

    def _pixels(self, sprite: Sprite) -> torch.Tensor:
        lit = torch.tensor([[mark != " " for mark in row] for row in sprite.rows])
        return lit.repeat_interleave(self.unit, 0).repeat_interleave(self.unit, 1)


def bounce(phase: torch.Tensor, span: int) -> torch.Tensor:
    """Return the position of an object that moves between 0 and ``span - 1`` and rests one step at each end.

    Args:
        phase: distance travelled, any long.
        span: number of positions.

    Returns:
        long in 0..span - 1. Uniform phases give uniform positions, after any number of steps.
    """
    phase = phase % (2 * span)
    return torch.minimum(phase, 2 * span - 1 - phase)


def action_towards(way: torch.Tensor) -> torch.Tensor:
    """Return the action along the longer component of an offset ``[b, 2]`` (rows, columns): long ``[b]``."""
    down, right = way.unbind(1)
    vertical = torch.where(down > 0, DOWN, UP)
    level = torch.where(right > 0, RIGHT, LEFT)
    return torch.where(down.abs() >= right.abs(), vertical, level)
