"""Chunks of the layers of a lifelong stream: summaries beside the weights, steps in a store.

Steps are stored raw, and the query is projected once per step: with z the standardised input, g and s the gain and
shift of the norm,

    (W_q n(y)) . (W_k S_i) / sqrt(f) = u . S_i        u = W_k^T W_q (g * z + s) / sqrt(f)

and likewise inside the k chosen chunks; with ``relevance_heads`` there is a u for every head. The search is exact: one
product over n d numbers (8 MB for a million steps in chunks of 64 at d = 128), one top-k, k copies.
"""

import torch
from torch import Tensor

from recollect.cores.hcam.attention import choose_chunks, scatter_topk
from recollect.cores.hcam.chunk_cache import ChunkCache, StoredChunks, scatter_topk_chunks
from recollect.cores.hcam.chunk_store import ChunkStore
from recollect.cores.hcam.core import HierarchicalChunkLayer
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import PackedLinear, without_autocast


class ChunkIndex:
    """Places of the chunks of each row: always the first ``counts[row]`` of ``capacity`` places."""

    def __init__(self, batch_size: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.lengths = torch.zeros(batch_size, capacity, dtype=torch.int64, device=device)
        """``[b, n]``, steps in the chunk of each place."""
        self.counts = [0] * batch_size
        """Chunks of each row."""
        self.next = [0] * batch_size
        """Place of each row's next chunk."""
        self.held = 0
        """Most chunks of any row, the end of all searches."""
        self.absent: Tensor | None = None
        """Bool ``[b, 1, held]``, places without a chunk; None when all rows have equally many."""

    def claim(self, row: int) -> int:
        """Return the place of the row's next chunk: a free one, or that of the oldest."""
        place = self.next[row]
        self.next[row] = (place + 1) % self.capacity
        self.counts[row] = min(self.counts[row] + 1, self.capacity)
        return place

    def clear(self, row: int) -> None:
        """Remove the chunks of a row."""
        self.counts[row] = self.next[row] = 0

    def recount(self) -> None:
        """Count again which chunks of every row are stored: update ``held`` and ``absent``."""
        self.held, self.absent = max(self.counts), None
        if min(self.counts) < self.held:
            device = self.lengths.device
            counts = torch.tensor(self.counts, device=device)
            self.absent = torch.arange(self.held, device=device) >= counts[:, None, None]

    def absent_of(self, rows: Rows | None) -> Tensor | None:
        """Return the mask of places without a chunk in some rows; None: in all rows."""
        return self.absent if self.absent is None or rows is None else self.absent[rows.index]

    def order(self, rows: Rows | None = None) -> Tensor:
        """Return places from the oldest chunk to the newest, long ``[r, held]``; those without a chunk come first."""
        numbers = self.next if rows is None else [self.next[row] for row in rows.numbers]
        start = torch.tensor(numbers, device=self.lengths.device)
        return (start[:, None] + torch.arange(self.held, device=start.device)) % max(self.held, 1)


class LifelongChunkCache(ChunkCache):
    """The chunks of layer ``number``: their means, with the index and store that all layers share."""

    def __init__(
        self,
        layer: HierarchicalChunkLayer,
        number: int,
        chunk_index: ChunkIndex,
        store: ChunkStore,
        dtype: torch.dtype,
    ) -> None:
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        batch_size, n = chunk_index.lengths.shape
        with without_autocast(memory.key.weight):
            # With one relevance for all heads, the bias of the values is part of the output bias.
            apart = c.reading.relevance_heads
            bias = memory.out.bias if apart else memory.out.bias + memory.out.weight @ memory.value.bias
            super().__init__(layer, batch_size, dtype, bias)
            self.relevances = r = c.num_heads if apart else 1
            queries = memory.chunk_query.weight
            keys = torch.eye(c.dim).to(queries) if memory.chunk_key is None else memory.chunk_key.weight
            both = (of.unflatten(0, (r, -1)) for of in (keys, queries))
            mix = torch.einsum("rek,req->rkq", *both).flatten(0, 1) * (c.dim // r) ** -0.5  # r*d d
            self.fold_query = PackedLinear(mix * norm.weight, mix @ norm.bias, rows=batch_size, uses=1000)  # z to u
        heads = (c.num_heads, -1)
        self.into_keys = memory.key.weight.unflatten(0, heads).detach().to(dtype)  # h e d
        self.from_values = memory.value.weight.unflatten(0, heads).mT.detach().to(dtype).contiguous()  # h d e
        self.value_bias = memory.value.bias.unflatten(0, heads).detach().to(dtype) if apart else None  # h e
        positions = memory.positions(c.chunk_len)
        self.positions = None if positions is None else positions.to(dtype)
        self.number, self.chunk_index, self.store = number, chunk_index, store
        self.means = memory.key.weight.new_zeros(batch_size, n, c.dim)
        device = self.means.device
        self.first_place = torch.arange(batch_size, device=device)[:, None, None] * n
        self.age = torch.arange(c.chunk_len, 0, -1, device=device)

    def read(self, inputs: Tensor, held: StoredChunks, order: Tensor | None, rows: Rows | None) -> Tensor:
        """Return the update of the stream."""
        return self.read_steps(inputs.unsqueeze(1), held, order, rows)[:, 0]

    def read_steps(
        self, inputs: Tensor, held: StoredChunks, order: Tensor | None = None, rows: Rows | None = None
    ) -> Tensor:
        """Read by t steps that see the same chunks, ``[b, t, d] -> [b, t, d]``; Taps record only t = 1."""
        (b, t), r, c = inputs.shape[:2], self.relevances, self.config
        steps_in = inputs.flatten(0, 1)
        index, relevance = self._choose(self.fold_query(steps_in.to(self.means.dtype)).view(b, t * r, -1), rows)
        if held.mask is not None:
            relevance = relevance * held.mask
        entries = index + (self.first_place if rows is None else self.first_place[rows.index])
        chosen = self._take_entries(entries).to(self.dtype).view(b * t * r, index.shape[-1], c.chunk_len, -1)
        if self.positions is not None:
            chosen += self.positions
        queries = self.query(steps_in.to(self.dtype)).unflatten(-1, (c.num_heads, -1))
        queries = torch.bmm(queries.transpose(0, 1), self.into_keys).transpose(0, 1)  # bt h d
        steps = chosen.flatten(1, 2)  # btr kc d
        # All heads share a relevance, or every head has its own steps.
        scores = torch.bmm(queries.reshape(b * t * r, -1, c.dim), steps.mT).unflatten(-1, chosen.shape[1:3])
        if c.carry_across_episodes:
            lengths = self.chunk_index.lengths.flatten()[entries].clamp(min=1)
            scores = scores.masked_fill((self.age > lengths[..., None]).flatten(0, 1).unsqueeze(1), self.lowest)
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        mixed = (weights * relevance.flatten(0, 1)[:, None, :, None]).to(self.dtype)
        read = torch.bmm(mixed.flatten(-2), steps).view(b * t, c.num_heads, -1)  # bt h d
        read = torch.bmm(read.transpose(0, 1), self.from_values).transpose(0, 1)  # bt h e
        share = relevance.view(b * t, r, -1)
        if self.value_bias is not None:
            read = torch.addcmul(read, share.sum(-1, keepdim=True).to(read.dtype), self.value_bias)
        if self.listened and t == 1:
            places, shown = self.chunk_index.held, weights.view(b, c.num_heads, *weights.shape[-2:])
            self.show(scatter_topk(index, relevance, places), scatter_topk_chunks(index, shown, places), order)
        return self.update(read.flatten(1), share, held.mask).view(b, t, -1)

    def take(self, index: Tensor, rows: Rows | None = None) -> Tensor:
        """Copy the steps of chunks ``[r, q, k]`` of this layer to the stream's device, ``[r*q*k, c, d]``."""
        return self._take_entries(index + (self.first_place if rows is None else self.first_place[rows.index]))

    def _take_entries(self, places: Tensor) -> Tensor:
        """As :meth:`take`, for places of the store."""
        entries = (places * self.config.num_layers + self.number).flatten()
        return self.store.take(entries.to(self.store.data.device)).to(self.means.device)

    def _choose(self, queries: Tensor, rows: Rows | None) -> tuple[Tensor, Tensor]:
        """Return places and relevances ``[r, q, k]`` for queries ``[r, q, d]``, over all chunks."""
        held, absent = self.chunk_index.held, self.chunk_index.absent_of(rows)
        means = self.means[:, :held]
        scores = torch.bmm(queries, (means if rows is None else means.index_select(0, rows.index)).mT)
        if absent is not None:
            scores.masked_fill_(absent, self.lowest)
        index, relevance = choose_chunks(scores, None, self.config.top_k, self.config.reading.relevance)
        if index is None:
            index = torch.arange(held, device=scores.device).expand_as(relevance)
        return index, relevance
