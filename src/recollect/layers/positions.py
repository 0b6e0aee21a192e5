"""Where a token stands: sinusoidal and learned tables."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["interleaved", "concatenated"]


def sinusoid(positions: Tensor, dim: int, layout: Layout = "interleaved") -> Tensor:
    """Sine and cosine features of positions, with frequencies ``10000 ** (-j / dim)``, j = 0, 2, 4, ...

    Args:
        positions: float or integer, any shape.
        dim: width of a feature vector; an odd one drops the last cosine.
        layout: ``interleaved`` puts sines in even and cosines in odd columns (Vaswani et al.);
            ``concatenated`` puts all sines before all cosines (Transformer-XL, HTM).

    Returns:
        ``[*positions.shape, dim]`` float32 (float64 for float64 positions).
    """
    dtype = positions.dtype if positions.is_floating_point() else torch.get_default_dtype()
    steps = torch.arange(0, dim, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype).unsqueeze(-1) * torch.exp(-math.log(10000.0) * steps / dim)
    if layout == "concatenated":
        return torch.cat((angles.sin(), angles.cos()), -1)[..., :dim]
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., :dim]


class LearnedPositions(nn.Module):
    """A trainable table ``[length, dim]``, drawn from N(0, std^2)."""

    def __init__(self, length: int, dim: int, std: float = 0.02) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, dim) * std)

    def forward(self, positions: Tensor) -> Tensor:
        """Rows of the table for integer positions of any shape."""
        return self.table[positions]
