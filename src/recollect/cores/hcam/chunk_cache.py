"""Chunks of the layers of a stream.

A complete chunk is written in place over the oldest one, as raw steps (for ``state``), as keys and values of the
attention inside chunks, and as a key k with bias k_0 for a standardised input z, when chunks are chosen:

    (W_q n(y)) . (W_k S) / sqrt(f) = z . k + k_0      k = g * W_q^T W_k S / sqrt(f),   k_0 = (W_q s) . (W_k S) / sqrt(f)

for a norm with gain g and shift s. (With ``relevance_heads`` keys have the e features of each head instead.) A step
then costs products with weights, one pass over the n keys k, and one over the keys and values of all chunks, or of a
copy of the chosen ones where n is much larger than k.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import choose_chunks, scatter_topk
from recollect.cores.hcam.core import HierarchicalChunkLayer
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import PackedLinear, without_autocast
from recollect.ops.reduced_linear import cache_dtype
from recollect.ops.short_softmax import softmax

COPY = 2**24
"""Bytes of chunks that are copied at once when some rows are read: the allocator returns copies of 32 MB to the system
each time, and each new page costs a fault; 256 rows of 270 KB took three times as long in one piece."""


class StoredChunks(NamedTuple):
    """How many chunks the rows of a step have stored."""

    most: int
    """Most of any row; 0: no row has one."""
    mask: Tensor | None
    """Float ``[r, 1, 1]``, 1 for rows with a chunk and 0 for others; None when all rows have one."""


def count_stored_chunks(counts: Sequence[int], like: Tensor) -> StoredChunks:
    """Summarize the numbers of chunks that rows have stored."""
    if all(counts):
        return StoredChunks(max(counts), None)
    mask = [float(count > 0) for count in counts]
    return StoredChunks(max(counts), torch.tensor(mask, dtype=like.dtype, device=like.device)[:, None, None])


class ChunkCache(ABC):
    """The chunks of one layer; subclasses store and read them.

    Args:
        layer: of the core.
        batch_size: b.
        dtype: of the products with weights.
        out_bias: ``[d]``, added to the output of every row that has a chunk.
    """

    def __init__(self, layer: HierarchicalChunkLayer, batch_size: int, dtype: torch.dtype, out_bias: Tensor) -> None:
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        self.layer, self.config, self.memory = layer, c, memory
        self.batch_size, self.dtype, self.head = batch_size, dtype, c.dim // c.num_heads
        scale = (c.dim // c.num_heads) ** -0.5
        weight = memory.query.weight * norm.weight * scale
        bias = (memory.query.bias + (memory.query.weight * norm.bias).sum(-1)) * scale
        self.query = PackedLinear(weight.to(dtype), bias.to(dtype), rows=batch_size, uses=1000)
        self.out_bias = out_bias.detach().to(dtype)
        self.out = PackedLinear(memory.out.weight.to(dtype), self.out_bias, rows=batch_size, uses=1000)
        like = memory.key.weight
        self.lowest = max(torch.finfo(kind).min for kind in (like.dtype, dtype))  # finite in both

    @abstractmethod
    def read(self, inputs: Tensor, held: StoredChunks, order: Tensor | None, rows: Rows | None) -> Tensor:
        """Return the update of the stream, ``[r, d]``.

        Args:
            inputs: ``[r, d]``, standardised.
            held: by these rows; at least one chunk.
            order: long ``[r, n]``, places from the oldest chunk to the newest, for the Taps.
            rows: of the inputs; None: all.
        """

    def update(self, read: Tensor, relevance: Tensor, has_chunks: Tensor | None) -> Tensor:
        """Project the heads' sums ``[r, d]``, with the bias times the sum of relevances ``[r, 1 or h, k]``."""
        update = self.out(read)
        if has_chunks is not None or self.config.reading.relevance == "full_softmax":
            share = relevance.sum(-1).mean(-1, keepdim=True).to(update.dtype) - 1.0  # r 1
            update = torch.addcmul(update, share, self.out_bias)
        return update

    @property
    def listened(self) -> bool:
        """Whether relevances or weights are recorded."""
        return self.memory.tap.has_listeners or self.memory.relevance_tap.has_listeners

    def show(self, relevance: Tensor, weights: Tensor, order: Tensor | None) -> None:
        """Give relevance ``[b, 1 or h, n]`` and weights ``[b, h, n, c]`` to the Taps, oldest chunk first."""
        if order is not None:
            relevance = relevance.gather(-1, order[:, None].expand_as(relevance))
            weights = weights.gather(2, order[:, None, :, None].expand_as(weights))
        self.memory.relevance_tap(relevance.unsqueeze(2) if self.config.reading.relevance_heads else relevance)
        self.memory.tap(weights.unsqueeze(2))


