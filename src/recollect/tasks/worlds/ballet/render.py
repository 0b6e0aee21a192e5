"""Observations of the ballet: 11 x 11 tiles around the agent, as pixels or as symbols.

    pixels   uint8 [99, 99, 3], 9 x 9 pixels per tile: red, green, blue
    tiles    uint8 [11, 11, 3]: kind (0 black, 1 wall, 2 agent, 3 dancer), shape (1..15), colour (1..19)

Shapes and colours are numbered in the order of :data:`SHAPES` and :data:`COLOURS`; both are 0 without a dancer. The
agent is always in the middle. The floor and everything outside the walls are black. A dancer hides the agent beneath
it. Both forms carry the same information.

An image is a copy of a background (walls and agent, as seen from the agent's cell) with a patch for every dancer.
Dancers out of view are drawn into spare memory behind the images instead of being skipped, so that the work does not
depend on the data and no transfer from the device is needed.

Source: Lampinen et al. 2021, appendix B.1; templates, colours and names of the official environment
        (google-deepmind/deepmind-research, hierarchical_transformer_memory/pycolab_ballet). Its float image is ours /
        255.
"""

from __future__ import annotations

from typing import Literal

from recollect.lazy import gymnasium, np, torch
from recollect.tasks.worlds.ballet.dances import CELLS, SIDE

Form = Literal["pixels", "tiles"]

PIXELS = 9
"""Side of a tile in pixels."""

SHAPES: tuple[str, ...] = (
    "triangle",
    "empty_square",
    "plus",
    "inverse_plus",
    "ex",
    "inverse_ex",
    "circle",
    "empty_circle",
    "tee",
    "upside_down_tee",
    "h",
    "u",
    "upside_down_u",
    "vertical_stripes",
    "horizontal_stripes",
)

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "purple": (128, 0, 128),
    "orange": (255, 165, 0),
    "yellow": (255, 255, 0),
    "brown": (128, 64, 0),
    "pink": (255, 64, 255),
    "cyan": (0, 255, 255),
    "dark_green": (0, 100, 0),
    "dark_red": (100, 0, 0),
    "dark_blue": (0, 0, 100),
    "olive": (100, 100, 0),
    "teal": (0, 100, 100),
    "lavender": (215, 200, 255),
    "peach": (255, 210, 170),
    "rose": (255, 205, 230),
    "light_green": (200, 255, 200),
    "light_yellow": (255, 255, 200),
}

WALL_COLOUR, AGENT_COLOUR = (40, 40, 40), (255, 255, 255)
BLACK, WALL, AGENT, DANCER = range(4)
"""Kinds of tiles."""


def image_space(form: Form) -> gymnasium.spaces.Box:
    """Return the space of the images of a :class:`Painter`."""
    if form == "pixels":
        return gymnasium.spaces.Box(0, 255, (SIDE * PIXELS, SIDE * PIXELS, 3), np.uint8)
    high = np.broadcast_to(np.array([DANCER, len(SHAPES), len(COLOURS)], np.uint8), (SIDE, SIDE, 3))
    return gymnasium.spaces.Box(np.zeros_like(high), high.copy(), dtype=np.uint8)


def shape_masks() -> torch.Tensor:
    """Return the shapes, bool ``[15, 9, 9]``."""
    y, x = torch.meshgrid(torch.arange(PIXELS), torch.arange(PIXELS), indexing="ij")
    top, bottom, left, right = y < 3, y > 5, x < 3, x > 5
    column, row = (x - 4).abs() <= 1, (y - 4).abs() <= 1
    plus = column | row
    ex = ((y - x).abs() <= 1) | ((8 - y - x).abs() <= 1)
    radius = (y - 4) ** 2 + (x - 4) ** 2  # squared
    drawn = {
        "triangle": y >= 2 * (x - 4).abs(),
        "empty_square": (y < 2) | (y > 6) | (x < 2) | (x > 6),
        "plus": plus,
        "inverse_plus": ~plus,
        "ex": ex,
        "inverse_ex": ~ex,
        "circle": radius <= 16,
        "empty_circle": (radius - 16).abs() < 6,
        "tee": column | top,
        "upside_down_tee": column | bottom,
        "h": left | right | row,
        "u": left | right | bottom,
        "upside_down_u": left | right | top,
        "vertical_stripes": x % 2 == 0,
        "horizontal_stripes": y % 2 == 0,
    }
    return torch.stack([drawn[shape] for shape in SHAPES])


def patch_index(shape: torch.Tensor, colour: torch.Tensor) -> torch.Tensor:
    """Return the patch index of dancers with these shapes and colours, as broadcast."""
    return shape * len(COLOURS) + colour


