"""The Transformer's encoder: every step reads every step, at a cost that grows with the square of the length.

    mix(x) = W_o softmax(Q K^T / sqrt(e)) V          per head, Q K V = W_q x, W_k x, W_v x

Paper:    Vaswani et al. 2017, section 3.2; pre-norm, as Long Range Arena and Zhu et al. 2021 have it.
Differs:  no biases in the projections. The product is fused (no table of weights in memory), unless ``fused=False``.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recollect.encoders.contract import Mixer, StackConfig
from recollect.layers.attention import MultiHeadAttention, masked_softmax, merge_heads, split_heads


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """Attention over the whole row."""

    paper: ClassVar[str] = "Vaswani et al. 2017"

    fused: bool = True
    """Compute attention in one fused operation. False keeps the table of weights, as code of the papers' time did."""

    def mixer(self, length: int) -> "SelfAttention":
        """Attention."""
        return SelfAttention(self)


class SelfAttention(Mixer):
    """Softmax attention of a row to itself.

    Args:
        config: of the encoder.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.fused = config.fused
        self.attention = MultiHeadAttention(config.dim, config.num_heads)

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """See :class:`Mixer`."""
        mask = None if padding is None else ~padding[:, None]
        if self.fused or self.attention.tap.has_listeners:
            return self.attention(inputs, inputs, mask=mask)
        heads = self.attention.num_heads
        queries = split_heads(self.attention.query(inputs), heads)
        keys, values = self.attention.project(inputs)
        scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
        weights = masked_softmax(scores, None if mask is None else mask[:, None])
        return self.attention.out(merge_heads(weights.to(values.dtype) @ values))
