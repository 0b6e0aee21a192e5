"""Pictures of tiles: coloured shapes on a backdrop, as pixels or as symbols.

A tile is a triple (backdrop, shape, colour), numbered by :func:`picture`. :class:`TilePictures` turns a room of such
numbers into the picture of a window of it, in either form:

    pixels   uint8 [y 9, x 9, 3], 9 pixels a tile
    tiles    uint8 [y, x, 3], symbols: backdrop; shape from 1, 0 for none; colour from 1, 0 for none

Source: ours, after the ballet of Lampinen et al. 2021 (appendix B.1): dark room, 9 x 9 shapes, a white agent.
"""

from __future__ import annotations

from typing import Literal

from recollect.lazy import gymnasium, np, torch

Form = Literal["pixels", "tiles"]

TILE = 9
"""Pixels along one side of a tile."""

FLOOR, WALL, AGENT, OPEN_BOX, CLOSED_BOX = range(5)
"""Backdrops, in this order."""

SHAPES: dict[str, str] = {
    "ball": "......... ...###... ..#####.. .#######. .#######. .#######. ..#####.. ...###... .........",
    "ring": "......... ...###... ..#####.. .##...##. .##...##. .##...##. ..#####.. ...###... .........",
    "cross": "......... ...###... ...###... .#######. .#######. .#######. ...###... ...###... .........",
    "star": "......... .##...##. .###.###. ..#####.. ...###... ..#####.. .###.###. .##...##. .........",
    "mountain": "......... ....#.... ....#.... ...###... ...###... ..#####.. ..#####.. .#######. .........",
    "diamond": "......... ....#.... ...###... ..#####.. .#######. ..#####.. ...###... ....#.... .........",
    "cube": "......... .#######. .#######. .##...##. .##...##. .##...##. .#######. .#######. .........",
    "cup": "......... .##...##. .##...##. .##...##. .##...##. .##...##. .#######. .#######. .........",
    "arch": "......... .#######. .#######. .##...##. .##...##. .##...##. .##...##. .##...##. .........",
    "hammer": "......... .#######. .#######. .#######. ....#.... ....#.... ....#.... ....#.... .........",
    "ladder": "......... .#.....#. .#######. .#.....#. .#######. .#.....#. .#######. .#.....#. .........",
    "duck": "......... ...###... ..##.#... ####.#... ..####... ...#####. ...#####. ...#####. .........",
    "train": "......... ......##. .#....##. .#....##. .#######. .#######. .#######. ..#..##.. .........",
    "robot": "......... ..#####.. ..#.#.#.. ..#####.. ....#.... .#######. ...###... ...#.#... ..##.##..",
    "rocket": "....#.... ...###... ...#.#... ...###... ...###... ..#####.. .##.#.##. .#..#..#. .........",
}
"""Names and 9 x 9 masks, row by row."""

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (60, 60, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "orange": (255, 140, 0),
    "violet": (140, 60, 200),
    "olive": (130, 130, 0),
    "grey": (150, 150, 150),
}
"""Names and RGB values; none is black (floor) or white (agent)."""

NO_SHAPE = len(SHAPES)
"""Shape of an empty tile."""


def picture(
    backdrop: torch.Tensor | int, shape: torch.Tensor | int = NO_SHAPE, colour: torch.Tensor | int = 0
) -> torch.Tensor:
    """Return the number of the tile with this backdrop, shape and colour, long, broadcast."""
    return torch.as_tensor((backdrop * (NO_SHAPE + 1) + shape) * len(COLOURS) + colour)


class TilePictures:
    """Pictures of all tiles, and the windows of a room from every pose.

    Args:
        form: ``pixels`` or ``tiles``.
        windows: visible cells from every pose, long ``[poses, view * view]``; see ``tile_rooms``.
    """

    def __init__(self, form: Form, windows: torch.Tensor) -> None:
        self.form = form
        self.windows = windows
        self.view = round(windows.shape[1] ** 0.5)
        self.lines = TILE if form == "pixels" else 1  # a tile is stored line by line, as an image is
        self.table = (_pixels().view(-1, TILE * 3) if form == "pixels" else _symbols()).to(windows.device)
        self.line = torch.arange(self.lines, device=windows.device)[:, None]

    def show(self, room: torch.Tensor, pose: torch.Tensor) -> torch.Tensor:
        """Return the picture of a room's window.

        Args:
            room: tile numbers, long ``[b, cells]``; windows index its columns.
            pose: long ``[b]``.

        Returns:
            uint8 ``[b, y, x, c]``.
        """
        b, v = len(room), self.view
        seen = room.gather(1, self.windows[pose]).view(b, v, 1, v)
        lines = self.table.index_select(0, (seen * self.lines + self.line).flatten())
        side = v * self.lines
        return lines.view(b, side, side, -1)


def image_space(form: Form, view: int) -> gymnasium.spaces.Box:
    """Return the space of :class:`TilePictures` of ``view`` x ``view`` tiles."""
    if form == "pixels":
        return gymnasium.spaces.Box(0, 255, (view * TILE, view * TILE, 3), np.uint8)
    high = np.broadcast_to(np.array([CLOSED_BOX, len(SHAPES), len(COLOURS)], np.uint8), (view, view, 3))
    return gymnasium.spaces.Box(np.zeros_like(high), high.copy(), dtype=np.uint8)


def _masks() -> torch.Tensor:
    drawn = [[[letter == "#" for letter in line] for line in art.split()] for art in SHAPES.values()]
    return torch.tensor([*drawn, [[False] * TILE] * TILE])  # the last one is NO_SHAPE


def _pixels() -> torch.Tensor:
    """uint8 ``[pictures, 9, 9, 3]``."""
    backdrops = torch.zeros(CLOSED_BOX + 1, TILE, TILE, 3, dtype=torch.uint8)
    backdrops[WALL] = 40
    backdrops[AGENT] = 255
    wood = torch.tensor((110, 70, 30), dtype=torch.uint8)
    backdrops[CLOSED_BOX] = wood
    backdrops[CLOSED_BOX, 3] = wood // 2  # the edge of the lid
    backdrops[OPEN_BOX, :, [0, 8]] = wood
    backdrops[OPEN_BOX, 8] = wood
    colours = torch.tensor(list(COLOURS.values()), dtype=torch.uint8)
    drawn = torch.where(
        _masks()[None, :, None, :, :, None], colours[None, None, :, None, None], backdrops[:, None, None]
    )
    return drawn.flatten(0, 2).contiguous()


def _symbols() -> torch.Tensor:
    """Return backdrop, shape and colour of every tile number, uint8 ``[tiles, 3]``; both are 0 for an empty tile."""
    backdrop, shape, colour = torch.meshgrid(
        torch.arange(CLOSED_BOX + 1), torch.arange(NO_SHAPE + 1), torch.arange(len(COLOURS)), indexing="ij"
    )
    empty = shape == NO_SHAPE
    shape, colour = torch.where(empty, 0, shape + 1), torch.where(empty, 0, colour + 1)
    return torch.stack((backdrop, shape, colour), -1).flatten(0, 2).to(torch.uint8)
