"""The Vision Transformer's encoder: a Transformer with a class token, whose output summarizes the row.

    x_0 = token,  x_1..t = the row;   y = Transformer(x);   summary = y_0,  outputs = y_1..t

Paper:    Dosovitskiy et al., An Image is Worth 16x16 Words (2021), equations 1 to 4; the baseline of Didolkar et al.
          2022, tables 1 and 2.
Differs:  no biases in the projections. The token has no position: it is learned itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.encoders.config import ViTConfig
from recollect.encoders.contract import Encoding, StackEncoder, require_rows
from recollect.layers.tap import listen


class ViT(StackEncoder):
    """Transformer with a class token in front of the row."""

    def __init__(self, config: ViTConfig, input_dim: int, length: int) -> None:
        super().__init__(config, input_dim, length + 1)
        self.token = nn.Parameter(torch.randn(input_dim) * 0.02)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode the patches of whole pictures by attention between all of them."""
        require_rows(inputs, padding)  # before the token adds a step
        b, _, d = inputs.shape
        with_token = torch.cat((self.token.expand(b, 1, d), inputs), 1)
        outputs, _ = super().forward(with_token, None if padding is None else F.pad(padding, (1, 0)))
        return Encoding(outputs[:, 1:], outputs[:, 0])

    def summary_attention(self, inputs: Tensor, *, across_chunks: bool = False) -> Tensor:
        """Return the attention of the class token in the last layer, mean over heads: ``[b, t]``; it has no chunks."""
        recorded: list[Tensor] = []
        with listen(self.mixers[-1], lambda name, weights: recorded.append(weights)):
            self(inputs)
        return recorded[0][:, :, 0, 1:].mean(1)
