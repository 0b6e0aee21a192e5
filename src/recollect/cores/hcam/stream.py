"""The live form of the hierarchical chunk memory: every step and every chunk is projected once, when it arrives.

A finished chunk is written in place over the oldest one, as raw steps (for ``state``), as keys and values of the
attention inside chunks, and as what a standardised input z is compared with when chunks are chosen:

    (W_q n(y)) . (W_k S) / sqrt(f) = z . k + k_0      k = g * W_q^T W_k S / sqrt(f),   k_0 = (W_q s) . (W_k S) / sqrt(f)

for a norm with gain g and shift s. A step then costs products with weights, one pass over the n keys k, and one over
the keys and values of all chunks, or of a copy of the chosen ones where n is much larger than k.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import choose_chunks, scatter_topk
from recollect.cores.stream import Stream
from recollect.layers.ring_attention import RingAttention, Visibility, full_precision
from recollect.layers.rings import MirrorRing
from recollect.ops.packed_linear import PackedLinear, working_dtype

if TYPE_CHECKING:
    from recollect.cores.hcam.core import (
        HierarchicalChunkLayer,
        HierarchicalChunkMemory,
        HierarchicalChunkMemoryState,
    )

STREAM_GATHER_SHARE = 8
"""The chosen chunks are copied out of the memory when they are at most one over this of it."""


class ChunkCache(ABC):
    """How one layer reads its chunks; where they stand is up to the form.

    Args:
        layer: of the core.
        batch_size: b.
        dtype: of the products with weights.
        out_bias: ``[d]``, what every row with a chunk receives besides W_o times what its heads read.
    """

    def __init__(self, layer: "HierarchicalChunkLayer", batch_size: int, dtype: torch.dtype, out_bias: Tensor) -> None:
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        self.config, self.memory, self.batch_size, self.dtype = c, memory, batch_size, dtype
        scale = (c.dim // c.num_heads) ** -0.5
        weight = memory.query.weight * norm.weight * scale
        bias = (memory.query.bias + (memory.query.weight * norm.bias).sum(-1)) * scale
        self.query = PackedLinear(weight.to(dtype), bias.to(dtype), rows=batch_size, uses=1000)
        self.out_bias = out_bias.detach().to(dtype)
        self.out = PackedLinear(memory.out.weight.to(dtype), self.out_bias, rows=batch_size, uses=1000)
        like = memory.key.weight
        self.lowest = max(torch.finfo(kind).min for kind in (like.dtype, dtype))  # finite in both

    @abstractmethod
    def read(self, inputs: Tensor, some: Tensor | None, order: Tensor | None) -> Tensor:
        """What the chunks add.

        Args:
            inputs: ``[b, d]``, standardised.
            some: float ``[b, 1, 1]``, 1 for rows with a chunk and 0 for others; None when all have one.
            order: long ``[b, n]``, places from the oldest chunk to the newest, for the taps.
        """

    def update(self, read: Tensor, relevance: Tensor, some: Tensor | None) -> Tensor:
        """What the heads read, ``[r, d]`` under relevances ``[r, 1, k]``, through the output projection."""
        update = self.out(read)
        if some is not None or self.config.reading.relevance == "full_softmax":
            # The bias counts as much as the chunks do.
            share = relevance.sum(-1).to(update.dtype) - 1.0  # r 1
            update = torch.addcmul(update, share, self.out_bias)
        return update

    @property
    def listened(self) -> bool:
        """Whether anybody wants to see relevances or weights."""
        return self.memory.tap.listening or self.memory.relevance_tap.listening

    def show(self, relevance: Tensor, weights: Tensor, order: Tensor | None) -> None:
        """Relevance ``[b, 1, n]`` and weights ``[b, h, n, c]`` to the taps, oldest chunk first."""
        if order is not None:
            relevance = relevance.gather(-1, order[:, None])
            weights = weights.gather(2, order[:, None, :, None].expand_as(weights))
        self.memory.relevance_tap(relevance)
        self.memory.tap(weights.unsqueeze(2))


class RingChunkCache(ChunkCache):
    """The chunks of one layer, in n places that are overwritten in turn.

    Args:
        layer: of the core.
        batch_size: b.
        dtype: of keys and values.
    """

    def __init__(self, layer: "HierarchicalChunkLayer", batch_size: int, dtype: torch.dtype) -> None:
        super().__init__(layer, batch_size, dtype, layer.memory.out.bias)
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        b, n, d, heads = batch_size, c.num_chunks, c.dim, c.num_heads
        with full_precision(memory.key.weight):
            first = memory.chunk_query.weight
            first = torch.cat((first * norm.weight, first @ norm.bias[:, None]), 1)
            keys = first.T if memory.chunk_key is None else first.T @ memory.chunk_key.weight
            self.relate = keys * d**-0.5  # d+1 d: a chunk's mean to k and k_0
            self.project = torch.cat((memory.key.weight, memory.value.weight))  # 2d d
            self.places = torch.cat((torch.zeros_like(memory.value.bias), memory.value.bias))
            places = memory.positions(c.chunk_len)
            self.places = self.places if places is None else self.places + places @ self.project.T  # (c) 2d

        self.gathers = STREAM_GATHER_SHARE * c.top_k <= n
        like = memory.key.weight
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
        """See :meth:`ChunkCache.read`."""
        b, heads, n = self.batch_size, self.config.num_heads, self.config.num_chunks
        scores = torch.baddbmm(self.bias, inputs.unsqueeze(1).to(self.keys.dtype), self.keys.transpose(1, 2))  # b 1 n
        index, relevance = choose_chunks(scores, None, self.config.top_k, self.config.reading.relevance)
        if some is not None:
            relevance = relevance * some
        queries = self.query(inputs.to(self.dtype)).view(b, heads, 1, -1)
        if self.gathers and index is not None:
            read, weights = self._read_chosen(queries, index, relevance)
        else:
            relevance = relevance if index is None else scatter_topk(index, relevance, n)
            read, weights = self._read_all(queries, relevance)
        if self.listened:
            if self.gathers and index is not None:
                self.show(scatter_topk(index, relevance, n), scatter_topk_chunks(index, weights, n), order)
            else:
                self.show(relevance, weights, order)
        return self.update(read, relevance, some)

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


def scatter_topk_chunks(index: Tensor, weights: Tensor, n: int) -> Tensor:
    """Weights ``[b, h, k, c]`` of chosen chunks ``[b, 1, k]`` in ``[b, h, n, c]``, zeros elsewhere."""
    places = index[..., None].expand_as(weights)  # b 1 k 1 to b h k c
    return weights.new_zeros(*weights.shape[:2], n, weights.shape[-1]).scatter(2, places, weights)


class ChunkStreamLayer:
    """One layer for one step.

    Args:
        layer: of the core.
        features: of the offsets memory_len ... 0.
        shelf: its chunks.
    """

    def __init__(self, layer: "HierarchicalChunkLayer", features: Tensor, shelf: ChunkCache) -> None:
        batch_size = shelf.batch_size
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
        self.out = PackedLinear(local.out.weight.to(self.dtype), rows=batch_size, uses=1000)
        self.shelf = shelf
        weight = feed_forward.expand.weight * norm.weight
        bias = feed_forward.expand.bias + (feed_forward.expand.weight * norm.bias).sum(-1)
        contract = feed_forward.contract
        self.expand = PackedLinear(weight.to(self.dtype), bias.to(self.dtype), rows=batch_size, uses=1000)
        self.contract = PackedLinear(
            contract.weight.to(self.dtype), contract.bias.to(self.dtype), rows=batch_size, uses=1000
        )

    def __call__(
        self, x: Tensor, hidden: Tensor | None, empty: bool, some: Tensor | None, order: Tensor | None
    ) -> Tensor:
        """``[b, d] -> [b, d]``; ``empty`` if no row has a chunk, the rest as for the parts."""
        width = x.shape[-1:]
        x = x + self.drop(self.out(self.attention(x, hidden)))
        if not empty:
            x = x + self.drop(self.shelf.read(F.layer_norm(x, width), some, order))
        middle = self.expand(F.layer_norm(x, width).to(self.dtype)).relu_()
        return x + self.drop(self.contract(self.drop(middle)))

    def drop(self, update: Tensor) -> Tensor:
        """Dropout, in training."""
        dropout = self.layer.config.dropout
        return F.dropout(update, dropout) if dropout and self.layer.training else update


class ChunkStream(Stream, ABC):
    """What the live forms of a :class:`HierarchicalChunkMemory` share: windows, counters, and when a chunk is written.

    Counters live in Python, so that no step waits for a device to learn whether a chunk ends.

    Args:
        core: whose weights are used; they are copied into the layout of the processor.
        shelves: where each layer has its chunks.
    """

    core: "HierarchicalChunkMemory"

    def __init__(self, core: "HierarchicalChunkMemory", shelves: Sequence[ChunkCache]) -> None:
        c, features, batch_size = core.config, core.features(), shelves[0].batch_size
        self._layers = [
            ChunkStreamLayer(cast("HierarchicalChunkLayer", layer), features, shelf)
            for layer, shelf in zip(core.layers, shelves, strict=True)
        ]
        # Raw inputs of all layers; the newest c are a chunk when it ends.
        self._raw = MirrorRing(batch_size, max(c.memory_len, c.chunk_len), (c.num_layers, c.dim), features)
        self._visible = Visibility(batch_size, c.memory_len, features.device, self._layers[0].dtype)
        super().__init__(core, batch_size)

    # -- where chunks stand --------------------------------------------------------------------------------

    @abstractmethod
    def _put(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        """Keep one chunk ``[r, c, layers, d]`` of ``lengths`` steps and with ``means [r, layers, d]`` in each row."""

    @abstractmethod
    def _forget(self, rows: list[int]) -> None:
        """The rows lose their chunks."""

    @abstractmethod
    def _some_of(self) -> list[bool]:
        """Which rows have a chunk at all."""

    @abstractmethod
    def _order(self) -> Tensor:
        """Places of every row from the oldest chunk to the newest, long ``[b, n]``; empty ones come first."""

    # -- stepping ------------------------------------------------------------------------------------------

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step ``[b, i] -> [b, dim]``."""
        with full_precision(inputs):
            if is_first is not self._never and any(firsts := is_first.tolist()):
                self._begin([row for row, first in enumerate(firsts) if first], is_first)
            return self._step(inputs.to(self._raw.data.dtype))

    def _step(self, inputs: Tensor) -> Tensor:
        x, hidden, raw = self.core.project(inputs), self._visible.step(), []
        order = self._order() if any(layer.shelf.listened for layer in self._layers) else None
        for layer in self._layers:
            raw.append(x)
            x = layer(x, hidden, self._empty, self._some, order)
        self._raw.push(torch.stack(raw, 1))
        self._passed(1)
        return x

    def _passed(self, steps: int) -> None:
        """So many steps have come in; only the last may complete chunks."""
        self._steps = [before + steps for before in self._steps]
        completes, chunk_len = self.core.config.completes, self.core.config.chunk_len
        if ended := [row for row, after in enumerate(self._steps) if completes(after)]:
            self._write(ended, [chunk_len] * len(ended))

    def _begin(self, rows: list[int], is_first: Tensor) -> None:
        """The rows start an episode."""
        c = self.core.config
        if not c.carry_across_episodes:
            self._forget(rows)
            self._count()
        elif cut := [row for row in rows if self._steps[row] and not c.completes(self._steps[row])]:
            self._write(cut, c.in_progress(torch.tensor([self._steps[row] for row in cut])).tolist())
        self._clear(rows, is_first)

    def _clear(self, rows: list[int], mask: Tensor) -> None:
        """Empty the windows of the rows, which are those of ``mask [b]``."""
        for row in rows:
            self._steps[row] = 0
        self._visible.clear(mask)
        self._raw.clear(mask)
        for layer in self._layers:
            layer.attention.ring.clear(mask.repeat(self.core.config.num_heads))

    def _write(self, rows: list[int], lengths: list[int]) -> None:
        """The newest steps of some rows become chunks, in place of the oldest."""
        c, device = self.core.config, self._never.device
        index, size = torch.tensor(rows, device=device), torch.tensor(lengths, device=device)
        steps = self._raw.window()[:, -c.chunk_len :][index]  # r c layers d
        exists = torch.arange(c.chunk_len, 0, -1, device=device) <= size[:, None]
        steps = torch.where(exists[..., None, None], steps, 0.0)
        self._put(rows, lengths, steps, steps.sum(1) / size[:, None, None])
        self._count()

    def _count(self) -> None:
        """Note which rows have a chunk at all."""
        some = self._some_of()
        self._empty, self._some = not any(some), None
        if not all(some):
            like = self._raw.data
            self._some = torch.tensor(some, device=like.device).to(like.dtype)[:, None, None]

    # -- windows as state ----------------------------------------------------------------------------------

    def _windows(self) -> list[Tensor]:
        """The last w inputs of every layer, ``[b, w, d]`` (copies)."""
        raw = self._raw.window()[:, -self.core.config.memory_len :].unbind(2)
        return [window.clone(memory_format=torch.contiguous_format) for window in raw]

    def _load_windows(self, windows: list[Tensor], steps: list[int]) -> None:
        """Continue from such windows after so many steps of each row's episode."""
        self._steps = steps
        stacked = torch.stack(windows, 2)
        self._raw.load(F.pad(stacked, (0, 0, 0, 0, self._raw.length - stacked.shape[1], 0)))
        self._project_windows()

    def _project_windows(self) -> None:
        """Keys and values of local attention, from the raw inputs."""
        c = self.core.config
        self._visible.load(torch.tensor(self._steps, device=self._never.device).clamp(max=c.memory_len))
        raw = self._raw.window()[:, -c.memory_len :].unbind(2)
        with full_precision(self._raw.data):
            for layer, window in zip(self._layers, raw, strict=True):
                standard = F.layer_norm(window, (c.dim,))
                layer.attention.load(F.linear(standard, layer.weight[c.dim :], layer.bias[c.dim :]))

    def _window_buffers(self) -> list[Tensor]:
        return [self._raw.data, self._visible.count, *(layer.attention.ring.data for layer in self._layers)]


