"""A Transformer in chunks that attend to the chunks before them at the same layer: a past without a bottleneck.

    mix of chunk l = W_o softmax(Q_l [K_{l-p}; ...; K_l]^T / sqrt(e)) [V_{l-p}; ...; V_l]

Each layer sees its own chunk, in both directions, and p chunks before it. The past comes from the same layer, and there
is no slow stream ("no high level to low level communication").

Paper:    Didolkar et al. 2022, sections 3.3 and 7.3: baseline 1 of the study on ListOps.
Differs:  the paper does not give p ("the past chunk", "the previous few chunks"): 1 here.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.encoders.config import PastChunksConfig
from recollect.encoders.contract import Mixer
from recollect.layers.attention import MultiHeadAttention, attend, merge_heads, split_heads


class ChunkAttention(Mixer):
    """Attention of a chunk to itself and to the chunks before it."""

    def __init__(self, config: PastChunksConfig) -> None:
        super().__init__()
        self.chunk_len, self.past_chunks = config.chunk_len, config.past_chunks
        self.attention = MultiHeadAttention(config.dim, config.num_heads)

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Attend from every chunk of ``[b, t, d]`` to itself and the chunks before it; padded steps are not read."""
        b, t, _ = inputs.shape
        extra = -t % self.chunk_len
        real = inputs.new_ones(b, t, dtype=torch.bool) if padding is None else ~padding
        real = self._with_past(F.pad(real, (0, extra)).unflatten(1, (-1, self.chunk_len)))  # b n s
        chunks = F.pad(inputs, (0, 0, 0, extra)).unflatten(1, (-1, self.chunk_len))  # b n K d
        queries = split_heads(self.attention.query(chunks), self.attention.num_heads)
        keys, values = (self._with_past(part.transpose(2, 3)) for part in self.attention.project(chunks))
        keys, values = (part.transpose(2, 3).flatten(0, 1) for part in (keys, values))  # b*n h s e
        mask = real.flatten(0, 1)[:, None, None]
        read = attend(queries.flatten(0, 1), keys, values, mask=mask, tap=self.attention.tap)
        return self.attention.out(merge_heads(read)).unflatten(0, (b, chunks.shape[1])).flatten(1, 2)[:, :t]

    def _with_past(self, chunks: Tensor) -> Tensor:
        """Join each chunk with p before it, oldest first, or zeros: ``[b, n, K, ...] -> [b, n, (p + 1) K, ...]``."""
        n = chunks.shape[1]
        empty = torch.zeros_like(chunks[:, :1]).expand(-1, min(self.past_chunks, n), *chunks.shape[2:])
        longer = torch.cat((empty, chunks), 1)
        past = empty.shape[1]
        return torch.cat([longer[:, place : place + n] for place in range(past + 1)], 2)
