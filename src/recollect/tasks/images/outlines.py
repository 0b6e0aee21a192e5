"""Outlines of shapes as signed distances: negative inside, 0 on the edge and positive outside.

    f(x, y)     x to the right, y down, about 1 from the middle to the far end of a shape

They are exact or nearly so within a pixel or two of the edge, so an edge can be smoothed: ``0.5 - f / pixel``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from recollect.lazy import torch


def disc(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a disc."""
    return torch.hypot(x, y) - 0.8


def square(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a square."""
    return torch.maximum(x.abs(), y.abs()) - 0.7


def triangle(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to an equilateral triangle with a corner up."""
    half = math.sqrt(3) / 2
    return torch.maximum(torch.maximum(half * x - y / 2, -half * x - y / 2), y) - 0.47


def star(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a star of five points, one of them up; an edge is a line in polar form."""
    outer, inner, tenth = 1.0, 0.42, math.pi / 5
    angle = (torch.atan2(x, -y) % (2 * tenth)).sub(tenth).abs().neg() + tenth  # folded: 0 at a point, tenth at a notch
    edge = outer * inner * math.sin(tenth) / (inner * (tenth - angle).sin() + outer * angle.sin())
    return (torch.hypot(x, y) - edge) * 0.6


def cross(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to two crossed bars."""
    x, y = x.abs(), y.abs()
    return torch.minimum(torch.maximum(x - 0.28, y - 0.9), torch.maximum(x - 0.9, y - 0.28))


def ring(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a disc with a hole."""
    return (torch.hypot(x, y) - 0.62).abs() - 0.22


def bar(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a horizontal bar."""
    return torch.maximum(x.abs() - 1.0, y.abs() - 0.32)


def crescent(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the signed distance to a disc minus another one, open to the right."""
    return torch.maximum(torch.hypot(x, y) - 0.9, 0.7 - torch.hypot(x - 0.45, y))


_ALL = (disc, square, triangle, star, cross, ring, bar, crescent)  # in the order of their labels
OUTLINES: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {one.__name__: one for one in _ALL}
