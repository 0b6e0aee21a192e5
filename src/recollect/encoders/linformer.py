"""Linformer: keys and values are projected along the row to a fixed number, so that attention is linear in the length.

    mix(x) = W_o softmax(Q (E K)^T / sqrt(e)) F V          E, F: [k, n] learned, n the longest row

Paper:    Wang et al., Linformer: Self-Attention with Linear Complexity (2020), equation 7; E and F are shared by the
          heads of a layer ("headwise sharing").
Differs:  rows shorter than n use the first columns of E and F; padded steps count as zeros. No biases.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.encoders.contract import Mixer, StackConfig
from recollect.layers.attention import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class LinformerConfig(StackConfig):
    """Attention to a fixed number of projected steps, linear in the length."""

    paper: ClassVar[str] = "Wang et al. 2020"

    num_projected: int = 128
    """Projected keys and values (k)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_projected > 0, "num_projected", self.num_projected, "give a positive number")

    def mixer(self, length: int) -> "ProjectedAttention":
        """Attention for rows of at most ``length`` steps."""
        return ProjectedAttention(self, length)


class ProjectedAttention(Mixer):
    """Attention to projections of the row.

    Args:
        config: of the encoder.
        length: most steps of a row (n).
    """

    def __init__(self, config: LinformerConfig, length: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.dim, config.num_heads)
        self.keys, self.values = (
            nn.Parameter(torch.randn(config.num_projected, length) * length**-0.5) for _ in range(2)
        )

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """See :class:`Mixer`.

        Raises:
            ValueError: a row is longer than the projections.
        """
        steps, most = inputs.shape[1], self.keys.shape[1]
        require(steps <= most, "steps", steps, f"this encoder was made for rows of at most {most}")
        seen = inputs if padding is None else torch.where(padding[..., None], 0.0, inputs)
        keys, values = self.attention.project(seen)  # linear without bias: zeros stay zeros
        projected = self.keys[:, :steps] @ keys, self.values[:, :steps] @ values
        return self.attention(inputs, projected)
