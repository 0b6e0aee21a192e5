"""A hierarchical chunk memory for life: a million steps and more, each of which can be recalled exactly.

    stream = core.lifelong_stream(batch_size=1, capacity_steps=1_000_000, folder="/data")

The weights do not know how many chunks there are, so a core trained with few can live with many. The numbers are
those of a core whose ``num_chunks`` is the capacity; only what is kept, and where, differs:

    means S_i       [b, n, d] per layer, beside the weights         every step reads all of them
    contents C_i    [b, n, layers, c, d], in host memory or a file  every step reads k per layer

Steps are kept raw. The query is projected instead, once per step: with z the standardised input, g and s the gain
and shift of the norm,

    (W_q n(y)) . (W_k S_i) / sqrt(f) = u . S_i        u = W_k^T W_q (g * z + s) / sqrt(f)

and likewise inside the k chosen chunks. So nothing that is stored depends on the weights, and the search is exact:
one product over n d numbers (8 MB for a million steps in chunks of 64 at d = 128), one top-k, k copies.

Capacity and eviction. ``capacity_steps // stride`` chunks are kept per row. All is allocated when the stream is
made and never grows, so bytes are constant; the cost of a step grows with the chunks held until the memory is
full, and is constant from there on. Then a new chunk takes the place of the row's oldest. ``is_first`` empties a
row, or with ``carry_across_episodes`` writes its unfinished chunk, which counts as a whole one.
"""

import os
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.hcam.attention import choose_chunks, scatter_topk
from recollect.cores.hcam.chunk_store import ChunkStore, FileStore, MemoryStore
from recollect.cores.hcam.stream import ChunkCache, ChunkStream, scatter_topk_chunks
from recollect.layers.finite import is_finite
from recollect.layers.ring_attention import full_precision
from recollect.layers.window_attention import visible_steps
from recollect.ops.packed_linear import PackedLinear, working_dtype

if TYPE_CHECKING:
    from recollect.cores.hcam.core import (
        HierarchicalChunkLayer,
        HierarchicalChunkMemory,
        HierarchicalChunkMemoryState,
    )

SEGMENT = 64
"""Steps that ``extend`` takes at once at most: bounds its workspace of b * SEGMENT * n scores."""
BATCH = 256
"""Chunks that are copied at once when a state is loaded."""


class Footprint(NamedTuple):
    """Bytes that a stream may ever take, by place."""

    device: int
    """On an accelerator; 0 if the core is on the CPU."""
    host: int
    disk: int


class ChunkIndex:
    """Which places of each row hold a chunk: always the first ``counts[row]``.

    Args:
        batch_size: b.
        capacity: n.
        chunk_len: c.
        device: of the stream.
    """

    def __init__(self, batch_size: int, capacity: int, chunk_len: int, device: torch.device) -> None:
        self.capacity, self.chunk_len = capacity, chunk_len
        self.lengths = torch.zeros(batch_size, capacity, dtype=torch.int64, device=device)
        self.counts = [0] * batch_size
        self.next = [0] * batch_size
        self.held = 0
        """The most chunks that any row has; all searches stop there."""
        self.absent: Tensor | None = None
        """Bool ``[b, 1, held]``, places without a chunk; None when all rows have equally many."""

    def claim(self, row: int) -> int:
        """The place of the row's next chunk: a free one, or that of the oldest."""
        place = self.next[row]
        self.next[row] = (place + 1) % self.capacity
        self.counts[row] = min(self.counts[row] + 1, self.capacity)
        return place

    def clear(self, row: int) -> None:
        """The row has no chunks."""
        self.counts[row] = self.next[row] = 0

    def recount(self) -> None:
        """Bring ``held`` and ``absent`` up to date."""
        self.held, self.absent = max(self.counts), None
        if min(self.counts) < self.held:
            device = self.lengths.device
            counts = torch.tensor(self.counts, device=device)
            self.absent = torch.arange(self.held, device=device) >= counts[:, None, None]

    def order(self) -> Tensor:
        """Places from the oldest chunk to the newest, long ``[b, held]``; those without a chunk come first."""
        start = torch.tensor(self.next, device=self.lengths.device)
        return (start[:, None] + torch.arange(self.held, device=start.device)) % max(self.held, 1)


