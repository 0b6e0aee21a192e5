"""The Vision Transformer's encoder: a Transformer with a class token, whose output sums up the row.

    x_0 = token,  x_1..t = the row;   y = Transformer(x);   summary = y_0,  outputs = y_1..t

Paper:    Dosovitskiy et al., An Image is Worth 16x16 Words (2021), equations 1 to 4; the baseline of Didolkar et al.
          2022, tables 1 and 2.
Differs:  no biases in the projections. The token has no position of its own: it is learned, so it can have none but
          its own.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.encoders.contract import Encoding, StackEncoder, require_rows
from recollect.encoders.transformer import TransformerConfig
from recollect.layers.tap import listen


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerConfig):
    """Attention over the whole row and a class token, for pictures as rows of patches."""

    paper: ClassVar[str] = "Dosovitskiy et al. 2021"
    has_summary: ClassVar[bool] = True

    def build(self, input_dim: int, length: int) -> "ViT":
        """Make the encoder."""
        return ViT(self, input_dim, length)


class ViT(StackEncoder):
    """Reads a row with a Transformer that has a class token in front.

    Args:
        config: settings.
        input_dim: width of the inputs.
        length: most steps of a row.
    """

    def __init__(self, config: ViTConfig, input_dim: int, length: int) -> None:
        super().__init__(config, input_dim, length + 1)
        self.token = nn.Parameter(torch.randn(input_dim) * 0.02)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`."""
        require_rows(inputs, padding)  # before the token makes a step of its own
        b, _, d = inputs.shape
        with_token = torch.cat((self.token.expand(b, 1, d), inputs), 1)
        outputs, _ = super().forward(with_token, None if padding is None else F.pad(padding, (1, 0)))
        return Encoding(outputs[:, 1:], outputs[:, 0])

    def summary_attention(self, inputs: Tensor) -> Tensor:
        """Attention of the class token in the last layer, mean over heads: ``[b, t]``."""
        heard: list[Tensor] = []
        with listen(self.mixers[-1], lambda name, weights: heard.append(weights)):
            self(inputs)
        return heard[0][:, :, 0, 1:].mean(1)
