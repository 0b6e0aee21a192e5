"""Geometry of square rooms of tiles: neighbours, and visible windows.

Cells of a room of ``side`` x ``side`` tiles are numbered row by row; cell ``side * side`` stands for everything
outside it. Headings and directions go clockwise, from north (up, towards row 0).
"""

from __future__ import annotations

from recollect.lazy import torch

NORTH_EAST_SOUTH_WEST = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""(down, right) of a step in each of the four headings."""
EIGHT_WAYS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""(down, right) of a step in each of the eight directions."""
EIGHT_NAMES = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")


def _cells(side: int, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    inside = (y >= 0) & (y < side) & (x >= 0) & (x < side)
    return torch.where(inside, y * side + x, side * side)


def moves(side: int, directions: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """Return the cell after a step, long ``[side * side, directions]``; the same cell at a wall."""
    cell = torch.arange(side * side)[:, None]
    down, right = torch.tensor(directions).T
    there = _cells(side, cell // side + down, cell % side + right)
    return torch.where(there < side * side, there, cell)


def windows_around(side: int, view: int) -> torch.Tensor:
    """Return the ``view`` x ``view`` cells around each cell, long ``[side * side, view * view]``."""
    cell = torch.arange(side * side)[:, None, None]
    offset = torch.arange(view) - view // 2
    return _cells(side, cell // side + offset[:, None], cell % side + offset).flatten(1)


def windows_ahead(side: int, view: int) -> torch.Tensor:
    """Return the ``view`` x ``view`` cells in front of a heading, long ``[4 * side * side, view * view]``.

    Row ``heading * side * side + cell``. The agent is in the middle of the last row of the window; ahead is up.
    """
    cell = torch.arange(side * side)[:, None, None]
    ahead = (view - 1 - torch.arange(view))[:, None]
    aside = torch.arange(view) - view // 2
    poses = []
    for heading, (down, right) in enumerate(NORTH_EAST_SOUTH_WEST):
        side_down, side_right = NORTH_EAST_SOUTH_WEST[(heading + 1) % 4]
        y = cell // side + ahead * down + aside * side_down
        x = cell % side + ahead * right + aside * side_right
        poses.append(_cells(side, y, x).flatten(1))
    return torch.cat(poses)


def spaced_cells(side: int, last_row: int) -> list[int]:
    """Return the cells with odd coordinates in rows up to ``last_row``: none touches another one, or a wall."""
    return [y * side + x for y in range(1, last_row + 1, 2) for x in range(1, side - 1, 2)]


def sample_without_replacement(count: int, of: int, *shape: int, generator: torch.Generator) -> torch.Tensor:
    """Draw ``count`` different numbers of ``0 .. of - 1`` in random order, long ``[*shape, count]``."""
    return torch.rand(*shape, of, generator=generator, device=generator.device).argsort(-1)[..., :count]
