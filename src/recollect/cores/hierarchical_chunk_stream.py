"""The live form of the hierarchical chunk memory: every step and every chunk is projected once, when it arrives.

A finished chunk is written in place over the oldest one, as raw steps (for ``state``), as keys and values of the
attention inside chunks, and as what a standardised input z is compared with when chunks are chosen:

    (W_q n(y)) . (W_k S) / sqrt(f) = z . k + k_0      k = g * W_q^T W_k S / sqrt(f),   k_0 = (W_q s) . (W_k S) / sqrt(f)

for a norm with gain g and shift s. A step then costs products with weights, one pass over the n keys k, and one over
the keys and values of all chunks, or of a copy of the chosen ones where n is much larger than k.
"""

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.ring_layer import RingAttention, Visibility, full_precision
from recollect.cores.rings import MirrorRing
from recollect.cores.stream import Stream
from recollect.layers.hierarchical_attention import choose_chunks, spread
from recollect.layers.products import Product

if TYPE_CHECKING:
    from recollect.cores.hierarchical_chunk_memory import (
        HierarchicalChunkLayer,
        HierarchicalChunkMemory,
        HierarchicalChunkMemoryState,
    )

GATHER_SHARE = 8
"""The chosen chunks are copied out of the memory when they are at most one over this of it."""


