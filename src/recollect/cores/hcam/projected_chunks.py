"""Chunks of the layers of a stream, whose steps are kept as keys and values of the attention inside chunks.

A step of the stream makes one pass over the keys and values of all chunks, or over a copy of the chosen ones where n is
much larger than k. The raw steps are kept beside them, for ``state``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import scatter_topk
from recollect.cores.hcam.chunk_cache import RingChunkCache, scatter_topk_chunks
from recollect.cores.hcam.core import HierarchicalChunkLayer
from recollect.layers.rings import Rows
from recollect.ops.huge_pages import zeros
from recollect.ops.packed_linear import without_autocast
from recollect.ops.reduced_linear import cache_dtype
from recollect.ops.short_softmax import softmax


class ProjectedChunks(RingChunkCache):
    """Keys and values of the chunks of one layer."""

    def __init__(self, layer: HierarchicalChunkLayer, batch_size: int, dtype: torch.dtype) -> None:
        super().__init__(layer, batch_size, dtype)
        c, memory = layer.config, layer.memory
        b, n, d, heads = batch_size, c.num_chunks, c.dim, c.num_heads
        with without_autocast(memory.key.weight):
            self.project = torch.cat((memory.key.weight, memory.value.weight))  # 2d d: a step to key and value
            bias = torch.cat((torch.zeros_like(memory.value.bias), memory.value.bias))
            positions = memory.positions(c.chunk_len)
            self.project_bias = bias if positions is None else bias + positions @ self.project.T  # (c) 2d
        self.gathers = c.stream_gathers
        like = memory.key.weight
        self.cached = cache_dtype(dtype)
        self.contents = zeros(b, n, c.chunk_len, d, like=like, dtype=cache_dtype(like.dtype))
        # Two layouts: the heads of a row in one product, or the keys and values of a chunk in one piece.
        shape = (b, n, 2, heads, c.chunk_len, d // heads) if self.gathers else (2, b, heads, n, c.chunk_len, d // heads)
        self.keys_values = zeros(*shape, like=like, dtype=self.cached)
        self.missing = like.new_zeros(b, n, c.chunk_len) if c.carry_across_episodes else None
        self.first_row = torch.arange(b, device=like.device)[:, None] * n

    def steps_of(self, rows: Tensor, places: Tensor) -> Tensor:
        """Return a copy of the raw steps of chunks, ``[r, n, c, d]``, for places ``[r, n]`` of rows ``[r, 1]``."""
        return self.contents[rows, places]

    def buffers(self) -> list[Tensor]:
        """Return every tensor that is kept between steps."""
        return [*super().buffers(), self.keys_values]

    def write_steps(self, rows: Tensor, places: Tensor, chunks: Tensor, missing: Tensor | None) -> None:
        """Write the steps ``[r, c, d]`` of chunks; ``missing`` ``[r, c]`` is for :attr:`missing`."""
        flat = rows * self.config.num_chunks + places
        self.contents.flatten(0, 1).index_copy_(0, flat, chunks.to(self.contents.dtype))
        both = F.linear(chunks, self.project) + self.project_bias
        entries = both.unflatten(-1, (2, self.config.num_heads, -1)).permute(2, 0, 3, 1, 4).to(self.cached)  # 2 r h c e
        if self.gathers:
            self.keys_values.flatten(0, 1).index_copy_(0, flat, entries.transpose(0, 1))
        else:
            self.keys_values[0][rows, :, places], self.keys_values[1][rows, :, places] = entries
        if self.missing is not None and missing is not None:
            self.missing[rows, places] = missing

    def clear(self, row: int) -> None:
        """Remove the chunks of a row; its raw steps stay, and are hidden by the lengths of the stream."""
        super().clear(row)
        (self.keys_values[row] if self.gathers else self.keys_values[:, row]).zero_()

    def read_steps(
        self, inputs: Tensor, index: Tensor | None, relevance: Tensor, most: int, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        """Attend to the steps of chunks."""
        n = self.config.num_chunks
        queries = self.query(inputs).to(self.cached).view(len(inputs), self.config.num_heads, 1, -1)
        if rows is not None and index is None and most < n:
            relevance, index = relevance.topk(most)  # the others are exactly 0
        if index is None or (rows is None and not self.gathers):
            relevance = relevance if index is None else scatter_topk(index, relevance, n)
            return self._read_all(queries, relevance, rows)
        if self.gathers or rows is None:
            read, weights = self._read_chosen(queries, index, relevance, rows)
        else:
            read, weights = self._read_chosen_of(queries, index, relevance, rows)
        return read, scatter_topk_chunks(index, weights, n) if self.listened else weights

    def _read_all(self, queries: Tensor, relevance: Tensor, rows: Rows | None) -> tuple[Tensor, Tensor]:
        if rows is None:
            return self._attend(queries, relevance, self.keys_values, self.missing)

        def attend(index: Tensor, query: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
            missing = None if self.missing is None else self.missing[index]
            return self._attend(query, share, self.keys_values.index_select(1, index), missing)

        return self.read_in_groups(rows, self.keys_values[:, 0].nbytes, queries, relevance, attend)

    def _attend(
        self, queries: Tensor, relevance: Tensor, entries: Tensor, missing: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Read the chunks ``[2, b, h, n, c, e]`` of some rows."""
        b, heads, n, c = queries.shape[0], self.config.num_heads, self.config.num_chunks, self.config.chunk_len
        keys, values = entries.view(2, b * heads, n * c, -1).unbind(0)
        scores = torch.bmm(queries.flatten(0, 1), keys.transpose(1, 2)).view(b, heads, n, c)
        if missing is not None:
            scores = scores + missing[:, None]
        weights = softmax(scores.to(torch.promote_types(scores.dtype, torch.float32)))
        mixed = (weights * relevance.unsqueeze(-1)).to(self.cached)  # b h n c times b (1 or h) n 1
        return torch.bmm(mixed.view(b * heads, 1, n * c), values).view(b, -1), weights

    def _read_chosen(
        self, queries: Tensor, index: Tensor, relevance: Tensor, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        b, k = queries.shape[0], index.shape[-1]
        first = self.first_row if rows is None else self.first_row[rows.index]
        index = (index.squeeze(1) + first).flatten()  # b*k
        keys, values = self.keys_values.flatten(0, 1).index_select(0, index).unflatten(0, (b, k)).unbind(2)  # b k h c e
        scores = (keys @ queries.transpose(-1, -2).unsqueeze(1)).squeeze(-1)  # b k h c
        if self.missing is not None:
            scores = scores + self.missing.flatten(0, 1)[index].view(b, k, 1, -1)
        weights = softmax(scores.to(torch.promote_types(scores.dtype, torch.float32)))
        mixed = (weights * relevance.transpose(1, 2).unsqueeze(-1)).to(self.cached)  # b k 1 1
        return (mixed.unsqueeze(-2) @ values).sum(1).view(b, -1), weights.transpose(1, 2)

    def _read_chosen_of(self, queries: Tensor, index: Tensor, relevance: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Read a copy of the chosen chunks ``[r, 1 or h, k]`` of some rows, where the heads of a row lie together."""
        r, heads, c, n = queries.shape[0], self.config.num_heads, self.config.chunk_len, self.config.num_chunks
        chosen = rows.of_parts(heads).view(r, heads, 1) * n + index  # r h k
        entries = self.keys_values.flatten(1, 3).index_select(1, chosen.flatten()).view(2, r * heads, -1, c, self.head)
        keys, values = entries.flatten(2, 3).unbind(0)  # r*h kc e
        scores = torch.bmm(queries.flatten(0, 1), keys.transpose(1, 2)).view(r, heads, -1, c)
        if self.missing is not None:
            scores = scores + self.missing.flatten(0, 1)[rows.index[:, None, None] * n + index]
        weights = softmax(scores.to(torch.promote_types(scores.dtype, torch.float32)))
        mixed = (weights * relevance.unsqueeze(-1)).to(self.cached)
        return torch.bmm(mixed.view(r * heads, 1, -1), values).view(r, -1), weights
