"""The room and the dances of the ballet, as tables.

The room has 11 x 11 cells, numbered row by row; the outermost cells are wall. The agent starts in the middle. Eight
cells around it are possible homes of dancers, three cells apart, so that dancers, who stay within one cell of their
homes, never touch anything.

Source: Lampinen et al. 2021, listing 1 (dances) and appendix B.1 (room).
"""

from __future__ import annotations

from collections import deque
from functools import cache

from recollect.lazy import torch

SIDE = 11
"""Cells along a side of the room, walls included."""
CELLS = SIDE * SIDE
NOWHERE = CELLS
"""Home of a dancer that does not exist: a cell that is never visible or reached."""

DIRECTIONS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""(down, right) of every move, clockwise from 0 = north: actions of the agent and moves of dances."""

START = 5 * SIDE + 5
"""The agent's first cell."""

HOMES = tuple(row * SIDE + column for row in (2, 5, 8) for column in (2, 5, 8) if (row, column) != (5, 5))
"""Possible homes of dancers."""

DANCE = 16
"""Moves per dance."""

DANCES: dict[str, tuple[int, ...]] = {
    "circle_cw": (0, 2, 4, 4, 6, 6, 0, 0, 2, 2, 4, 4, 6, 6, 0, 2),
    "circle_ccw": (0, 6, 4, 4, 2, 2, 0, 0, 6, 6, 4, 4, 2, 2, 0, 6),
    "up_and_down": (0, 4, 4, 0) * 4,
    "left_and_right": (2, 6, 6, 2) * 4,
    "diagonal_uldr": (7, 3, 3, 7) * 4,
    "diagonal_urdl": (1, 5, 5, 1) * 4,
    "plus_cw": (0, 4, 2, 6, 4, 0, 6, 2) * 2,
    "plus_ccw": (0, 4, 6, 2, 4, 0, 2, 6) * 2,
    "times_cw": (1, 5, 3, 7, 5, 1, 7, 3) * 2,
    "times_ccw": (7, 3, 5, 1, 3, 7, 1, 5) * 2,
    "zee": (1, 6, 6, 2, 2, 5, 1, 5, 5, 2, 2, 6, 6, 1, 5, 1),
    "chevron_down": (7, 4, 3, 1, 0, 5, 1, 5, 1, 4, 5, 7, 0, 3, 7, 3),
    "chevron_up": (3, 0, 7, 5, 4, 1, 5, 1, 5, 0, 1, 3, 4, 7, 3, 7),
}
"""Moves by name, spelled as in the official environment."""

ALIKE = (
    "circle_cw",
    "up_and_down",
    "plus_cw",
    "diagonal_urdl",
    "times_cw",
    "zee",
    "diagonal_uldr",
    "chevron_down",
)
"""Eight dances that no single observation tells apart: each first move, and each cell that one of them visits, also
occurs in another one. They differ in the times and order of visits."""

STILL = len(DANCES)
"""Dance of a dancer that does not exist."""


def dance_table() -> torch.Tensor:
    """Return the offset from home, in cell numbers, after 0..16 moves of each dance: long ``[(dances + 1) * 17]``.

    Both ends of every dance are 0; the last dance is :data:`STILL`.
    """
    table = torch.zeros(len(DANCES) + 1, DANCE + 1, dtype=torch.long)
    for dance, moves in enumerate(DANCES.values()):
        steps = torch.tensor([SIDE * DIRECTIONS[move][0] + DIRECTIONS[move][1] for move in moves])
        table[dance, 1:] = steps.cumsum(0)
    return table.flatten()


def is_wall(cell: int) -> bool:
    """Return whether a cell is part of the wall."""
    row, column = divmod(cell, SIDE)
    return row in (0, SIDE - 1) or column in (0, SIDE - 1)


def cell_after(cell: int, direction: int) -> int:
    """Return the cell after a move from a floor cell: the same cell at a wall."""
    ahead = cell + SIDE * DIRECTIONS[direction][0] + DIRECTIONS[direction][1]
    return cell if is_wall(ahead) else ahead


def move_table() -> torch.Tensor:
    """Return the cell after every move, long ``[cells * 8]``; the same cell at a wall."""
    moves = [cell if is_wall(cell) else cell_after(cell, move) for cell in range(CELLS) for move in range(8)]
    return torch.tensor(moves)


@cache
def _first_moves(home: int) -> tuple[int, ...]:
    # Breadth first from the home outwards; other homes may be left but not crossed.
    distance, queue = {home: 0}, deque([home])
    while queue:
        cell = queue.popleft()
        for before in {cell_after(cell, direction) for direction in range(8)} - distance.keys():
            distance[before] = distance[cell] + 1
            if before not in HOMES:
                queue.append(before)

    def rank(cell: int, move: int) -> tuple[int, int]:  # of two shortest ways the straighter one
        ahead = cell_after(cell, move)
        (row, column), (to_row, to_column) = divmod(ahead, SIDE), divmod(home, SIDE)
        crossed = ahead in HOMES and ahead != home
        return distance[ahead] + CELLS * crossed, (row - to_row) ** 2 + (column - to_column) ** 2

    return tuple(
        0 if is_wall(cell) or cell == home else min(range(8), key=lambda move: rank(cell, move))
        for cell in range(CELLS)
    )


def route_table() -> torch.Tensor:
    """Return the first move of the straightest shortest path to a home around other homes, long ``[cells * cells]``.

    Entry ``agent * cells + home``; 0 where ``home`` is no home, or the agent is there.
    """
    table = torch.zeros(CELLS, CELLS, dtype=torch.long)
    for home in HOMES:
        table[:, home] = torch.tensor(_first_moves(home))
    return table.flatten()
