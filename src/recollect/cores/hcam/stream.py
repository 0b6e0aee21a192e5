"""The stream of the hierarchical chunk memory: every step and every chunk is projected once, when it arrives.

The windows are ring buffers of keys and values, the chunks are in a :class:`ChunkCache` per layer. A stream never
applies dropout.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.hcam.chunk_cache import ChunkCache, RingChunkCache, StoredChunks, count_stored_chunks
from recollect.cores.hcam.core import HierarchicalChunkMemory, HierarchicalChunkMemoryState, LayerMemory
from recollect.cores.hcam.projected_chunks import ProjectedChunks
from recollect.cores.hcam.raw_chunks import RawChunks, prefers_raw
from recollect.cores.stream import RowStream
from recollect.layers.feedforward import StreamFeedForward, stream_projection
from recollect.layers.ring_attention import RingAttention, Visibility
from recollect.layers.rings import MirrorRing, Rows
from recollect.ops.packed_linear import PackedLinear, without_autocast, working_dtype
from recollect.ops.reduced_linear import cache_dtype


class ChunkStreamLayer:
    """One layer for one step; ``features`` are of the offsets memory_len ... 0."""

    def __init__(self, cache: ChunkCache, features: Tensor) -> None:
        layer, batch_size = cache.layer, cache.batch_size
        local, norm, feed_forward = layer.local, layer.norm_forward, layer.feed_forward
        self.layer = layer
        self.gated = layer.config.reading.gate != "residual"
        weights, biases, delta, keys = local.folded(features)
        self.weight, self.bias = torch.cat(weights), torch.cat(biases)
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
        self.cache = cache
        folded = {"scale": norm.weight, "shift": norm.bias}
        self.feed_forward = StreamFeedForward(feed_forward, rows=batch_size, dtype=self.dtype, **folded)

    def __call__(
        self, x: Tensor, hidden: Tensor | None, held: StoredChunks, order: Tensor | None, rows: Rows | None
    ) -> Tensor:
        """Map ``[r, d] -> [r, d]``; arguments as in the parts."""
        width = x.shape[-1:]
        x = self.join(self.layer.gate_local, x, self.out(self.attention(x, hidden, rows=rows)))
        if held.most:
            read = self.cache.read(F.layer_norm(x, width), held, order, rows)
            x = self.join(self.layer.gate_memory, x, read)
        elif self.gated:  # a gate changes the stream even without chunks
            x = self.join(self.layer.gate_memory, x, torch.zeros_like(x))
        return self.join(self.layer.gate_forward, x, self.feed_forward(F.layer_norm(x, width)))

    def join(self, gate: nn.Module, x: Tensor, update: Tensor) -> Tensor:
        """Add an update to the stream, by the gate if there is one."""
        return gate(x, update.to(x.dtype)) if self.gated else x + update


class ChunkStream(RowStream):
    """Base of both streams of a :class:`HierarchicalChunkMemory`: windows, counters, and when a chunk is written.

    Counters are Python integers, so that no step waits for a device.
    """

    core: HierarchicalChunkMemory

    def __init__(self, core: HierarchicalChunkMemory, caches: Sequence[ChunkCache]) -> None:
        c, features, batch_size = core.config, core.features(), caches[0].batch_size
        self._layers = [ChunkStreamLayer(cache, features) for cache in caches]
        self._project = stream_projection(core.project, batch_size)
        # Raw inputs of all layers; the newest c become the chunk that is completed.
        like = features.new_empty(0, dtype=cache_dtype(features.dtype))
        self._raw = MirrorRing(batch_size, max(c.memory_len, c.chunk_len), (c.num_layers, c.dim), like)
        self._visible = Visibility(batch_size, c.memory_len, features.device, self._layers[0].dtype)
        super().__init__(core, batch_size)

    @abstractmethod
    def _write_chunk(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        """Store one new chunk in each of r rows: its steps ``[r, c, layers, d]``, lengths, means."""

    @abstractmethod
    def _drop_chunks(self, rows: list[int]) -> None:
        """Remove the chunks of the rows."""

    @abstractmethod
    def _counts(self) -> list[int]:
        """Return the number of chunks of each row."""

    @abstractmethod
    def _order(self) -> Tensor:
        """Return places of each row from the oldest chunk to the newest, long ``[b, n]``; empty places come first."""

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, dim]``."""
        with without_autocast(inputs):
            if starting := self.starting(is_first, rows):
                self._new_episode(starting)
            return self._step(inputs.to(self._dtype), rows)

    def _step(self, inputs: Tensor, rows: Rows | None) -> Tensor:
        x, hidden, raw = self._project(inputs), self._visible.step(rows), []
        order, held = None, self._held(rows)
        if any(layer.cache.listened for layer in self._layers):
            order = self._order() if rows is None else self._order()[rows.index]
        for layer in self._layers:
            raw.append(x)
            x = layer(x, hidden, held, order, rows)
        self._raw.push(torch.stack(raw, 1), None if rows is None else rows.index)
        self._advance_count(1, range(self.batch_size) if rows is None else rows.numbers)
        return x

    def _held(self, rows: Rows | None) -> StoredChunks:
        """Return the chunks that some rows hold now; None: all rows."""
        if rows is not None:
            counts = self._counts()
            return count_stored_chunks([counts[row] for row in rows.numbers], self._raw.data)
        if self._all_held is None:
            self._all_held = count_stored_chunks(self._counts(), self._raw.data)
        return self._all_held

    def _advance_count(self, steps: int, rows: Sequence[int]) -> None:
        """Count new steps of the rows, of which only the last may complete a chunk."""
        c, counts, ended = self.core.config, self._steps, []
        chunk_len, overlap, stride = c.chunk_len, c.chunk_overlap, c.stride
        for row in rows:  # once per row and step, so `c.completes` is written out
            counts[row] = after = counts[row] + steps
            if after >= chunk_len and (after - overlap) % stride == 0:
                ended.append(row)
        if ended:
            self._complete_chunks(ended, [chunk_len] * len(ended))

    def _new_episode(self, rows: Rows) -> None:
        """Start an episode in the rows."""
        c = self.core.config
        if not c.carry_across_episodes:
            self._drop_chunks(rows.numbers)
            self._note_chunks()
        elif cut := [row for row in rows.numbers if self._steps[row] and not c.completes(self._steps[row])]:
            self._complete_chunks(cut, c.in_progress(torch.tensor([self._steps[row] for row in cut])).tolist())
        self._clear(rows)

    def _clear(self, rows: Rows) -> None:
        """Clear the windows of the rows."""
        for row in rows.numbers:
            self._steps[row] = 0
        self._visible.clear(rows)
        self._raw.clear(rows.index)
        for layer in self._layers:
            layer.attention.clear(rows)

    def _complete_chunks(self, rows: list[int], lengths: list[int]) -> None:
        """Store the newest steps of the rows as a chunk, in place of their oldest one."""
        c, device = self.core.config, self._never.device
        index, size = torch.tensor(rows, device=device), None
        steps = self._raw.window(index)[:, -c.chunk_len :].to(self._dtype)  # r c layers d
        if min(lengths) < c.chunk_len:
            size = torch.tensor(lengths, device=device)
            exists = torch.arange(c.chunk_len, 0, -1, device=device) <= size[:, None]
            steps = torch.where(exists[..., None, None], steps, 0.0)
        means = steps.sum(1) / (c.chunk_len if size is None else size[:, None, None])
        self._write_chunk(rows, lengths, steps, means)
        self._note_chunks()

    def _note_chunks(self) -> None:
        """Forget which rows have a chunk, after a change."""
        self._all_held = None

    def _windows(self, rows: Rows | None) -> list[Tensor]:
        """Return copies of the last w inputs of every layer, ``[r, w, d]``."""
        raw = self._raw.window(None if rows is None else rows.index)
        raw = raw[:, -self.core.config.memory_len :].to(self._dtype).unbind(2)
        return [window.clone(memory_format=torch.contiguous_format) for window in raw]

    def _load_windows(self, windows: list[Tensor], steps: list[int], rows: Rows | None) -> None:
        """Continue from windows, after ``steps`` of each row's episode."""
        if rows is None:
            self._steps = steps
        else:
            for row, count in zip(rows.numbers, steps, strict=True):
                self._steps[row] = count
        stacked = torch.stack(windows, 2)
        stacked = F.pad(stacked, (0, 0, 0, 0, self._raw.length - stacked.shape[1], 0))
        self._raw.load(stacked, None if rows is None else rows.index)
        self._project_windows(rows)

    def _project_windows(self, rows: Rows | None) -> None:
        """Compute keys and values of local attention from the raw inputs."""
        c, steps = self.core.config, self._steps_of(rows)
        self._visible.load(torch.tensor(steps, device=self._never.device).clamp(max=c.memory_len), rows)
        raw = self._raw.window(None if rows is None else rows.index)[:, -c.memory_len :].to(self._dtype).unbind(2)
        with without_autocast(self._raw.data):
            for layer, window in zip(self._layers, raw, strict=True):
                standard = F.layer_norm(window, (c.dim,))
                layer.attention.load(F.linear(standard, layer.weight[c.dim :], layer.bias[c.dim :]), rows)

    def _steps_of(self, rows: Rows | None) -> list[int]:
        return self._steps if rows is None else [self._steps[row] for row in rows.numbers]

    def _window_buffers(self) -> list[Tensor]:
        return [self._raw.data, self._visible.count, *(layer.attention.ring.data for layer in self._layers)]


