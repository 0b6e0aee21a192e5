"""Shapes: classify a coloured shape in front of a lit, striped and cluttered background, one of eight.

    scene       a background colour, lighter above; a wave of stripes; ``clutter`` short strokes of any colour; in front
                one shape, rotated by up to 20 degrees, lighter than the background
    picture     a scene at any size: the same draws at 64 and at 128 pixels are the same scene
    foreground  the pixels whose centre lies inside the shape's outline, exactly

    pair        the same picture twice, or two scenes that share nothing but their shape, its size, place and angle

Edges are smoothed over a pixel. Every batch has fresh scenes.

Source: ours, because photographs lack an exact foreground and the same scene at another resolution. Scores on it do not
compare with those of a published set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recollect.config import require, require_one_of
from recollect.lazy import torch
from recollect.tasks.images.contract import ImageTask, Pictures
from recollect.tasks.images.outlines import OUTLINES

SCALES = (0.42, 0.68)  # of a shape, in halves of the picture
TURN = math.radians(20)
COLOURS = (0.1, 0.5)  # of the background, in every channel
LIGHTER = (0.25, 0.5)  # the shape's colour, in every channel
STROKES = {"length": (0.02, 0.18), "width": (0.03, 0.07)}
STROKE_NUMBERS = 8  # x, y, angle, length, width, three colours
SCENE_NUMBERS = 17
SHAPE_NUMBERS = slice(8, 12)  # of a scene: size, place and angle of its shape
LIGHT_NUMBER = 15  # of a scene: direction of the light


@dataclass(frozen=True, kw_only=True)
class Shapes(ImageTask):
    """Classify eight shapes in front of a cluttered background (ours, drawn on the fly)."""

    clutter: int = 8
    """Strokes in the background."""
    light: Literal["above", "any-side"] = "above"
    """Side of the light. From above, a turned picture is known by its light alone."""
    pair: Literal["same-picture", "same-shape"] = "same-picture"
    """Pair for learning without labels: a picture twice, or two scenes whose colours, light, stripes and strokes are
    drawn apart, so that the shape alone tells which pictures belong together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clutter >= 0, "clutter", self.clutter, "give 0 strokes or more")
        require_one_of(self, "light", "pair")

    @property
    def num_classes(self) -> int:
        """Number of classes of pictures."""
        return len(OUTLINES)

    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw scenes with their foreground."""
        labels = torch.randint(self.num_classes, (batch_size,), generator=generator)
        return draw(labels, *self._draw_scenes(batch_size, generator), self.size, self.light)

    def picture_pairs(self, batch_size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the pairs that ``pair`` names."""
        if self.pair == "same-picture":
            return super().picture_pairs(batch_size, generator)
        labels = torch.randint(self.num_classes, (batch_size,), generator=generator)
        one, other = (self._draw_scenes(batch_size, generator) for _ in range(2))
        other[0][SHAPE_NUMBERS] = one[0][SHAPE_NUMBERS]
        first, second = (draw(labels, *scenes, self.size, self.light).images for scenes in (one, other))
        return first, second

    @property
    def training_aids(self) -> tuple[str, ...]:
        """What a pair of two scenes gives away."""
        return ("pairs share their shape alone",) if self.pair == "same-shape" else ()

    def _draw_scenes(self, batch_size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the numbers of scenes and of their strokes."""
        scene = torch.rand(SCENE_NUMBERS, batch_size, 1, 1, generator=generator)
        return scene, torch.rand(self.clutter, STROKE_NUMBERS, batch_size, 1, 1, generator=generator)


def draw(
    labels: torch.Tensor,
    scene: torch.Tensor,
    strokes: torch.Tensor,
    size: int,
    light: Literal["above", "any-side"] = "above",
) -> Pictures:
    """Render scenes of shapes as pictures.

    Args:
        labels: long ``[b]``.
        scene: numbers 0..1, ``[SCENE_NUMBERS, b, 1, 1]``.
        strokes: numbers 0..1, ``[clutter, STROKE_NUMBERS, b, 1, 1]``.
        size: pixels of a side.
        light: its side.
    """
    pixel = 2 / size
    places = (torch.arange(size) + 0.5) * pixel - 1
    x, y = places.expand(1, 1, size), places[:, None].expand(1, size, 1)
    numbers = iter(scene)
    colour = torch.stack([_between(COLOURS, next(numbers)) for _ in range(3)], 1)  # b 3 1 1
    side = 2 * math.pi * scene[LIGHT_NUMBER] if light == "any-side" else None
    images = _background(x, y, colour, numbers, side)
    for stroke in strokes:
        sx, sy, angle, length, width, *paint = stroke
        cover = _cover(_stroke_distance(x - 2 * sx + 1, y - 2 * sy + 1, math.pi * angle, length, width), pixel)
        images = torch.lerp(images, torch.stack(paint, 1), cover[:, None])
    distance = _shape_distance(x, y, labels, numbers)
    lighter = torch.stack([_between(LIGHTER, next(numbers)) for _ in range(3)], 1)
    images = torch.lerp(images, colour + lighter, _cover(distance, pixel)[:, None])
    return Pictures(images.clamp(0, 1), labels, distance <= 0)


def _background(
    x: torch.Tensor,
    y: torch.Tensor,
    colour: torch.Tensor,
    numbers: Iterator[torch.Tensor],
    side: torch.Tensor | None,
) -> torch.Tensor:
    """Render light from above (``side`` None) or from an angle, and a wave: ``[b, 3, y, x]``."""
    light = 0.15 + 0.25 * next(numbers)
    angle, frequency = math.pi * next(numbers), 4 + 10 * next(numbers)
    phase, height = 2 * math.pi * next(numbers), 0.04 + 0.1 * next(numbers)
    wave = height * (frequency * (angle.cos() * x + angle.sin() * y) + phase).sin()
    away = y if side is None else side.cos() * x + side.sin() * y
    return colour * (1 - light * away)[:, None] + wave[:, None]


def _shape_distance(
    x: torch.Tensor, y: torch.Tensor, labels: torch.Tensor, numbers: Iterator[torch.Tensor]
) -> torch.Tensor:
    """Return the distance of every pixel to the edge of its picture's shape, ``[b, y, x]``; negative inside."""
    scale = _between(SCALES, next(numbers))
    free = 1 - scale
    dx, dy = free * (2 * next(numbers) - 1), free * (2 * next(numbers) - 1)
    turn = TURN * (2 * next(numbers) - 1)
    px, py = (x - dx) / scale, (y - dy) / scale
    px, py = turn.cos() * px + turn.sin() * py, turn.cos() * py - turn.sin() * px
    distance = torch.empty_like(px)
    for label, outline in enumerate(OUTLINES.values()):
        rows = labels == label
        distance[rows] = outline(px[rows], py[rows])
    return distance * scale


def _stroke_distance(
    x: torch.Tensor, y: torch.Tensor, angle: torch.Tensor, length: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """Return the distance to a short line with round ends."""
    cos, sin = angle.cos(), angle.sin()
    half = _between(STROKES["length"], length)
    along = cos * x + sin * y
    return torch.hypot(along - along.clamp(min=-half, max=half), cos * y - sin * x) - _between(STROKES["width"], width)


def _cover(distance: torch.Tensor, pixel: float) -> torch.Tensor:
    """Return the share of a pixel inside an outline."""
    return (0.5 - distance / pixel).clamp(0, 1)


def _between(ends: tuple[float, float], share: torch.Tensor) -> torch.Tensor:
    return ends[0] + (ends[1] - ends[0]) * share
