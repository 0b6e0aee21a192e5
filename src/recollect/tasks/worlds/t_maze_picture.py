"""Picture of the T-maze for videos: the part of the corridor around the agent, enlarged.

Top row: an arrow while the cue is visible. Then the three rows of the maze: the agent yellow, the cell of the cue blue,
the right side of the junction green and the wrong side red; after the turn the agent is on the side that it took.
Bottom row: the position of the agent in the whole corridor.
"""

from __future__ import annotations

from recollect.lazy import np

CELL = 16
"""Pixels of a cell."""
VIEW = 19
"""Most cells of the corridor in the picture."""
WALL, PAPER, AGENT, CUE = (88, 92, 98), (20, 23, 27), (255, 214, 10), (52, 92, 178)
FLOORS = ((38, 41, 46), (46, 50, 56))
"""Shade of every other cell, so that steps are visible."""
RIGHT_SIDE, WRONG_SIDE = (30, 150, 70), (150, 50, 45)


def draw(length: int, cue_cell: int, x: int, *, up: bool, turn: int) -> np.ndarray:
    """Draw the T-maze with the agent as a picture.

    Args:
        length: x of the junction.
        cue_cell: x of the cell in which the cue is visible.
        x: position of the agent.
        up: the right side.
        turn: 1 after a turn up, -1 after a turn down, 0 before.

    Returns:
        uint8 ``[5 CELL, cells CELL, 3]``; as many cells for every x.
    """
    shown = min(VIEW, length + 1 - cue_cell)
    first = min(max(x - shown // 2, cue_cell), length + 1 - shown)
    picture = np.empty((5 * CELL, shown * CELL, 3), np.uint8)
    picture[:] = PAPER
    picture[CELL : 4 * CELL] = WALL
    for place in range(first, first + shown):
        _fill(picture, 2, place - first, CUE if place == cue_cell else FLOORS[place % 2])
    if first <= length < first + shown:
        for row, side in ((1, True), (3, False)):
            _fill(picture, row, length - first, RIGHT_SIDE if side == up else WRONG_SIDE)
    inset = CELL // 5
    _fill(picture, 2 - turn, x - first, AGENT, inset)
    if x == cue_cell:
        _cell(picture, 0, x - first)[_arrow(up)] = AGENT
    bar = picture[4 * CELL + CELL // 2 - 2 : 4 * CELL + CELL // 2 + 2]
    bar[:] = WALL
    middle = round((x - cue_cell) / (length - cue_cell) * (bar.shape[1] - CELL // 2))
    bar[:, middle : middle + CELL // 2] = AGENT
    return picture


def _cell(picture: np.ndarray, row: int, column: int) -> np.ndarray:
    return picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]


def _fill(picture: np.ndarray, row: int, column: int, colour: tuple[int, int, int], inset: int = 0) -> None:
    _cell(picture, row, column)[inset : CELL - inset, inset : CELL - inset] = colour


def _arrow(up: bool) -> np.ndarray:
    """Return a triangle in a cell, bool ``[CELL, CELL]``."""
    down, right = np.mgrid[:CELL, :CELL] + 0.5
    inside = (down > 2) & (down < CELL - 2) & (np.abs(right - CELL / 2) < (down - 2) / 2)
    return inside if up else inside[::-1]