class HierarchicalChunkStream(ChunkStream):
    """The stream with the ``num_chunks`` of its config."""

    def __init__(self, core: HierarchicalChunkMemory, batch_size: int) -> None:
        weight = next(core.layers[0].parameters())
        dtype = working_dtype(weight)
        kind = RawChunks if dtype == weight.dtype and prefers_raw(core.config, batch_size) else ProjectedChunks
        self._caches: list[RingChunkCache] = [kind(layer, batch_size, dtype) for layer in core.layers]
        super().__init__(core, self._caches)

    def read_rows(self, rows: Rows | None) -> HierarchicalChunkMemoryState:
        """Return a copy of the core's state of some rows; None: of all."""
        device = self._never.device
        numbers = range(self.batch_size) if rows is None else rows.numbers
        index, order = torch.tensor(numbers, device=device)[:, None], self._order_of(numbers)
        lengths = torch.tensor([self._lengths[row] for row in numbers], device=device).gather(1, order)
        exists = lengths[..., None] > 0
        layers = tuple(
            LayerMemory(
                window,
                torch.where(exists[..., None], cache.steps_of(index, order).to(self._dtype), 0.0),
                torch.where(exists, cache.means[index, order], 0.0),
            )
            for cache, window in zip(self._caches, self._windows(rows), strict=True)
        )
        return HierarchicalChunkMemoryState(layers, lengths, torch.tensor(self._steps_of(rows), device=device))

    def write_rows(self, state: HierarchicalChunkMemoryState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all. Projects all their chunks again."""
        c, device = self.core.config, self._never.device
        if rows is None:
            self._lengths: list[list[int]] = [[]] * self.batch_size
            self._chunks_of = [0] * self.batch_size  # places from 0 that were written, at most all n
            self._next = [0] * self.batch_size  # place of each row's next chunk
        numbers = range(self.batch_size) if rows is None else rows.numbers
        empty = []  # places of each row before its oldest chunk; its chunks move to the places from 0, by age
        for row, lengths in zip(numbers, state.lengths.tolist(), strict=True):
            empty.append(next((i for i, length in enumerate(lengths) if length), c.num_chunks))
            self._lengths[row] = lengths[empty[-1] :] + lengths[: empty[-1]]
            self._chunks_of[row] = c.num_chunks - empty[-1]
            self._next[row] = self._chunks_of[row] % c.num_chunks
        self._load_windows([memory.window for memory in state.layers], state.steps.tolist(), rows)
        index = torch.tensor(numbers, device=device).repeat_interleave(c.num_chunks)
        ages = torch.arange(c.num_chunks, device=device)
        places = (ages - torch.tensor(empty, device=device)[:, None]) % c.num_chunks
        with without_autocast(self._raw.data):
            for cache, memory in zip(self._caches, state.layers, strict=True):
                chunks, means = memory.contents.flatten(0, 1), memory.keys.flatten(0, 1)
                cache.write(index, places.flatten(), chunks, means, state.lengths.flatten())
        self._note_chunks()

    def buffers(self) -> list[Tensor]:
        """Return raw steps, local keys and values, chunks in all their forms, and the counts."""
        kept = self._window_buffers()
        for cache in self._caches:
            kept += cache.buffers()
        return kept

    def _write_chunk(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        device, n = self._never.device, self.core.config.num_chunks
        places = [self._next[row] for row in rows]
        for row, place, length in zip(rows, places, lengths, strict=True):
            self._lengths[row][place] = length
            self._next[row] = (place + 1) % n
            self._chunks_of[row] = min(self._chunks_of[row] + 1, n)
        index, where = torch.tensor(rows, device=device), torch.tensor(places, device=device)
        size = torch.tensor(lengths, device=device)
        for i, cache in enumerate(self._caches):
            cache.write(index, where, chunks[:, :, i], means[:, i], size)

    def _drop_chunks(self, rows: list[int]) -> None:
        for row in rows:
            self._lengths[row] = [0] * self.core.config.num_chunks
            self._next[row] = self._chunks_of[row] = 0
            for cache in self._caches:
                cache.clear(row)

    def _counts(self) -> list[int]:
        return self._chunks_of

    def _order(self) -> Tensor:
        return self._order_of(range(self.batch_size))

    def _order_of(self, rows: Sequence[int]) -> Tensor:
        n = self.core.config.num_chunks
        places = [[(self._next[row] + i) % n for i in range(n)] for row in rows]
        return torch.tensor(places, device=self._never.device)
