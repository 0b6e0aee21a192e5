"""Gates that add the output of a sub-layer to the stream it was computed from."""

import torch
from torch import Tensor, nn

from recollect.layers.config import Gate
from recollect.ops.linear import Linear


class ResidualGate(nn.Module):
    """Residual connection without a gate: ``x + y``."""

    def forward(self, stream: Tensor, update: Tensor) -> Tensor:
        """Add the update to the stream, ``[..., dim]``."""
        return stream + update


class GRUGate(nn.Module):
    """Gate of GTrXL: a GRU whose state is the stream x and whose input is the sub-layer output y.

        r = sigmoid(W_r y + U_r x)
        z = sigmoid(W_z y + U_z x - b)
        h = tanh(W_h y + U_h (r * x))
        g(x, y) = (1 - z) * x + z * h

    ``b`` starts at ``bias`` (2 by default), so that a fresh gate is close to the identity.

    Source: Parisotto et al., Stabilizing Transformers for RL (2020), section 3.2.
    """

    def __init__(self, dim: int, bias: float = 2.0) -> None:
        super().__init__()
        self.from_update = Linear(dim, 3 * dim, bias=False)
        self.from_stream = Linear(dim, 2 * dim, bias=False)
        self.from_reset = Linear(dim, dim, bias=False)
        self.bias = nn.Parameter(torch.full((dim,), float(bias)))

    def forward(self, stream: Tensor, update: Tensor) -> Tensor:
        """Gate the update into the stream, ``[..., dim]``."""
        y_r, y_z, y_h = self.from_update(update).chunk(3, -1)
        x_r, x_z = self.from_stream(stream).chunk(2, -1)
        reset = torch.sigmoid(y_r + x_r)
        z = torch.sigmoid(y_z + x_z - self.bias)
        candidate = torch.tanh(y_h + self.from_reset(reset * stream))
        return torch.lerp(stream, candidate.to(stream.dtype), z.to(stream.dtype))


def make_gate(kind: Gate, dim: int) -> nn.Module:
    """Return a gate of GTrXL (``kind="gru"``) or a residual sum, for a stream of width ``dim``."""
    return GRUGate(dim) if kind == "gru" else ResidualGate()
