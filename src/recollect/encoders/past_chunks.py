"""A Transformer in chunks that read the chunks before them at the same layer: a past without a bottleneck.

    mix of chunk l = W_o softmax(Q_l [K_{l-p}; ...; K_l]^T / sqrt(e)) [V_{l-p}; ...; V_l]

Each layer sees its own chunk, both ways, and p chunks before it; the past comes from the same layer, and there is no
slow stream ("no high level to low level communication").

Paper:    Didolkar et al. 2022, sections 3.3 and 7.3: baseline 1 of the study on ListOps.
Differs:  how many chunks back the baseline looked is not said ("the past chunk", "the previous few chunks"): 1 here.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.config import require
from recollect.encoders.contract import Mixer, StackConfig
from recollect.layers.attention import MultiHeadAttention, attend, merge_heads, split_heads


@dataclass(frozen=True, kw_only=True)
class PastChunksConfig(StackConfig):
    """Attention to the step's own chunk and to some chunks before it, at the same layer."""

    paper: ClassVar[str] = "Didolkar et al. 2022, baseline 1"

    chunk_len: int = 100
    """Steps in a chunk (K)."""
    past_chunks: int = 1
    """Chunks before its own that a step reads (p); 0 reads no past."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.chunk_len > 0, "chunk_len", self.chunk_len, "give a positive number")
        require(self.past_chunks >= 0, "past_chunks", self.past_chunks, "give 0 or more")

    def mixer(self, length: int) -> "ChunkAttention":
        """Attention."""
        return ChunkAttention(self)


class ChunkAttention(Mixer):
    """Attention to chunks.

    Args:
        config: of the encoder.
    """

    def __init__(self, config: PastChunksConfig) -> None:
        super().__init__()
        self.chunk_len, self.past_chunks = config.chunk_len, config.past_chunks
        self.attention = MultiHeadAttention(config.dim, config.num_heads)

    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """See :class:`Mixer`."""
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
        """``[b, n, K, ...] -> [b, n, (p + 1) K, ...]``: the chunks before, oldest first, zeros where there is none."""
        n = chunks.shape[1]
        empty = torch.zeros_like(chunks[:, :1]).expand(-1, min(self.past_chunks, n), *chunks.shape[2:])
        longer = torch.cat((empty, chunks), 1)
        past = empty.shape[1]
        return torch.cat([longer[:, place : place + n] for place in range(past + 1)], 2)
