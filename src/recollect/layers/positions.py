"""Positions of steps and tokens: sinusoidal and learned tables; images as grids of patches."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Layout = Literal["interleaved", "concatenated"]


def sinusoid(positions: Tensor, dim: int, layout: Layout = "interleaved") -> Tensor:
    """Compute sines and cosines of positions, with frequencies ``10000 ** (-j / dim)``, j = 0, 2, 4, ...

    Args:
        positions: float or integer, any shape.
        dim: width of a feature vector; an odd one drops the last cosine.
        layout: ``interleaved`` puts sines in even and cosines in odd columns (Vaswani et al.);
            ``concatenated`` puts all sines before all cosines (Transformer-XL, HTM).

    Returns:
        ``[*positions.shape, dim]``, contiguous, in the dtype of float positions, else torch's default.
    """
    dtype = positions.dtype if positions.is_floating_point() else torch.get_default_dtype()
    steps = torch.arange(0, dim, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype).unsqueeze(-1) * torch.exp(-math.log(10000.0) * steps / dim)
    waves = angles.sin(), angles.cos()
    both = torch.cat(waves, -1) if layout == "concatenated" else torch.stack(waves, -1).flatten(-2)
    return both[..., :dim].contiguous()  # it may become a parameter, and files do not take views of wider tables


class LearnedPositions(nn.Module):
    """Trainable table ``[length, dim]``, initialized from N(0, std^2)."""

    def __init__(self, length: int, dim: int, std: float = 0.02) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, dim) * std)

    def forward(self, positions: Tensor) -> Tensor:
        """Return rows of the table for integer positions of any shape."""
        return self.table[positions]


def resize_grid(table: Tensor, length: int) -> Tensor:
    """Interpolate positions of a square image's patches for an image with another number of patches.

    Args:
        table: ``[n, d]``, row by row of a square grid.
        length: number of patches wanted, a square too.

    Returns:
        ``[length, d]``, by bicubic interpolation; the table itself where it has that length.

    Source: Dosovitskiy et al., An Image is Worth 16x16 Words (2021), section 3.2.
    """
    if length == len(table):
        return table
    old, new = math.isqrt(len(table)), math.isqrt(length)
    grid = table.T.unflatten(1, (old, old))[None]
    return F.interpolate(grid, size=(new, new), mode="bicubic", align_corners=False)[0].flatten(1).T


def patches(images: Tensor, patch: int) -> Tensor:
    """Cut ``[b, c, y, x]`` into ``[b, n, c * p * p]``: patches row by row, each with one channel after the other."""
    tiles = images.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # b c Y p X q
    return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def from_patches(rows: Tensor, patch: int) -> Tensor:
    """Join ``[b, n, c * p * p]`` to a square image ``[b, c, y, x]``: the inverse of :func:`patches`."""
    side = math.isqrt(rows.shape[1])
    tiles = rows.unflatten(2, (-1, patch, patch)).unflatten(1, (side, side))  # b Y X c p q
    return tiles.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