class Painter:
    """Draws the views of the agents of b rows.

    Args:
        form: ``pixels`` or ``tiles``.
        device: device of the images.
    """

    def __init__(self, form: Form, device: torch.device) -> None:
        patches, plain = (_pixel_patches if form == "pixels" else _symbol_patches)()
        self.size = patches.shape[1]  # of a tile, in pixels or symbols
        self.patches = patches.flatten(1).to(device)
        self.backgrounds = _backgrounds(plain).to(device)
        self.places = _places(self.size).to(device)
        self.lines = (torch.arange(self.size) * SIDE).to(device)  # a tile's lines, from its first one

    def __call__(self, agent: torch.Tensor, cells: torch.Tensor, looks: torch.Tensor) -> torch.Tensor:
        """Draw one view per row.

        Args:
            agent: cells of the agents, long ``[b]``.
            cells: cells of the dancers, long ``[b, n]``; ``NOWHERE`` is never visible.
            looks: their patches, long ``[b, n]``; see :func:`patch_index`.

        Returns:
            New images, uint8 ``[b, y, x, 3]``.
        """
        (b, n), size = cells.shape, self.size
        lines = CELLS * size  # of an image: each is one line of one tile
        canvas = torch.empty(b * lines + SIDE * size, 3 * size, dtype=torch.uint8, device=cells.device)
        images = canvas[: b * lines].view(b, -1)
        torch.index_select(self.backgrounds, 0, agent, out=images)

        place = self.places[agent[:, None] * (CELLS + 1) + cells]  # b n
        begin = torch.arange(0, b * lines, lines, device=cells.device)[:, None]
        first = torch.where(place < 0, b * lines, begin + place)
        patches = self.patches.index_select(0, looks.flatten()).view(b * n * size, 3 * size)
        canvas.index_put_(((first[..., None] + self.lines).flatten(),), patches)
        return images.view(b, SIDE * size, SIDE * size, 3)


def _pixel_patches() -> tuple[torch.Tensor, torch.Tensor]:
    # Every dancer's patch, uint8 [looks, 9, 9, 3], and the tiles without a dancer by kind, [3, 9, 9, 3].
    colours = torch.tensor(list(COLOURS.values()), dtype=torch.uint8)
    patches = shape_masks()[:, None, :, :, None] * colours[:, None, None]
    plain = torch.tensor(((0, 0, 0), WALL_COLOUR, AGENT_COLOUR), dtype=torch.uint8)
    return patches.flatten(0, 1), plain[:, None, None].expand(-1, PIXELS, PIXELS, -1)


def _symbol_patches() -> tuple[torch.Tensor, torch.Tensor]:
    # The same as symbols: [looks, 1, 1, 3] and [3, 1, 1, 3].
    shapes, colours = torch.arange(len(SHAPES)) + 1, torch.arange(len(COLOURS)) + 1
    dancers = torch.cartesian_prod(torch.tensor([DANCER]), shapes, colours)
    plain = torch.tensor([(kind, 0, 0) for kind in (BLACK, WALL, AGENT)])
    return dancers.to(torch.uint8)[:, None, None], plain.to(torch.uint8)[:, None, None]


def _backgrounds(plain: torch.Tensor) -> torch.Tensor:
    # The room without dancers as seen from every cell, uint8 [cells, bytes].
    middle = SIDE // 2
    row, column = _rows_and_columns()
    tiles = torch.arange(SIDE) - middle
    down = (row[:, None, None] + tiles[:, None] - middle).abs()  # from the middle of the room: cells, y, 1
    across = (column[:, None, None] + tiles - middle).abs()  # cells, 1, x
    kinds = torch.where(torch.maximum(down, across) == middle, WALL, BLACK)
    kinds[:, middle, middle] = AGENT
    return plain[kinds].transpose(2, 3).flatten(1).contiguous()  # before: cells, y, x, size, size, 3


def _places(size: int) -> torch.Tensor:
    # The first line of a cell's tile in an image, long [cells * (cells + 1)]; -1 where it is out of view or NOWHERE.
    row, column = _rows_and_columns()
    y, x = (axis - axis[:, None] + SIDE // 2 for axis in (row, column))  # agent, cell
    in_view = (y >= 0) & (y < SIDE) & (x >= 0) & (x < SIDE)
    places = torch.full((CELLS, CELLS + 1), -1)
    places[:, :CELLS] = torch.where(in_view, y * SIDE * size + x, -1)
    return places.flatten()


def _rows_and_columns() -> tuple[torch.Tensor, torch.Tensor]:
    cells = torch.arange(CELLS)
    return cells // SIDE, cells % SIDE