class RingChunkCache(ChunkCache):
    """The chunks of one layer, in n places of each row that are overwritten in turn."""

    def __init__(self, layer: HierarchicalChunkLayer, batch_size: int, dtype: torch.dtype) -> None:
        super().__init__(layer, batch_size, dtype, layer.memory.out.bias)
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        b, n, d, heads = batch_size, c.num_chunks, c.dim, c.num_heads
        with without_autocast(memory.key.weight):
            query = memory.chunk_query.weight
            query = torch.cat((query * norm.weight, query @ norm.bias[:, None]), 1)
            self.chunk_query = None
            if c.reading.relevance_heads:
                query = query * (d // heads) ** -0.5
                self.chunk_query = PackedLinear(query[:, :-1], query[:, -1], rows=batch_size, uses=1000)
                keys = torch.eye(d).to(query) if memory.chunk_key is None else memory.chunk_key.weight
                self.fold_mean = F.pad(keys, (0, 0, 0, 1))  # k_0 is 0: the shift of the norm is in the query
            else:
                keys = query.T if memory.chunk_key is None else query.T @ memory.chunk_key.weight
                self.fold_mean = keys * d**-0.5  # d+1 d: a chunk's mean to k and k_0
            self.project = torch.cat((memory.key.weight, memory.value.weight))  # 2d d: a step to key and value
            bias = torch.cat((torch.zeros_like(memory.value.bias), memory.value.bias))
            positions = memory.positions(c.chunk_len)
            self.project_bias = bias if positions is None else bias + positions @ self.project.T  # (c) 2d

        self.gathers = c.stream_gathers
        like = memory.key.weight
        self.cached = cache_dtype(dtype)
        self.contents = like.new_zeros(b, n, c.chunk_len, d, dtype=cache_dtype(like.dtype))
        self.means = like.new_zeros(b, n, d)
        self.keys = like.new_zeros(b, n, d)  # k, or the features of all heads
        self.bias = like.new_full((b, 1, n), self.lowest)  # k_0 (or 0), the lowest number where there is no chunk
        # Two layouts: the heads of a row in one product, or the keys and values of a chunk in one piece.
        shape = (b, n, 2, heads, c.chunk_len, d // heads) if self.gathers else (2, b, heads, n, c.chunk_len, d // heads)
        self.keys_values = torch.zeros(shape, dtype=self.cached, device=like.device)
        self.missing = like.new_zeros(b, n, c.chunk_len) if c.carry_across_episodes else None
        self.first_row = torch.arange(b, device=like.device)[:, None] * n

    def write(self, rows: Tensor, places: Tensor, chunks: Tensor, means: Tensor, lengths: Tensor) -> None:
        """Write chunks ``[r, c, d]`` with means ``[r, d]`` and lengths ``[r]`` (0 is no chunk) to rows and places."""
        flat = rows * self.config.num_chunks + places
        self.contents.flatten(0, 1).index_copy_(0, flat, chunks.to(self.contents.dtype))
        self.means.flatten(0, 1).index_copy_(0, flat, means.to(self.means.dtype))
        folded = F.linear(means, self.fold_mean).to(self.keys.dtype)
        self.keys.flatten(0, 1).index_copy_(0, flat, folded[:, :-1])
        self.bias.flatten().index_copy_(0, flat, folded[:, -1].masked_fill(lengths == 0, self.lowest))
        both = F.linear(chunks, self.project) + self.project_bias
        entries = both.unflatten(-1, (2, self.config.num_heads, -1)).permute(2, 0, 3, 1, 4).to(self.cached)  # 2 r h c e
        if self.gathers:
            self.keys_values.flatten(0, 1).index_copy_(0, flat, entries.transpose(0, 1))
        else:
            self.keys_values[0][rows, :, places], self.keys_values[1][rows, :, places] = entries
        if self.missing is not None:
            age = torch.arange(self.config.chunk_len, 0, -1, device=rows.device)
            absent = age > lengths[:, None].clamp(min=1)
            self.missing[rows, places] = torch.zeros_like(absent, dtype=self.missing.dtype).masked_fill(
                absent, self.lowest
            )

    def clear(self, row: int) -> None:
        """Remove the chunks of a row; its raw steps stay, and are hidden by the lengths of the stream."""
        self.keys[row].zero_()
        self.bias[row].fill_(self.lowest)
        (self.keys_values[row] if self.gathers else self.keys_values[:, row]).zero_()

    def read(self, inputs: Tensor, held: StoredChunks, order: Tensor | None, rows: Rows | None) -> Tensor:
        """Return the update of the stream."""
        b, heads, n = inputs.shape[0], self.config.num_heads, self.config.num_chunks
        index, relevance = choose_chunks(
            self._scores(inputs.to(self.keys.dtype), rows), None, self.config.top_k, self.config.reading.relevance
        )
        if held.mask is not None:
            relevance = relevance * held.mask
        queries = self.query(inputs.to(self.dtype)).to(self.cached).view(b, heads, 1, -1)
        if rows is not None and index is None and held.most < n:
            relevance, index = relevance.topk(held.most)  # the others are exactly 0
        if self.gathers and index is not None:
            read, weights = self._read_chosen(queries, index, relevance, rows)
        elif rows is not None and index is not None:
            read, weights = self._read_chosen_of(rows, queries, index, relevance)
        else:
            relevance = relevance if index is None else scatter_topk(index, relevance, n)
            read, weights = self._read_all(queries, relevance, rows)
        if self.listened:
            if index is not None and (self.gathers or rows is not None):
                self.show(scatter_topk(index, relevance, n), scatter_topk_chunks(index, weights, n), order)
            else:
                self.show(relevance, weights, order)
        return self.update(read.to(self.dtype), relevance, held.mask)

    def _scores(self, inputs: Tensor, rows: Rows | None) -> Tensor:
        """Return the scores of all places, ``[r, d] -> [r, 1 or h, n]``."""
        known, bias = self.keys, self.bias
        if rows is not None:
            known, bias = known.index_select(0, rows.index), bias.index_select(0, rows.index)
        if self.chunk_query is None:
            return torch.baddbmm(bias, inputs.unsqueeze(1), known.transpose(1, 2))
        features, keys = (of.unflatten(-1, (self.config.num_heads, -1)) for of in (self.chunk_query(inputs), known))
        return torch.einsum("bhe,bnhe->bhn", features, keys) + bias

    def _read_all(self, queries: Tensor, relevance: Tensor, rows: Rows | None) -> tuple[Tensor, Tensor]:
        if rows is None:
            return self._attend(queries, relevance, self.keys_values, self.missing)
        together = max(1, COPY // max(1, self.keys_values[:, 0].nbytes))
        parts = []
        of_rows = (rows.index.split(together), queries.split(together), relevance.split(together))
        for index, query, share in zip(*of_rows, strict=True):
            missing = None if self.missing is None else self.missing[index]
            parts.append(self._attend(query, share, self.keys_values.index_select(1, index), missing))
        if len(parts) == 1:
            return parts[0]
        reads, weights = zip(*parts, strict=True)
        return torch.cat(reads), torch.cat(weights)

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

    def _read_chosen_of(self, rows: Rows, queries: Tensor, index: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
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


def scatter_topk_chunks(index: Tensor, weights: Tensor, n: int) -> Tensor:
    """Scatter weights ``[b, h, k, c]`` of chosen chunks ``[b, 1, k]`` to their places in zeros ``[b, h, n, c]``."""
    places = index[..., None].expand_as(weights)  # b 1 k 1 to b h k c
    return weights.new_zeros(*weights.shape[:2], n, weights.shape[-1]).scatter(2, places, weights)
