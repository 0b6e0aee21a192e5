"""Chunks of the layers of a stream, whose steps are kept raw and read by queries that were multiplied by W_k.

    s_hj = q_h . W_k,h (C_j + P_j) = (W_k,h^T q_h) . C_j + q_h . W_k,h P_j
    y    = sum_h W_o,h (W_v,h sum_j a_hj (C_j + P_j) + b_v,h sum_j a_hj)

with P_j the position of a step in its chunk, and a_hj the weight of the step: its share of its chunk times the
relevance of the chunk. One product gives what is known of the query, u_h = W_k,h^T q_h and the c numbers
q_h . W_k,h P; one product takes the sums of C and, for each age, those of a. A step of the stream then reads d numbers
for each step in its chunks, not the 2 d of keys and values, which need not be kept either. It takes h times as many
operations and two larger products, so this form is for few heads and many rows (:func:`prefers_raw`).

Steps lie by age before chunks, ``[b, c, n, d]``: the softmax inside chunks then runs over an axis before the last,
where torch processes a register of chunks at a time (:mod:`recollect.ops.weighted_softmax`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import scatter_topk
from recollect.cores.hcam.chunk_cache import RingChunkCache, fold_query
from recollect.cores.hcam.config import HierarchicalChunkMemoryConfig
from recollect.cores.hcam.core import HierarchicalChunkLayer
from recollect.layers.rings import Rows
from recollect.ops.huge_pages import zeros
from recollect.ops.packed_linear import without_autocast
from recollect.ops.reduced_linear import cache_dtype

FEW_HEADS = 4
"""Most heads for which raw steps are read faster than keys and values."""
MANY_ROWS = 8
"""Least rows of a stream for which they are."""


def prefers_raw(config: HierarchicalChunkMemoryConfig, batch_size: int) -> bool:
    """Return whether a stream of so many rows reads raw steps faster.

    So it does where a step reads all chunks, and where what the two products cost more, (h - 1) d^2 multiplications
    each, is at most one for each number that need not be read.
    """
    c, heads = config, config.num_heads
    reads_all = c.top_k >= c.num_chunks and batch_size >= MANY_ROWS
    return reads_all and heads <= FEW_HEADS and (heads - 1) * c.dim <= c.num_chunks * c.chunk_len


class RawChunks(RingChunkCache):
    """Raw steps of the chunks of one layer."""

    def __init__(self, layer: HierarchicalChunkLayer, batch_size: int, dtype: torch.dtype) -> None:
        c, memory = layer.config, layer.memory
        with without_autocast(memory.key.weight):
            heads = (c.num_heads, -1)
            weight, bias = (of.unflatten(0, heads) for of in fold_query(layer))  # h e d, h e
            keys, values = (of.weight.unflatten(0, heads) for of in (memory.key, memory.value))  # h e d
            outs, positions = memory.out.weight.unflatten(1, heads), memory.positions(c.chunk_len)  # d h e
            positions = weight.new_zeros(c.chunk_len, c.dim) if positions is None else positions
            known = torch.cat((keys, keys @ positions.T), 2)  # h e d+c
            query = (known.mT @ weight).flatten(0, 1), (known.mT @ bias.unsqueeze(2)).flatten()
            at_age = values @ positions.T + memory.value.bias.unflatten(0, heads).unsqueeze(2)  # h e c
            out = torch.einsum("dhe,hek->dhk", outs, torch.cat((values, at_age), 2)).flatten(1)
        super().__init__(layer, batch_size, dtype, query, out)
        like = memory.key.weight
        self.cached = cache_dtype(like.dtype)
        self.contents = zeros(batch_size, c.chunk_len, c.num_chunks, c.dim, like=like, dtype=self.cached)
        shape = (batch_size, c.chunk_len, c.num_chunks)
        self.missing = like.new_zeros(shape) if c.carry_across_episodes else None

    def steps_of(self, rows: Tensor, places: Tensor) -> Tensor:
        """Return a copy of the raw steps of chunks, ``[r, n, c, d]``, for places ``[r, n]`` of rows ``[r, 1]``."""
        return self.contents.transpose(1, 2)[rows, places]

    def write_steps(self, rows: Tensor, places: Tensor, chunks: Tensor, missing: Tensor | None) -> None:
        """Write the steps ``[r, c, d]`` of chunks; ``missing`` ``[r, c]`` is for :attr:`missing`."""
        self.contents.transpose(1, 2)[rows, places] = chunks.to(self.cached)
        if self.missing is not None and missing is not None:
            self.missing.transpose(1, 2)[rows, places] = missing

    def clear(self, row: int) -> None:
        """Remove the chunks of a row."""
        super().clear(row)
        self.contents[row].zero_()

    def read_steps(
        self, inputs: Tensor, index: Tensor | None, relevance: Tensor, most: int, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        """Attend to the steps of chunks."""
        c, n = self.config, self.config.num_chunks
        relevance = relevance if index is None else scatter_topk(index, relevance, n)
        queries = self.query(inputs).unflatten(-1, (c.num_heads, -1))
        if rows is None:
            return self._attend(queries, relevance, self.contents, self.missing)
        contents = self.contents[:, :, :most]  # chunks are written from place 0

        def attend(places: Tensor, query: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
            missing = None if self.missing is None else self.missing[..., :most].index_select(0, places)
            return self._attend(query, share, contents.index_select(0, places), missing)

        row_bytes = most * self.contents[0, :, 0].nbytes
        read, weights = self.read_in_groups(rows, row_bytes, queries, relevance[..., :most], attend)
        return read, F.pad(weights, (0, 0, 0, n - most)) if self.listened else weights

    def _attend(
        self, queries: Tensor, relevance: Tensor, contents: Tensor, missing: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Read chunks ``[r, c, n, d]`` by queries ``[r, h, d + c]``."""
        steps, shape = contents.flatten(1, 2), (*queries.shape[:2], *contents.shape[1:3])  # r h c n
        queries, offsets = queries.split((self.config.dim, self.config.chunk_len), -1)
        scores = torch.bmm(queries.to(self.cached), steps.mT).view(shape)
        scores = offsets.unsqueeze(-1) + scores  # in the dtype of the query, which is not reduced
        if missing is not None:
            scores += missing.unsqueeze(1)
        weights = scores.softmax(2)
        mixed = weights * relevance.unsqueeze(2)
        read = torch.bmm(mixed.flatten(2).to(self.cached), steps).to(self.dtype)
        return torch.cat((read, mixed.sum(-1).to(self.dtype)), -1).flatten(1), weights.mT
