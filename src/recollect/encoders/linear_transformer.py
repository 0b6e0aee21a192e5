"""The linear Transformer: attention with a kernel, whose sums over keys are computed once for all queries.

    mix_i = phi(q_i)^T S / phi(q_i)^T z,   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j),   phi(x) = elu(x) + 1

which equals attention with weights phi(q_i)^T phi(k_j) / sum_j, at a cost that grows with the length, not its square.

Paper:    Katharopoulos et al., Transformers are RNNs (2020), equations 5 to 7.
Differs:  the two-way form; no biases in the projections.
"""

import torch
from torch import Tensor

from recollect.encoders.config import LinearTransformerConfig
from recollect.encoders.contract import Mixer
from recollect.layers.attention import MultiHeadAttention, merge_heads, split_heads


class LinearAttention(Mixer):
    """Attention with the kernel phi."""

    def __init__(self, config: LinearTransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.dim, config.num_heads)

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Attend between all steps ``[b, t, d]`` in time that grows linearly with t; padded steps are not read."""
        queries = kernel_features(split_heads(self.attention.query(inputs), self.attention.num_heads))
        keys, values = self.attention.project(inputs)
        keys = kernel_features(keys)
        if padding is not None:
            keys = torch.where(padding[:, None, :, None], 0.0, keys)
        return self.attention.out(merge_heads(attend_to_features(queries, keys, values)))


def kernel_features(x: Tensor) -> Tensor:
    """Compute elu(x) + 1 without losing small numbers: ``elu(-20) + 1`` is 0 in float32."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def attend_to_features(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute attention whose weights are products of non-negative features, divided by their sum.

    Args:
        queries: features ``[b, h, t, m]``.
        keys: features ``[b, h, s, m]``, zeros at hidden steps.
        values: ``[b, h, s, e]``.

    Returns:
        ``[b, h, t, e]``; zeros for a query without a visible key.
    """
    total = (queries * keys.sum(-2, keepdim=True)).sum(-1, keepdim=True)
    return queries @ (keys.transpose(-1, -2) @ values) / torch.where(total > 0, total, 1.0)
