"""Maps inside vectors: how a core reads what an image encoder saw, place by place.

A step's input is a vector ``[y * x * c + e]``: the map, ordered row, column, channel, and behind it what else the agent
is told (reward, last action).
"""

import math

from torch import Tensor

from recollect.config import require

Grid = tuple[int, int]


def require_map(grid: Grid, channels: int | None) -> None:
    """Raise ``ValueError`` unless a config's ``grid`` and ``channels`` describe a map."""
    require(len(grid) == 2 and min(grid) >= 1, "grid", grid, "give rows and columns, for example 11 11")
    require(channels is None or channels >= 1, "channels", channels, "give at least 1, or None")


def split_inputs(grid: Grid, channels: int | None, input_dim: int) -> tuple[int, int]:
    """Channels of the map, and how many of ``input_dim`` inputs are told beside it.

    Args:
        grid: rows and columns of the map.
        channels: of the map; None when all inputs are the map's.
        input_dim: width of a step's input.

    Raises:
        ValueError: there are too few inputs, or no whole number of channels.
    """
    places = math.prod(grid)
    if channels is None:
        if input_dim < places or input_dim % places:
            raise ValueError(
                f"input_dim={input_dim} is no multiple of the {places} places of grid={grid}: give the rows and "
                "columns of the map that the core is to read, and channels where more is told behind the map"
            )
        return input_dim // places, 0
    if input_dim < places * channels:
        raise ValueError(
            f"input_dim={input_dim} is too small: a map of grid={grid} and channels={channels} has {places * channels} "
            "numbers; give the map's own rows, columns and channels, and let the core read the encoder's vector as it "
            "is (width=None)"
        )
    return channels, input_dim - places * channels


def take_map(inputs: Tensor, places: int, channels: int) -> tuple[Tensor, Tensor]:
    """``[..., places * c + e]`` to the map's places ``[..., places, c]`` and what is told ``[..., e]``."""
    size = places * channels
    return inputs[..., :size].unflatten(-1, (places, channels)), inputs[..., size:]