class LifelongChunkCache(ChunkCache):
    """The chunks of one layer: their means, and where to find their steps.

    Args:
        layer: of the core.
        number: of the layer, from 0.
        catalogue: of the stream.
        store: of the stream.
        dtype: of the products with weights.
    """

    def __init__(
        self,
        layer: "HierarchicalChunkLayer",
        number: int,
        catalogue: ChunkIndex,
        store: ChunkStore,
        dtype: torch.dtype,
    ) -> None:
        c, memory, norm = layer.config, layer.memory, layer.norm_memory
        batch_size, n = catalogue.lengths.shape
        with full_precision(memory.key.weight):
            # sum_i R_i = 1 wherever there is a chunk, so the bias of the values is one of the output.
            super().__init__(layer, batch_size, dtype, memory.out.bias + memory.out.weight @ memory.value.bias)
            mix = memory.chunk_query.weight
            mix = (mix if memory.chunk_key is None else memory.chunk_key.weight.T @ mix) * c.dim**-0.5
            self.relate = PackedLinear(mix * norm.weight, mix @ norm.bias, rows=batch_size, uses=1000)  # z to u
        heads = (c.num_heads, -1)
        self.into_keys = memory.key.weight.unflatten(0, heads).detach().to(dtype)  # h e d
        self.from_values = memory.value.weight.unflatten(0, heads).mT.detach().to(dtype).contiguous()  # h d e
        places = memory.positions(c.chunk_len)
        self.places = None if places is None else places.to(dtype)
        self.number, self.catalogue, self.store = number, catalogue, store
        self.means = memory.key.weight.new_zeros(batch_size, n, c.dim)
        device = self.means.device
        self.first_place = torch.arange(batch_size, device=device)[:, None, None] * n
        self.age = torch.arange(c.chunk_len, 0, -1, device=device)

    def read(self, inputs: Tensor, some: Tensor | None, order: Tensor | None) -> Tensor:
        """See :meth:`ChunkCache.read`."""
        return self.read_steps(inputs.unsqueeze(1), some, order)[:, 0]

    def read_steps(self, inputs: Tensor, some: Tensor | None, order: Tensor | None = None) -> Tensor:
        """:meth:`ChunkCache.read` for t steps that see the same chunks: ``[b, t, d] -> [b, t, d]``; taps need t = 1."""
        b, t = inputs.shape[:2]
        rows = inputs.flatten(0, 1)
        index, relevance = self._choose(self.relate(rows.to(self.means.dtype)).view(b, t, -1))
        if some is not None:
            relevance = relevance * some
        chosen = self.take(index).to(self.dtype).view(b * t, index.shape[-1], self.config.chunk_len, -1)
        if self.places is not None:
            chosen += self.places
        queries = self.query(rows.to(self.dtype)).unflatten(-1, (self.config.num_heads, -1))
        queries = torch.bmm(queries.transpose(0, 1), self.into_keys).transpose(0, 1)  # bt h d
        steps = chosen.flatten(1, 2)  # bt kc d
        scores = torch.bmm(queries, steps.mT).unflatten(-1, chosen.shape[1:3])  # bt h k c
        if self.config.carry_across_episodes:
            lengths = self.catalogue.lengths.flatten()[index + self.first_place].clamp(min=1)
            scores = scores.masked_fill((self.age > lengths[..., None]).flatten(0, 1).unsqueeze(1), self.lowest)
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        share = relevance.flatten(0, 1)  # bt k
        mixed = (weights * share[:, None, :, None]).to(self.dtype)
        read = torch.bmm(mixed.flatten(-2), steps)  # bt h d
        read = torch.bmm(read.transpose(0, 1), self.from_values).transpose(0, 1).flatten(1)
        if self.listened and t == 1:
            held = self.catalogue.held
            self.show(scatter_topk(index, relevance, held), scatter_topk_chunks(index, weights, held), order)
        return self.update(read, share.unsqueeze(1), some).view(b, t, -1)

    def take(self, index: Tensor) -> Tensor:
        """The steps of chunks ``[b, t, k]`` of this layer, ``[b*t*k, c, d]``: a copy on the stream's device."""
        layers = self.config.num_layers
        entries = ((index + self.first_place) * layers + self.number).flatten()
        return self.store.take(entries.to(self.store.data.device)).to(self.means.device)

    def _choose(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Places and relevances ``[b, t, k]`` for ``[b, t, d]``: exact, over all chunks that are held."""
        held = self.catalogue.held
        scores = torch.bmm(queries, self.means[:, :held].mT)
        if self.catalogue.absent is not None:
            scores.masked_fill_(self.catalogue.absent, self.lowest)
        index, relevance = choose_chunks(scores, None, self.config.top_k, self.config.reading.relevance)
        if index is None:
            index = torch.arange(held, device=scores.device).expand_as(relevance)
        return index, relevance


class LifelongStream(ChunkStream):
    """A live :class:`HierarchicalChunkMemory` whose chunks are many; see the top of this file.

    Args:
        core: whose weights are used; its ``num_chunks`` is not.
        batch_size: number of streams, each with its own capacity.
        capacity_steps: steps that are kept; rounded down to whole chunks.
        folder: an existing folder for the contents; None keeps them in host memory.
        keep_file: leave the file in the folder (``stream.store.path``); else it vanishes with the stream.
        dtype: of the contents. None is that of the core and exact; ``torch.bfloat16`` takes half the bytes, keeps
            the choice of chunks exact and rounds what is read in them.

    Raises:
        ValueError: a capacity below one chunk, another dtype, a folder that cannot be written or is full. A step
            whose chunk cannot be written raises, and the stream goes on without that chunk.
    """

    @torch.no_grad()
    def __init__(
        self,
        core: "HierarchicalChunkMemory",
        batch_size: int = 1,
        capacity_steps: int = 1_000_000,
        *,
        folder: str | os.PathLike[str] | None = None,
        keep_file: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        c, own = core.config, next(core.layers.parameters())
        n, shape = capacity_steps // c.stride, (c.num_layers, c.chunk_len, c.dim)
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a stream needs at least one row")
        if n < 1:
            raise ValueError(f"capacity_steps={capacity_steps}: give at least the {c.stride} steps of one chunk")
        if dtype not in (None, own.dtype, torch.bfloat16):
            raise ValueError(f"dtype={dtype}: choose None ({own.dtype}, exact) or torch.bfloat16")
        if keep_file and folder is None:
            raise ValueError("keep_file=True: there is no file without a folder: give folder=...")
        kind = own.dtype if dtype is None else dtype
        self._made = {"capacity_steps": capacity_steps, "folder": folder, "keep_file": keep_file, "dtype": dtype}
        self.store: ChunkStore = (
            MemoryStore(batch_size * n, shape, kind)
            if folder is None
            else FileStore(batch_size * n, shape, kind, folder, keep_file=keep_file)
        )
        self._catalogue = ChunkIndex(batch_size, n, c.chunk_len, own.device)
        layers = [cast("HierarchicalChunkLayer", layer) for layer in core.layers]
        self._shelves = [
            LifelongChunkCache(layer, i, self._catalogue, self.store, working_dtype(own))
            for i, layer in enumerate(layers)
        ]
        self._features = core.features()
        super().__init__(core, self._shelves)

    # -- the public face -----------------------------------------------------------------------------------

    @property
    def num_chunks(self) -> int:
        """Chunks that each row can hold."""
        return self._catalogue.capacity

    @property
    def held(self) -> list[int]:
        """Chunks that each row holds now."""
        return list(self._catalogue.counts)

    @property
    def footprint(self) -> Footprint:
        """What :attr:`nbytes` is made of."""
        parts = {"device": 0, "host": 0, "disk": self.store.data.nbytes if self.store.on_disk else 0}
        for buffer in self.buffers()[: -1 if self.store.on_disk else None]:
            parts["host" if buffer.device.type == "cpu" else "device"] += buffer.nbytes
        return Footprint(**parts)

    @torch.no_grad()
    def extend(self, inputs: Tensor, is_first: Tensor | None = None) -> None:
        """Live through many steps at once, without outputs: the memory is then as after stepping through them.

        Steps between two chunk ends see the same chunks and are computed together, and what the last layer would
        read is not needed. Broken steps enter as zeros, as in :meth:`step`.

        Args:
            inputs: float ``[b, t, input_dim]``.
            is_first: bool ``[b, t]``; None clears nothing.
        """
        b, t = self.batch_size, inputs.shape[1] if inputs.ndim == 3 else 0
        if tuple(inputs.shape) != (b, t, *self.core.input_shape) or inputs.dtype != self._dtype:
            want = f"{self._dtype} [{b}, t, {self.core.input_shape[0]}]"
            raise ValueError(f"inputs are {inputs.dtype} {list(inputs.shape)}; this stream extends by {want}")
        firsts = torch.zeros(b, t, dtype=torch.bool, device=inputs.device) if is_first is None else is_first
        if firsts.dtype != torch.bool or tuple(firsts.shape) != (b, t):
            raise ValueError(f"is_first is {firsts.dtype} {list(firsts.shape)}; it must be bool [{b}, {t}]")
        inputs = torch.where(is_finite(inputs).all(-1, keepdim=True), inputs, 0.0)
        resets = {} if is_first is None else {i: firsts[:, i].tolist() for i in firsts.any(0).nonzero()[:, 0].tolist()}
        starts = iter([*sorted(resets), t])
        following, begin = next(starts), 0
        with full_precision(inputs):
            while begin < t:
                if begin == following:
                    self._begin([row for row, first in enumerate(resets[begin]) if first], firsts[:, begin])
                    following = next(starts)
                end = min(following, begin + self._until_chunk())
                self._segment(inputs[:, begin:end])
                begin = end
            self._project_windows()

    @torch.no_grad()
    def reset(self, rows: Tensor | list[int] | None = None) -> None:
        """Forget everything, chunks that are carried across episodes too: all rows, or those named."""
        mask = self._never.clone()
        mask[slice(None) if rows is None else torch.as_tensor(rows, device=mask.device)] = True
        forgotten = mask.nonzero()[:, 0].tolist()
        self._forget(forgotten)
        self._clear(forgotten, mask)
        self._count()

    def fork(self) -> "LifelongStream":
        """A second stream with the same memory, in a file of its own if there is a folder."""
        twin = LifelongStream(self.core, self.batch_size, **self._made)
        twin.load_state(self.state)
        return twin

    @property
    def state(self) -> "HierarchicalChunkMemoryState":
        """The memory as the state of a core whose ``num_chunks`` is the most that any row holds (at least 1).

        A copy in memory of all that is held: 1 GB for a million steps of two layers of width 128. ``save``, ``load``
        and ``fork`` go through it.
        """
        catalogue, device = self._catalogue, self._never.device
        n = max(catalogue.held, 1)
        order = (
            catalogue.order() if catalogue.held else torch.zeros(self.batch_size, 1, dtype=torch.long, device=device)
        )
        exists = torch.arange(n, 0, -1, device=device) <= torch.tensor(catalogue.counts, device=device)[:, None]
        rows, memory = torch.arange(self.batch_size, device=device)[:, None], type(self._fresh.layers[0])
        layers = []
        for shelf, window in zip(self._shelves, self._windows(), strict=True):
            contents = shelf.take(order[:, None]).to(window.dtype).unflatten(0, (self.batch_size, n))
            contents.masked_fill_(~exists[..., None, None], 0.0)
            means = torch.where(exists[..., None], shelf.means[rows, order], 0.0)
            layers.append(memory(window, contents, means))
        lengths = torch.where(exists, catalogue.lengths.gather(1, order), 0)
        return type(self._fresh)(tuple(layers), lengths, torch.tensor(self._steps, device=device))

    @torch.no_grad()
    def load_state(self, state: "HierarchicalChunkMemoryState") -> None:
        """Continue from a state of the core, with any number of chunks; of more than fit the newest are kept."""
        self._check(state)
        self._load_windows([layer.window for layer in state.layers], state.steps.tolist())
        total = state.lengths.shape[1]
        for row, count in enumerate((state.lengths > 0).sum(1).clamp(max=self.num_chunks).tolist()):
            self._catalogue.clear(row)
            for begin in range(total - count, total, BATCH):
                part = slice(begin, min(begin + BATCH, total))
                places = [self._catalogue.claim(row) for _ in range(part.start, part.stop)]
                chunks = torch.stack([layer.contents[row, part] for layer in state.layers], 1)
                means = torch.stack([layer.keys[row, part] for layer in state.layers], 1)
                self._keep([row] * len(places), places, state.lengths[row, part], chunks, means)
        self._count()

    def buffers(self) -> list[Tensor]:
        """Windows, means, lengths and, last, contents."""
        means = [shelf.means for shelf in self._shelves]
        return [*self._window_buffers(), *means, self._catalogue.lengths, self.store.data]

    # -- where chunks stand --------------------------------------------------------------------------------

    def _put(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        places = [self._catalogue.next[row] for row in rows]
        sizes = torch.tensor(lengths, device=self._never.device)
        self._keep(rows, places, sizes, chunks.transpose(1, 2), means)
        for row in rows:
            self._catalogue.claim(row)

    def _keep(self, rows: list[int], places: list[int], sizes: Tensor, chunks: Tensor, means: Tensor) -> None:
        """Write chunks ``[r, layers, c, d]``; the contents first, since only they can fail."""
        n, device = self._catalogue.capacity, self._never.device
        self.store.put([row * n + place for row, place in zip(rows, places, strict=True)], chunks)
        index, where = torch.tensor(rows, device=device), torch.tensor(places, device=device)
        self._catalogue.lengths[index, where] = sizes
        for i, shelf in enumerate(self._shelves):
            shelf.means[index, where] = means[:, i]

    def _forget(self, rows: list[int]) -> None:
        for row in rows:
            self._catalogue.clear(row)

    def _count(self) -> None:
        super()._count()
        self._catalogue.recount()

    def _some_of(self) -> list[bool]:
        return [count > 0 for count in self._catalogue.counts]

    def _order(self) -> Tensor:
        return self._catalogue.order()

    # -- parts of the public methods -----------------------------------------------------------------------

    def _until_chunk(self) -> int:
        """Steps that can be taken before any row's chunks change, and at most SEGMENT."""
        c = self.core.config
        return min(SEGMENT, *(c.stride - (steps - c.chunk_overlap) % c.stride for steps in self._steps))

    def _segment(self, inputs: Tensor) -> None:
        """Steps ``[b, t, i]`` at whose end alone a chunk may be complete."""
        w, t, d = self.core.config.memory_len, inputs.shape[1], self.core.config.dim
        past, raw = self._raw.window(), []
        since = torch.tensor(self._steps, device=inputs.device)[:, None] + torch.arange(t, device=inputs.device)
        visible = visible_steps(since, w)
        x = self.core.project(inputs)
        for i, (live, shelf) in enumerate(zip(self._layers, self._shelves, strict=True)):
            raw.append(x)
            if i == len(self._layers) - 1:
                break
            layer = live.layer
            x = x + live.drop(layer.local(x, past[:, -w:, i], visible, self._features))
            if not self._empty:
                x = x + live.drop(shelf.read_steps(F.layer_norm(x, (d,)), self._some))
            x = x + layer.feed_forward(layer.norm_forward(x))
        self._raw.load(torch.cat((past, torch.stack(raw, 2)), 1)[:, -self._raw.length :])
        self._passed(t)

    def _check(self, state: "HierarchicalChunkMemoryState") -> None:
        """:meth:`MemoryCore.check_state`, whatever the number of chunks."""
        core, n = self.core, self.core.config.num_chunks
        if isinstance(state, type(self._fresh)) and state.lengths.ndim == 2 and state.lengths.shape[1] > 0:
            total = state.lengths.shape[1]
            if all(layer.contents.shape[1:2] == layer.keys.shape[1:2] == (total,) for layer in state.layers):
                seen = [
                    layer._replace(
                        contents=layer.contents[:, :1].expand(-1, n, -1, -1), keys=layer.keys[:, :1].expand(-1, n, -1)
                    )
                    for layer in state.layers
                ]
                state = state._replace(layers=tuple(seen), lengths=state.lengths[:, :1].expand(-1, n))
        core.check_state(state, self.batch_size, self._never.device)