class HierarchicalChunkStream(ChunkStream):
    """A live :class:`HierarchicalChunkMemory` with the chunks that its config says.

    Args:
        core: whose weights are used; they are copied into the layout of the processor.
        batch_size: number of streams.
    """

    @torch.no_grad()
    def __init__(self, core: "HierarchicalChunkMemory", batch_size: int) -> None:
        dtype = working_dtype(next(core.layers.parameters()))
        layers = [cast("HierarchicalChunkLayer", layer) for layer in core.layers]
        self._shelves = [RingChunkCache(layer, batch_size, dtype) for layer in layers]
        super().__init__(core, self._shelves)

    @property
    def state(self) -> "HierarchicalChunkMemoryState":
        """The memory as the core's state (a copy)."""
        device = self._never.device
        rows, order = torch.arange(self.batch_size, device=device)[:, None], self._order()
        lengths = torch.tensor(self._lengths, device=device).gather(1, order)
        exists = lengths[..., None] > 0
        memory = type(self._fresh.layers[0])
        layers = tuple(
            memory(
                window,
                torch.where(exists[..., None], shelf.contents[rows, order], 0.0),
                torch.where(exists, shelf.means[rows, order], 0.0),
            )
            for shelf, window in zip(self._shelves, self._windows(), strict=True)
        )
        return type(self._fresh)(layers, lengths, torch.tensor(self._steps, device=device))

    @torch.no_grad()
    def load_state(self, state: "HierarchicalChunkMemoryState") -> None:
        """Continue from a state of the core: project all that it holds."""
        self.core.check_state(state, self.batch_size, self._never.device)
        c, device = self.core.config, self._never.device
        self._lengths: list[list[int]] = state.lengths.tolist()
        self._next = [0] * self.batch_size  # places are in order of age now
        self._load_windows([memory.window for memory in state.layers], state.steps.tolist())
        rows = torch.arange(self.batch_size, device=device).repeat_interleave(c.num_chunks)
        places = torch.arange(c.num_chunks, device=device).repeat(self.batch_size)
        with full_precision(self._raw.data):
            for shelf, memory in zip(self._shelves, state.layers, strict=True):
                chunks, means = memory.contents.flatten(0, 1), memory.keys.flatten(0, 1)
                shelf.write(rows, places, chunks, means, state.lengths.flatten())
        self._count()

    def buffers(self) -> list[Tensor]:
        """Raw steps, local keys and values, chunks in all their forms, and the counts."""
        kept = self._window_buffers()
        for shelf in self._shelves:
            kept += [shelf.contents, shelf.means, shelf.keys, shelf.bias, shelf.pairs]
            kept += [] if shelf.missing is None else [shelf.missing]
        return kept

    def _put(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        device = self._never.device
        places = [self._next[row] for row in rows]
        for row, place, length in zip(rows, places, lengths, strict=True):
            self._lengths[row][place] = length
            self._next[row] = (place + 1) % self.core.config.num_chunks
        index, where = torch.tensor(rows, device=device), torch.tensor(places, device=device)
        size = torch.tensor(lengths, device=device)
        for i, shelf in enumerate(self._shelves):
            shelf.write(index, where, chunks[:, :, i], means[:, i], size)

    def _forget(self, rows: list[int]) -> None:
        for row in rows:
            self._lengths[row] = [0] * self.core.config.num_chunks
            self._next[row] = 0
            for shelf in self._shelves:
                shelf.clear(row)

    def _some_of(self) -> list[bool]:
        return [any(lengths) for lengths in self._lengths]

    def _order(self) -> Tensor:
        n = self.core.config.num_chunks
        return torch.tensor([[(start + i) % n for i in range(n)] for start in self._next], device=self._never.device)
