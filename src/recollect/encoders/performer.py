"""Performer: softmax attention estimated with positive random features, linear in the length.

    phi(x)_i = exp(w_i^T x - |x|^2 / 2) / sqrt(m),   x = q / e^(1/4) or k / e^(1/4),   i = 1..m
    E[phi(q)^T phi(k)] = exp(q^T k / sqrt(e)),       w_i ~ N(0, I), orthogonal in blocks of e

    mix_i = phi(q_i)^T sum_j phi(k_j) v_j^T / phi(q_i)^T sum_j phi(k_j)

With ``kernel="relu"`` (generalized attention) phi(x)_i = relu(w_i^T x) + 0.001, which estimates no softmax.

Paper:    Choromanski et al., Rethinking Attention with Performers (2021), equations 5 to 7 and section 2.4 (FAVOR+).
Differs:  the w are drawn once, with the weights, and saved with them; the released code can redraw them. It adds a
          small number so that sums do not vanish; here each feature is divided by its largest value over the keys,
          and the queries' feature is multiplied by it, which changes no result. No biases in the projections.
"""

import torch
from torch import Tensor

from recollect.encoders.config import PerformerConfig
from recollect.encoders.contract import Mixer
from recollect.encoders.linear_transformer import attend_to_features
from recollect.layers.attention import MultiHeadAttention, merge_heads, split_heads

LEAST = 1e-3
"""Least feature of the relu kernel, as in the released code."""


class FeatureAttention(Mixer):
    """Attention with random features."""

    directions: Tensor

    def __init__(self, config: PerformerConfig) -> None:
        super().__init__()
        self.kernel = config.kernel
        self.attention = MultiHeadAttention(config.dim, config.num_heads)
        self.register_buffer("directions", orthogonal_directions(config.num_features, config.dim // config.num_heads))

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Attend between all steps ``[b, t, d]`` through random features of the softmax; padded steps are not read."""
        queries = split_heads(self.attention.query(inputs), self.attention.num_heads)
        keys, values = self.attention.project(inputs)
        hidden = None if padding is None else padding[:, None, :, None]
        if self.kernel == "relu":
            queries, keys = ((x @ self.directions.T).relu() + LEAST for x in (queries, keys))
            keys = keys if hidden is None else torch.where(hidden, 0.0, keys)
        else:
            queries, keys = self._softmax_features(queries, keys, hidden)
        read = attend_to_features(queries, keys, values.to(keys.dtype)).to(inputs.dtype)
        return self.attention.out(merge_heads(read))

    def _softmax_features(self, queries: Tensor, keys: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute features of queries and keys, up to factors that the division by the sum cancels."""
        of_queries, of_keys = (log_features(x, self.directions) for x in (queries, keys))
        if hidden is not None:
            of_keys = of_keys.masked_fill(hidden, torch.finfo(of_keys.dtype).min)
        largest = of_keys.detach().amax(-2, keepdim=True)  # b h 1 m
        if hidden is not None:
            largest = torch.where(hidden.all(-2, keepdim=True), 0.0, largest)
        moved = of_queries + largest
        return (moved - moved.detach().amax(-1, keepdim=True)).exp(), (of_keys - largest).exp()


def log_features(x: Tensor, directions: Tensor) -> Tensor:
    """Compute logarithms of sqrt(m) phi: ``[..., e] -> [..., m]``, in float32 or better."""
    x = x.to(torch.promote_types(x.dtype, torch.float32)) * x.shape[-1] ** -0.25
    return x @ directions.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2


def orthogonal_directions(number: int, width: int) -> Tensor:
    """Draw normal vectors ``[number, width]``, orthogonal in blocks of ``width``, from the global generator."""
    blocks = []
    for _ in range(-(-number // width)):
        rotation, upper = torch.linalg.qr(torch.randn(width, width))
        # The decomposition prefers some signs; the features are not even functions, and would be biased.
        blocks.append((rotation * upper.diagonal().sign()).T)
    return torch.cat(blocks)[:number] * torch.randn(number, width).norm(dim=-1, keepdim=True)
