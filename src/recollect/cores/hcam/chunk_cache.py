"""Chunks of the layers of a stream.

A complete chunk is written in place over the oldest one: its steps, and a key k with bias k_0 for a standardised input
z, by which chunks are chosen:

    (W_q n(y)) . (W_k S) / sqrt(f) = z . k + k_0      k = g * W_q^T W_k S / sqrt(f),   k_0 = (W_q s) . (W_k S) / sqrt(f)

for a norm with gain g and shift s. (With ``relevance_heads`` keys have the e features of each head instead.) How steps
are kept and read is in ``projected_chunks.py``, as keys and values, and in ``raw_chunks.py``, for many rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import choose_chunks, scatter_topk
from recollect.cores.hcam.core import HierarchicalChunkLayer
from recollect.layers.rings import Rows
from recollect.ops.huge_pages import zeros
from recollect.ops.packed_linear import PackedLinear, without_autocast

COPY = 2**24
"""Bytes of chunks that are copied at once when some rows are read: the allocator returns copies of 32 MB to the system
each time, and each new page costs a fault; 256 rows of 270 KB took three times as long in one piece."""


Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


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


def fold_query(layer: HierarchicalChunkLayer) -> tuple[Tensor, Tensor]:
    """Fold norm and scale into the queries: weight ``[d, d]`` and bias ``[d]`` for a standardised input."""
    memory, norm = layer.memory, layer.norm_memory
    scale = (layer.config.dim // layer.config.num_heads) ** -0.5
    bias = memory.query.bias + (memory.query.weight * norm.bias).sum(-1)
    return memory.query.weight * norm.weight * scale, bias * scale


class ChunkCache(ABC):
    """The chunks of one layer; subclasses store and read them.

    Args:
        layer: of the core.
        batch_size: b.
        dtype: of the products with weights.
        out_bias: ``[d]``, added to the output of every row that has a chunk.
        query: weight and bias of the queries of a standardised input; None: ``[d, d]``, ``[d]``, of all heads.
        out: weight ``[d, ...]`` of the output; None: ``[d, d]``.
    """

    def __init__(
        self,
        layer: HierarchicalChunkLayer,
        batch_size: int,
        dtype: torch.dtype,
        out_bias: Tensor,
        query: tuple[Tensor, Tensor] | None = None,
        out: Tensor | None = None,
    ) -> None:
        c, memory = layer.config, layer.memory
        self.layer, self.config, self.memory = layer, c, memory
        self.batch_size, self.dtype, self.head = batch_size, dtype, c.dim // c.num_heads
        weight, bias = fold_query(layer) if query is None else query
        out = memory.out.weight if out is None else out
        self.query = PackedLinear(weight.to(dtype), bias.to(dtype), rows=batch_size, uses=1000)
        self.out_bias = out_bias.detach().to(dtype)
        self.out = PackedLinear(out.to(dtype), self.out_bias, rows=batch_size, uses=1000)
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
    """The chunks of one layer, in n places of each row that are overwritten in turn, oldest first from place 0.

    A subclass keeps their steps, and reads them.
    """

    contents: Tensor
    """Raw steps."""
    cached: torch.dtype
    """Of the numbers that a step reads."""
    missing: Tensor | None
    """The lowest number for steps that a chunk does not have, else 0; None where every chunk has all."""

    def __init__(
        self,
        layer: HierarchicalChunkLayer,
        batch_size: int,
        dtype: torch.dtype,
        query: tuple[Tensor, Tensor] | None = None,
        out: Tensor | None = None,
    ) -> None:
        super().__init__(layer, batch_size, dtype, layer.memory.out.bias, query, out)
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        b, n, d, heads = batch_size, c.num_chunks, c.dim, c.num_heads
        with without_autocast(memory.key.weight):
            query_weight = memory.chunk_query.weight
            folded = torch.cat((query_weight * norm.weight, query_weight @ norm.bias[:, None]), 1)
            self.chunk_query = None
            if c.reading.relevance_heads:
                folded = folded * (d // heads) ** -0.5
                self.chunk_query = PackedLinear(folded[:, :-1], folded[:, -1], rows=batch_size, uses=1000)
                keys = torch.eye(d).to(folded) if memory.chunk_key is None else memory.chunk_key.weight
                self.fold_mean = F.pad(keys, (0, 0, 0, 1))  # k_0 is 0: the shift of the norm is in the query
            else:
                keys = folded.T if memory.chunk_key is None else folded.T @ memory.chunk_key.weight
                self.fold_mean = keys * d**-0.5  # d+1 d: a chunk's mean to k and k_0
        like = memory.key.weight
        self.means = zeros(b, n, d, like=like)
        self.keys = zeros(b, n, d, like=like)  # k, or the features of all heads
        self.bias = like.new_full((b, 1, n), self.lowest)  # k_0 (or 0), the lowest number where there is no chunk

    @abstractmethod
    def write_steps(self, rows: Tensor, places: Tensor, chunks: Tensor, missing: Tensor | None) -> None:
        """Write the steps ``[r, c, d]`` of chunks; ``missing`` ``[r, c]`` is for :attr:`missing`."""

    @abstractmethod
    def read_steps(
        self, inputs: Tensor, index: Tensor | None, relevance: Tensor, most: int, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        """Attend to the steps of chunks.

        Args:
            inputs: ``[r, d]``, standardised, in the dtype of the products.
            index: places of the chosen chunks, long ``[r, 1 or h, k]``; None: all.
            relevance: of these, ``[r, 1 or h, k or n]``.
            most: chunks that any of these rows has stored.
            rows: of the inputs; None: all.

        Returns:
            What the heads read, for :attr:`out`; and the weights ``[r, h, n, c]``, of which the Taps see all.
        """

    def read_in_groups(
        self, rows: Rows, row_bytes: int, queries: Tensor, relevance: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        """Attend to copies of the chunks of some rows, of as many rows at a time as :data:`COPY` bytes hold.

        Args:
            rows: of the queries.
            row_bytes: that are copied for one row.
            queries: ``[r, ...]``.
            relevance: ``[r, ...]``.
            attend: reads the chunks of rows, long ``[g]``, by their queries and relevances.

        Returns:
            Reads and weights of all rows.
        """
        together = max(1, COPY // max(1, row_bytes))
        groups = zip(*(of.split(together) for of in (rows.index, queries, relevance)), strict=True)
        parts = [attend(*group) for group in groups]
        if len(parts) == 1:
            return parts[0]
        reads, weights = zip(*parts, strict=True)
        return torch.cat(reads), torch.cat(weights)

    @abstractmethod
    def steps_of(self, rows: Tensor, places: Tensor) -> Tensor:
        """Return a copy of the raw steps of chunks, ``[r, n, c, d]``, for places ``[r, n]`` of rows ``[r, 1]``."""

    def buffers(self) -> list[Tensor]:
        """Return every tensor that is kept between steps."""
        kept = [self.contents, self.means, self.keys, self.bias]
        return kept if self.missing is None else [*kept, self.missing]

    def write(self, rows: Tensor, places: Tensor, chunks: Tensor, means: Tensor, lengths: Tensor) -> None:
        """Write chunks ``[r, c, d]`` with means ``[r, d]`` and lengths ``[r]`` (0 is no chunk) to rows and places."""
        flat = rows * self.config.num_chunks + places
        self.means.flatten(0, 1).index_copy_(0, flat, means.to(self.means.dtype))
        folded = F.linear(means, self.fold_mean).to(self.keys.dtype)
        self.keys.flatten(0, 1).index_copy_(0, flat, folded[:, :-1])
        self.bias.flatten().index_copy_(0, flat, folded[:, -1].masked_fill(lengths == 0, self.lowest))
        missing = None
        if self.missing is not None:
            age = torch.arange(self.config.chunk_len, 0, -1, device=rows.device)
            absent = age > lengths[:, None].clamp(min=1)
            missing = torch.zeros_like(absent, dtype=self.missing.dtype).masked_fill(absent, self.lowest)
        self.write_steps(rows, places, chunks, missing)

    def clear(self, row: int) -> None:
        """Remove the chunks of a row."""
        self.keys[row].zero_()
        self.bias[row].fill_(self.lowest)

    def read(self, inputs: Tensor, held: StoredChunks, order: Tensor | None, rows: Rows | None) -> Tensor:
        """Return the update of the stream."""
        index, relevance = choose_chunks(
            self._scores(inputs.to(self.keys.dtype), rows), None, self.config.top_k, self.config.reading.relevance
        )
        if held.mask is not None:
            relevance = relevance * held.mask
        read, weights = self.read_steps(inputs.to(self.dtype), index, relevance, held.most, rows)
        if self.listened:
            dense = relevance if index is None else scatter_topk(index, relevance, self.config.num_chunks)
            self.show(dense, weights, order)
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


def scatter_topk_chunks(index: Tensor, weights: Tensor, n: int) -> Tensor:
    """Scatter weights ``[b, h, k, c]`` of chosen chunks ``[b, 1, k]`` to their places in zeros ``[b, h, n, c]``."""
    places = index[..., None].expand_as(weights)  # b 1 k 1 to b h k c
    return weights.new_zeros(*weights.shape[:2], n, weights.shape[-1]).scatter(2, places, weights)