class ChunkShelf:
    """The chunks of one layer, in n places that are overwritten in turn.

    Args:
        layer: of the core.
        batch_size: b.
        dtype: of keys and values.
    """

    def __init__(self, layer: "HierarchicalChunkLayer", batch_size: int, dtype: torch.dtype) -> None:
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        b, n, d, heads = batch_size, c.num_chunks, c.dim, c.num_heads
        self.config, self.memory, self.batch_size, self.dtype = c, memory, batch_size, dtype
        scale = (d // heads) ** -0.5
        weight = memory.query.weight * norm.weight * scale
        bias = (memory.query.bias + (memory.query.weight * norm.bias).sum(-1)) * scale
        self.query = Product(weight.to(dtype), bias.to(dtype), rows=b, uses=1000)
        self.out = Product(memory.out.weight.to(dtype), memory.out.bias.to(dtype), rows=b, uses=1000)

        with full_precision(weight):
            first = memory.chunk_query.weight
            first = torch.cat((first * norm.weight, first @ norm.bias[:, None]), 1)
            keys = first.T if memory.chunk_key is None else first.T @ memory.chunk_key.weight
            self.relate = keys * d**-0.5  # d+1 d: a chunk's mean to k and k_0
            self.project = torch.cat((memory.key.weight, memory.value.weight))  # 2d d
            self.places = torch.cat((torch.zeros_like(memory.value.bias), memory.value.bias))
            places = memory.positions(c.chunk_len)
            self.places = self.places if places is None else self.places + places @ self.project.T  # (c) 2d

        self.gathers = GATHER_SHARE * c.top_k <= n
        like = memory.key.weight
        self.lowest = max(torch.finfo(kind).min for kind in (like.dtype, dtype))  # finite in both
        self.contents = like.new_zeros(b, n, c.chunk_len, d)
        self.means = like.new_zeros(b, n, d)
        self.keys = like.new_zeros(b, n, d)  # k
        self.bias = like.new_full((b, 1, n), self.lowest)  # k_0, the lowest number where there is no chunk
        # Two layouts: the heads of a row in one product, or all that belongs to a chunk in one piece.
        shape = (b, n, 2, heads, c.chunk_len, d // heads) if self.gathers else (2, b, heads, n, c.chunk_len, d // heads)
        self.pairs = torch.zeros(shape, dtype=dtype, device=like.device)
        self.missing = like.new_zeros(b, n, c.chunk_len) if c.carry_across_episodes else None
        self.first_row = torch.arange(b, device=like.device)[:, None] * n

    def write(self, rows: Tensor, places: Tensor, chunks: Tensor, means: Tensor, lengths: Tensor) -> None:
        """Put chunks into places: one per entry of ``rows [r]`` and ``places [r]``.

        Args:
            rows: long ``[r]``.
            places: long ``[r]``.
            chunks: ``[r, c, d]``.
            means: ``[r, d]``.
            lengths: long ``[r]``, steps in each; 0 is no chunk.
        """
        self.contents[rows, places] = chunks
        self.means[rows, places] = means
        related = F.linear(means, self.relate).to(self.keys.dtype)
        self.keys[rows, places] = related[:, :-1]
        self.bias[rows, 0, places] = related[:, -1].masked_fill(lengths == 0, self.lowest)
        both = F.linear(chunks, self.project) + self.places
        pairs = both.unflatten(-1, (2, self.config.num_heads, -1)).permute(2, 0, 3, 1, 4).to(self.dtype)  # 2 r h c e
        if self.gathers:
            self.pairs[rows, places] = pairs.transpose(0, 1)
        else:
            self.pairs[0][rows, :, places], self.pairs[1][rows, :, places] = pairs
        if self.missing is not None:
            age = torch.arange(self.config.chunk_len, 0, -1, device=rows.device)
            absent = age > lengths[:, None].clamp(min=1)
            self.missing[rows, places] = torch.zeros_like(absent, dtype=self.missing.dtype).masked_fill(
                absent, self.lowest
            )

    def clear(self, row: int) -> None:
        """Forget the chunks of a row. Raw steps may stay: ``lengths`` says that they do not count."""
        self.keys[row].zero_()
        self.bias[row].fill_(self.lowest)
        (self.pairs[row] if self.gathers else self.pairs[:, row]).zero_()

    def read(self, inputs: Tensor, some: Tensor | None, order: Tensor | None) -> Tensor:
        """What the chunks add.

        Args:
            inputs: ``[b, d]``, standardised.
            some: float ``[b, 1, 1]``, 1 for rows with a chunk and 0 for others; None when all have one.
            order: long ``[b, n]``, places from the oldest chunk to the newest, for the taps.
        """
        b, heads, n = self.batch_size, self.config.num_heads, self.config.num_chunks
        scores = torch.baddbmm(self.bias, inputs.unsqueeze(1).to(self.keys.dtype), self.keys.transpose(1, 2))  # b 1 n
        index, relevance = choose_chunks(scores, None, self.config.top_k, self.config.reading.relevance)
        if some is not None:
            relevance = relevance * some
        queries = self.query(inputs.to(self.dtype)).view(b, heads, 1, -1)
        if self.gathers and index is not None:
            read, weights = self._read_chosen(queries, index, relevance)
        else:
            relevance = relevance if index is None else spread(index, relevance, n)
            read, weights = self._read_all(queries, relevance)
        if self.memory.tap.listening or self.memory.relevance_tap.listening:
            self._show(index if self.gathers else None, relevance, weights, order)
        update = self.out(read)
        if some is not None or self.config.reading.relevance == "full_softmax":
            # The bias counts as much as the chunks do.
            share = relevance.sum(-1).to(update.dtype) - 1.0  # b 1
            update = torch.addcmul(update, share, self.memory.out.bias.to(update.dtype))
        return update

    def _read_all(self, queries: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        b, heads, n, c = self.batch_size, self.config.num_heads, self.config.num_chunks, self.config.chunk_len
        keys, values = self.pairs.view(2, b * heads, n * c, -1).unbind(0)
        scores = torch.bmm(queries.flatten(0, 1), keys.transpose(1, 2)).view(b, heads, n, c)
        if self.missing is not None:
            scores = scores + self.missing[:, None]
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        mixed = (weights * relevance.unsqueeze(-1)).to(self.dtype)  # b h n c times b 1 n 1
        return torch.bmm(mixed.view(b * heads, 1, n * c), values).view(b, -1), weights

    def _read_chosen(self, queries: Tensor, index: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        b, k = self.batch_size, index.shape[-1]
        index = (index.squeeze(1) + self.first_row).flatten()  # b*k
        keys, values = self.pairs.flatten(0, 1).index_select(0, index).unflatten(0, (b, k)).unbind(2)  # b k h c e
        scores = (keys @ queries.transpose(-1, -2).unsqueeze(1)).squeeze(-1)  # b k h c
        if self.missing is not None:
            scores = scores + self.missing.flatten(0, 1)[index].view(b, k, 1, -1)
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        mixed = (weights * relevance.transpose(1, 2).unsqueeze(-1)).to(self.dtype)  # b k 1 1
        return (mixed.unsqueeze(-2) @ values).sum(1).view(b, -1), weights.transpose(1, 2)

    def _show(self, index: Tensor | None, relevance: Tensor, weights: Tensor, order: Tensor | None) -> None:
        """Relevance ``[b, 1, n]`` and weights ``[b, h, 1, n, c]``, oldest chunk first (zeros where not chosen)."""
        n = self.config.num_chunks
        if index is not None:
            relevance = spread(index, relevance, n)
            places = index[..., None].expand_as(weights)  # b 1 k 1 to b h k c
            weights = weights.new_zeros(*weights.shape[:2], n, weights.shape[-1]).scatter(2, places, weights)
        if order is not None:
            relevance = relevance.gather(-1, order[:, None])
            weights = weights.gather(2, order[:, None, :, None].expand_as(weights))
        self.memory.relevance_tap(relevance)
        self.memory.tap(weights.unsqueeze(2))


class ShelfLayer:
    """One layer for one step.

    Args:
        layer: of the core.
        features: of the offsets memory_len ... 0.
        batch_size: b.
    """

    def __init__(self, layer: "HierarchicalChunkLayer", features: Tensor, batch_size: int) -> None:
        local, norm, feed_forward = layer.local, layer.norm_forward, layer.feed_forward
        self.layer = layer
        self.weight, self.bias, delta, keys = local.folded(features)
        self.attention = RingAttention(
            (self.weight, self.bias),
            batch_size=batch_size,
            num_heads=local.num_heads,
            window=layer.config.memory_len,
            offset_keys=keys,
            offset_bias=(keys @ delta[..., None])[..., 0],
            tap=local.tap,
        )
        self.dtype = self.attention.dtype
        self.out = Product(local.out.weight.to(self.dtype), rows=batch_size, uses=1000)
        self.shelf = ChunkShelf(layer, batch_size, self.dtype)
        weight = feed_forward.expand.weight * norm.weight
        bias = feed_forward.expand.bias + (feed_forward.expand.weight * norm.bias).sum(-1)
        contract = feed_forward.contract
        self.expand = Product(weight.to(self.dtype), bias.to(self.dtype), rows=batch_size, uses=1000)
        self.contract = Product(
            contract.weight.to(self.dtype), contract.bias.to(self.dtype), rows=batch_size, uses=1000
        )

    def __call__(
        self, x: Tensor, hidden: Tensor | None, empty: bool, some: Tensor | None, order: Tensor | None
    ) -> Tensor:
        """``[b, d] -> [b, d]``; ``empty`` if no row has a chunk, the rest as for the parts."""
        width = x.shape[-1:]
        x = x + self._drop(self.out(self.attention(x, hidden)))
        if not empty:
            x = x + self._drop(self.shelf.read(F.layer_norm(x, width), some, order))
        middle = self.expand(F.layer_norm(x, width).to(self.dtype)).relu_()
        return x + self._drop(self.contract(self._drop(middle)))

    def _drop(self, update: Tensor) -> Tensor:
        dropout = self.layer.config.dropout
        return F.dropout(update, dropout) if dropout and self.layer.training else update


class HierarchicalChunkStream(Stream):
    """A live :class:`HierarchicalChunkMemory`.

    Counters live in Python, so that no step waits for a device to learn whether a chunk ends.

    Args:
        core: whose weights are used; they are copied into the layout of the processor.
        batch_size: number of streams.
    """

    core: "HierarchicalChunkMemory"

    @torch.no_grad()
    def __init__(self, core: "HierarchicalChunkMemory", batch_size: int) -> None:
        c, features = core.config, core.features()
        self._layers = [
            ShelfLayer(cast("HierarchicalChunkLayer", layer), features, batch_size) for layer in core.layers
        ]
        # Raw inputs of all layers; the newest c are a chunk when it ends.
        self._raw = MirrorRing(batch_size, max(c.memory_len, c.chunk_len), (c.num_layers, c.dim), features)
        self._visible = Visibility(batch_size, c.memory_len, features.device, self._layers[0].dtype)
        super().__init__(core, batch_size)

    @property
    def state(self) -> "HierarchicalChunkMemoryState":
        """The memory as the core's state (a copy)."""
        w, device = self.core.config.memory_len, self._never.device
        rows, order = torch.arange(self.batch_size, device=device)[:, None], self._order()
        lengths = torch.tensor(self._lengths, device=device).gather(1, order)
        exists = lengths[..., None] > 0
        raw = self._raw.window()[:, -w:].unbind(2)
        memory = type(self._fresh.layers[0])
        layers = tuple(
            memory(
                window.clone(memory_format=torch.contiguous_format),
                torch.where(exists[..., None], layer.shelf.contents[rows, order], 0.0),
                torch.where(exists, layer.shelf.means[rows, order], 0.0),
            )
            for layer, window in zip(self._layers, raw, strict=True)
        )
        return type(self._fresh)(layers, lengths, torch.tensor(self._steps, device=device))

    @torch.no_grad()
    def load_state(self, state: "HierarchicalChunkMemoryState") -> None:
        """Continue from a state of the core: project all that it holds."""
        self.core.check_state(state, self.batch_size, self._never.device)
        c, device = self.core.config, self._never.device
        self._steps: list[int] = state.steps.tolist()
        self._lengths: list[list[int]] = state.lengths.tolist()
        self._next = [0] * self.batch_size  # places are in order of age now
        self._visible.load(state.steps.clamp(max=c.memory_len))
        windows = torch.stack([memory.window for memory in state.layers], 2)
        self._raw.load(F.pad(windows, (0, 0, 0, 0, self._raw.length - c.memory_len, 0)))
        rows = torch.arange(self.batch_size, device=device).repeat_interleave(c.num_chunks)
        places = torch.arange(c.num_chunks, device=device).repeat(self.batch_size)
        with full_precision(windows):
            for layer, memory in zip(self._layers, state.layers, strict=True):
                standard = F.layer_norm(memory.window, (c.dim,))
                layer.attention.load(F.linear(standard, layer.weight[c.dim :], layer.bias[c.dim :]))
                chunks, means = memory.contents.flatten(0, 1), memory.keys.flatten(0, 1)
                layer.shelf.write(rows, places, chunks, means, state.lengths.flatten())
        self._count()

    def buffers(self) -> list[Tensor]:
        """Raw steps, local keys and values, chunks in all their forms, and the counts."""
        kept = [self._raw.data, self._visible.count]
        for layer in self._layers:
            shelf = layer.shelf
            kept += [layer.attention.ring.data, shelf.contents, shelf.means, shelf.keys, shelf.bias, shelf.pairs]
            kept += [] if shelf.missing is None else [shelf.missing]
        return kept

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step ``[b, i] -> [b, dim]``."""
        with full_precision(inputs):
            if is_first is not self._never and any(firsts := is_first.tolist()):
                self._begin([row for row, first in enumerate(firsts) if first], is_first)
            return self._step(inputs.to(self._raw.data.dtype))

    def _step(self, inputs: Tensor) -> Tensor:
        x, hidden, raw = self.core.project(inputs), self._visible.step(), []
        order = self._order() if self._listened() else None
        for layer in self._layers:
            raw.append(x)
            x = layer(x, hidden, self._empty, self._some, order)
        self._raw.push(torch.stack(raw, 1))
        self._steps = [steps + 1 for steps in self._steps]
        completes, chunk_len = self.core.config.completes, self.core.config.chunk_len
        if ended := [row for row, steps in enumerate(self._steps) if completes(steps)]:
            self._write(ended, [chunk_len] * len(ended))
        return x

    def _begin(self, rows: list[int], is_first: Tensor) -> None:
        """The rows start an episode."""
        c = self.core.config
        if not c.carry_across_episodes:
            for row in rows:
                self._lengths[row] = [0] * c.num_chunks
                self._next[row] = 0
                for layer in self._layers:
                    layer.shelf.clear(row)
            self._count()
        elif cut := [row for row in rows if self._steps[row] and not c.completes(self._steps[row])]:
            self._write(cut, c.in_progress(torch.tensor([self._steps[row] for row in cut])).tolist())
        for row in rows:
            self._steps[row] = 0
        self._visible.clear(is_first)
        self._raw.clear(is_first)
        for layer in self._layers:
            layer.attention.ring.clear(is_first.repeat(c.num_heads))

    def _write(self, rows: list[int], lengths: list[int]) -> None:
        """The newest steps of some rows become chunks, in place of the oldest."""
        c, device = self.core.config, self._never.device
        places = [self._next[row] for row in rows]
        for row, place, length in zip(rows, places, lengths, strict=True):
            self._lengths[row][place] = length
            self._next[row] = (place + 1) % c.num_chunks
        index, size = torch.tensor(rows, device=device), torch.tensor(lengths, device=device)
        steps = self._raw.window()[:, -c.chunk_len :][index]  # r c layers d
        exists = torch.arange(c.chunk_len, 0, -1, device=device) <= size[:, None]
        steps = torch.where(exists[..., None, None], steps, 0.0)
        means = steps.sum(1) / size[:, None, None]
        where = torch.tensor(places, device=device)
        for i, layer in enumerate(self._layers):
            layer.shelf.write(index, where, steps[:, :, i], means[:, i], size)
        self._count()

    def _count(self) -> None:
        """Which rows have a chunk at all."""
        some = [any(lengths) for lengths in self._lengths]
        self._empty, self._some = not any(some), None
        if not all(some):
            like = self._layers[0].shelf.bias
            self._some = torch.tensor(some, device=like.device).to(like.dtype)[:, None, None]

    def _order(self) -> Tensor:
        """Places of every row from the oldest chunk to the newest, ``[b, n]``."""
        n = self.core.config.num_chunks
        return torch.tensor([[(start + i) % n for i in range(n)] for start in self._next], device=self._never.device)

    def _listened(self) -> bool:
        return any(
            layer.layer.memory.tap.listening or layer.layer.memory.relevance_tap.listening for layer in self._layers
        )
