"""The Transformer's encoder: every step reads every step, at a cost that grows with the square of the length.

    mix(x) = W_o softmax(Q K^T / sqrt(e)) V          per head, Q K V = W_q x, W_k x, W_v x

Paper:    Vaswani et al. 2017, section 3.2; pre-norm, as in Long Range Arena and Zhu et al. 2021.
Differs:  no biases in the projections. The product is fused (no table of weights in memory), unless ``fused=False``.
"""

from torch import Tensor

from recollect.encoders.config import TransformerConfig
from recollect.encoders.contract import Mixer
from recollect.layers.attention import MultiHeadAttention, masked_softmax, merge_heads, split_heads


class SelfAttention(Mixer):
    """Softmax attention of a row to itself."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.fused = config.fused
        self.attention = MultiHeadAttention(config.dim, config.num_heads)

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Attend between all steps ``[b, t, d]``; padded steps are not read."""
        mask = None if padding is None else ~padding[:, None]
        if self.fused or self.attention.tap.has_listeners:
            return self.attention(inputs, inputs, mask=mask)
        queries = split_heads(self.attention.query(inputs), self.attention.num_heads)
        keys, values = self.attention.project(inputs)
        scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
        weights = masked_softmax(scores, None if mask is None else mask[:, None])
        return self.attention.out(merge_heads(weights.to(values.dtype) @ values))
