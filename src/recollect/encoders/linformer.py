"""Linformer: keys and values are projected along the row to a fixed number, so that attention is linear in the length.

    mix(x) = W_o softmax(Q (E K)^T / sqrt(e)) F V          E, F: [k, n] learned, n the longest row

Paper:    Wang et al., Linformer: Self-Attention with Linear Complexity (2020), equation 7; E and F are shared by the
          heads of a layer ("headwise sharing").
Differs:  rows shorter than n use the first columns of E and F; padded steps count as zeros. No biases.
"""

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.encoders.config import LinformerConfig
from recollect.encoders.contract import Mixer
from recollect.layers.attention import MultiHeadAttention


class ProjectedAttention(Mixer):
    """Attention to projections of rows of at most ``length`` steps."""

    def __init__(self, config: LinformerConfig, length: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.dim, config.num_heads)
        self.keys, self.values = (
            nn.Parameter(torch.randn(config.num_projected, length) * length**-0.5) for _ in range(2)
        )

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Attend from all steps ``[b, t, d]`` to a fixed number of mixtures of them; padded steps are not read.

        Raises:
            ValueError: a row is longer than the projections.
        """
        steps, most = inputs.shape[1], self.keys.shape[1]
        require(steps <= most, "steps", steps, f"this encoder was made for rows of at most {most}")
        seen = inputs if padding is None else torch.where(padding[..., None], 0.0, inputs)
        keys, values = self.attention.project(seen)  # linear without bias: zeros stay zeros
        return self.attention(inputs, (self.keys[:, :steps] @ keys, self.values[:, :steps] @ values))
