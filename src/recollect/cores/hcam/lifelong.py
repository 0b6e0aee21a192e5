"""A stream of the hierarchical chunk memory for a million steps and more, each of which can be recalled exactly.

    stream = core.lifelong_stream(batch_size=1, capacity_steps=1_000_000, folder="/data")

The weights do not depend on the number of chunks, so a core trained with few can run with many. Outputs are those of a
core whose ``num_chunks`` is the capacity; only the storage differs:

    means S_i       [b, n, d] per layer, beside the weights         every step reads all of them
    contents C_i    [b, n, layers, c, d], in host memory or a file  every step reads k per layer

``capacity_steps // stride`` chunks are kept per row. All memory is allocated when the stream is made. The cost of a
step grows with the number of chunks until the memory is full; then a new chunk replaces the row's oldest. ``is_first``
clears a row, or with ``carry_across_episodes`` writes its unfinished chunk. A stream never applies dropout.
"""

import os
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.config import is_integer, require
from recollect.cores.arrays import Numbers, to_tensor
from recollect.cores.hcam.chunk_store import ChunkStore, FileStore, MemoryStore
from recollect.cores.hcam.core import HierarchicalChunkMemory, HierarchicalChunkMemoryState, LayerMemory
from recollect.cores.hcam.lifelong_cache import ChunkIndex, LifelongChunkCache
from recollect.cores.hcam.stream import ChunkStream
from recollect.cores.stream_memory import RowNames
from recollect.layers.finite import is_finite
from recollect.layers.rings import Rows
from recollect.layers.window_attention import visible_steps
from recollect.ops.packed_linear import without_autocast, working_dtype

SEGMENT = 64
"""Most steps that ``extend`` computes at once: bounds its workspace of b * SEGMENT * n scores."""
BATCH = 256
"""Chunks that are copied at once when a state is loaded."""


class Footprint(NamedTuple):
    """Bytes of a full stream, by place."""

    device: int
    """On an accelerator; 0 if the core is on the CPU."""
    host: int
    disk: int


class LifelongStream(ChunkStream):
    """A stream of a :class:`HierarchicalChunkMemory` with very many chunks; see the top of this module.

    Args:
        core: its ``num_chunks`` is ignored.
        batch_size: number of streams, each with its own capacity.
        capacity_steps: steps that are kept; rounded down to whole chunks.
        folder: an existing folder for the contents; None keeps them in host memory.
        keep_file: keep the file in the folder (``stream.store.path``); else it is deleted with the stream.
        dtype: of the contents. None is that of the core, and exact; ``torch.bfloat16`` takes half the bytes, with the
            same choice of chunks and rounded contents.

    Raises:
        ValueError: no row, a capacity below one chunk, another dtype, ``keep_file`` without a folder, a folder that
            cannot be written or is full. A step whose chunk cannot be written raises, and the stream continues without
            that chunk.
    """

    def __init__(
        self,
        core: HierarchicalChunkMemory,
        batch_size: int = 1,
        capacity_steps: int = 1_000_000,
        *,
        folder: str | os.PathLike[str] | None = None,
        keep_file: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a stream needs at least one row")
        require(is_integer(capacity_steps), "capacity_steps", capacity_steps, "give a whole number of steps")
        c, own = core.config, next(core.layers[0].parameters())
        n, shape = capacity_steps // c.stride, (c.num_layers, c.chunk_len, c.dim)
        if n < 1:
            raise ValueError(f"capacity_steps={capacity_steps}: give at least the {c.stride} steps of one chunk")
        if dtype not in (None, own.dtype, torch.bfloat16):
            raise ValueError(f"dtype={dtype}: choose None ({own.dtype}, exact) or torch.bfloat16")
        if keep_file and folder is None:
            raise ValueError("keep_file=True: there is no file without a folder: give folder=...")
        kind = own.dtype if dtype is None else dtype
        self._options = {"capacity_steps": capacity_steps, "folder": folder, "keep_file": keep_file, "dtype": dtype}
        self.store: ChunkStore = (
            MemoryStore(batch_size * n, shape, kind)
            if folder is None
            else FileStore(batch_size * n, shape, kind, folder, keep_file=keep_file)
        )
        self._chunk_index = ChunkIndex(batch_size, n, own.device)
        self._caches = [
            LifelongChunkCache(layer, i, self._chunk_index, self.store, working_dtype(own))
            for i, layer in enumerate(core.layers)
        ]
        self._features = core.features()
        super().__init__(core, self._caches)

    @property
    def num_chunks(self) -> int:
        """Most chunks of a row."""
        return self._chunk_index.capacity

    @property
    def held(self) -> list[int]:
        """Number of stored chunks of each row."""
        return list(self._chunk_index.counts)

    @property
    def footprint(self) -> Footprint:
        """Bytes of every kind of buffer, which add up to :attr:`nbytes`."""
        parts = {"device": 0, "host": 0, "disk": self.store.data.nbytes if self.store.on_disk else 0}
        for buffer in self.buffers()[: -1 if self.store.on_disk else None]:
            parts["host" if buffer.device.type == "cpu" else "device"] += buffer.nbytes
        return Footprint(**parts)

    @torch.no_grad()
    def extend(self, inputs: Tensor | Numbers, is_first: Tensor | np.ndarray | None = None) -> None:
        """Consume many steps at once, without outputs: the memory is the same as after single steps.

        Steps between two chunk ends see the same chunks and are computed together. Broken steps enter as zeros, as in
        :meth:`step`.

        Args:
            inputs: float ``[b, t, input_dim]``: a tensor, an array or lists, as :meth:`unroll` takes them.
            is_first: bool ``[b, t]``; None clears nothing.

        Raises:
            ValueError: a wrong shape or dtype; the weights have changed since the stream was made.
        """
        self.check_weights()
        inputs = to_tensor(inputs, self.like, floats=True)
        b, t = self.batch_size, inputs.shape[1] if inputs.ndim == 3 else 1
        firsts = torch.zeros(b, t, dtype=torch.bool) if is_first is None else is_first
        firsts = torch.as_tensor(firsts, device=self._never.device)
        self._check_step(inputs, firsts, [b, t], "this stream extends by")
        inputs = inputs.to(self._raw.data.dtype)  # under autocast they may have another dtype
        inputs = torch.where(is_finite(inputs).all(-1, keepdim=True), inputs, 0.0)
        resets = {} if is_first is None else {i: firsts[:, i].tolist() for i in firsts.any(0).nonzero()[:, 0].tolist()}
        starts = iter([*sorted(resets), t])
        following, begin = next(starts), 0
        with without_autocast(inputs):
            while begin < t:
                if begin == following:
                    starting = [row for row, first in enumerate(resets[begin]) if first]
                    self._new_episode(Rows(torch.tensor(starting, device=firsts.device), b))
                    following = next(starts)
                end = min(following, begin + self._until_chunk())
                self._segment(inputs[:, begin:end])
                begin = end
            self._project_windows(None)

    def reset(self, rows: RowNames | None = None) -> None:
        """Clear all rows, or the given ones, with the chunks that are carried across episodes."""
        forgotten = self.named_rows(range(self.batch_size) if rows is None else rows)
        self._drop_chunks(forgotten.numbers)
        self._clear(forgotten)
        self._note_chunks()

    def extra_arguments(self) -> dict[str, Any]:
        """Return capacity, folder and dtype."""
        return self._options

    def read_rows(self, rows: Rows | None) -> HierarchicalChunkMemoryState:
        """Return a copy of the state of a core whose ``num_chunks`` is the most that any row has (at least 1).

        A copy in RAM: 1 GB for a million steps of two layers of width 128. ``save``, ``load`` and ``fork`` use it.
        """
        device, held = self._never.device, self._chunk_index.held
        index = torch.arange(self.batch_size, device=device) if rows is None else rows.index
        b, n = len(index), max(held, 1)
        order = self._chunk_index.order(rows) if held else torch.zeros(b, 1, dtype=torch.long, device=device)
        counts = torch.tensor(self.held, device=device)[index]
        exists = torch.arange(n, 0, -1, device=device) <= counts[:, None]
        layers = []
        for cache, window in zip(self._caches, self._windows(rows), strict=True):
            contents = cache.take(order[:, None], rows).to(window.dtype).unflatten(0, (b, n))
            contents.masked_fill_(~exists[..., None, None], 0.0)
            means = torch.where(exists[..., None], cache.means[index[:, None], order], 0.0)
            layers.append(LayerMemory(window, contents, means))
        lengths = torch.where(exists, self._chunk_index.lengths[index].gather(1, order), 0)
        return HierarchicalChunkMemoryState(tuple(layers), lengths, torch.tensor(self._steps_of(rows), device=device))

    def write_rows(self, state: HierarchicalChunkMemoryState, rows: Rows | None) -> None:
        """Continue some rows from a state with any number of chunks, of which the newest are kept; None: all."""
        self._load_windows([layer.window for layer in state.layers], state.steps.tolist(), rows)
        numbers = range(self.batch_size) if rows is None else rows.numbers
        for source, (row, lengths) in enumerate(zip(numbers, state.lengths, strict=True)):
            self._chunk_index.clear(row)
            # A chunk that was removed from the state has left a gap of length 0.
            chosen = (lengths > 0).nonzero()[-self.num_chunks :, 0]
            for begin in range(0, len(chosen), BATCH):
                part = chosen[begin : begin + BATCH]
                places = [self._chunk_index.claim(row) for _ in part]
                chunks = torch.stack([layer.contents[source, part] for layer in state.layers], 1)
                means = torch.stack([layer.keys[source, part] for layer in state.layers], 1)
                self._write_at([row] * len(places), places, lengths[part], chunks, means)
        self._note_chunks()

    def joined(self, states: list[HierarchicalChunkMemoryState]) -> HierarchicalChunkMemoryState:
        """Join states of different numbers of chunks: missing ones are of length 0, before the others."""
        most = max(state.lengths.shape[1] for state in states)

        def padded(leaf: Tensor) -> Tensor:
            missing = leaf.new_zeros(len(leaf), most - leaf.shape[1], *leaf.shape[2:])
            return torch.cat((missing, leaf), 1)

        alike = []
        for state in states:
            layers = [m._replace(contents=padded(m.contents), keys=padded(m.keys)) for m in state.layers]
            alike.append(state._replace(layers=tuple(layers), lengths=padded(state.lengths)))
        return super().joined(alike)

    def buffers(self) -> list[Tensor]:
        """Return windows, means, lengths and, last, contents."""
        means = [cache.means for cache in self._caches]
        return [*self._window_buffers(), *means, self._chunk_index.lengths, self.store.data]

    def _write_chunk(self, rows: list[int], lengths: list[int], chunks: Tensor, means: Tensor) -> None:
        places = [self._chunk_index.next[row] for row in rows]
        sizes = torch.tensor(lengths, device=self._never.device)
        self._write_at(rows, places, sizes, chunks.transpose(1, 2), means)
        for row in rows:
            self._chunk_index.claim(row)

    def _write_at(self, rows: list[int], places: list[int], sizes: Tensor, chunks: Tensor, means: Tensor) -> None:
        """Write chunks ``[r, layers, c, d]``; the contents first, because only this write can fail."""
        n, device = self._chunk_index.capacity, self._never.device
        self.store.put([row * n + place for row, place in zip(rows, places, strict=True)], chunks)
        index, where = torch.tensor(rows, device=device), torch.tensor(places, device=device)
        self._chunk_index.lengths[index, where] = sizes
        for i, cache in enumerate(self._caches):
            cache.means[index, where] = means[:, i]

    def _drop_chunks(self, rows: list[int]) -> None:
        for row in rows:
            self._chunk_index.clear(row)

    def _note_chunks(self) -> None:
        super()._note_chunks()
        self._chunk_index.recount()

    def _counts(self) -> list[int]:
        return self._chunk_index.counts

    def _order(self) -> Tensor:
        return self._chunk_index.order()

    def _until_chunk(self) -> int:
        """Return the number of steps before any row's chunks change, at most ``SEGMENT``."""
        c = self.core.config
        return min(SEGMENT, *(c.stride - (steps - c.chunk_overlap) % c.stride for steps in self._steps))

    def _segment(self, inputs: Tensor) -> None:
        """Consume steps ``[b, t, i]`` of which only the last may complete a chunk."""
        w, t, d = self.core.config.memory_len, inputs.shape[1], self.core.config.dim
        past, raw = self._raw.window(), []
        since = torch.tensor(self._steps, device=inputs.device)[:, None] + torch.arange(t, device=inputs.device)
        visible = visible_steps(since, w)
        x, held = self.core.project(inputs), self._held(None)
        for i, (step_layer, cache) in enumerate(zip(self._layers, self._caches, strict=True)):
            raw.append(x)
            if i == len(self._layers) - 1:
                break
            layer = step_layer.layer
            x = layer.gate_local(x, layer.local(x, past[:, -w:, i], visible, self._features))
            read = torch.zeros_like(x)  # a gate changes the stream even without chunks
            if held.most:
                read = cache.read_steps(F.layer_norm(x, (d,)), held)
            x = layer.gate_memory(x, read)
            forward = layer.feed_forward  # in parts, because the whole applies dropout in training
            middle = forward.activation(forward.expand(layer.norm_forward(x)))
            x = layer.gate_forward(x, forward.contract(middle))
        self._raw.load(torch.cat((past, torch.stack(raw, 2)), 1)[:, -self._raw.length :])
        self._advance_count(t, range(self.batch_size))

    def check_state(self, state: HierarchicalChunkMemoryState, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless the state is of this core, with any number of chunks."""
        core, n = self.core, self.core.config.num_chunks
        if isinstance(state, HierarchicalChunkMemoryState) and state.lengths.ndim == 2 and state.lengths.shape[1] > 0:
            total = state.lengths.shape[1]
            if all(layer.contents.shape[1:2] == layer.keys.shape[1:2] == (total,) for layer in state.layers):
                seen = [
                    layer._replace(
                        contents=layer.contents[:, :1].expand(-1, n, -1, -1), keys=layer.keys[:, :1].expand(-1, n, -1)
                    )
                    for layer in state.layers
                ]
                state = state._replace(layers=tuple(seen), lengths=state.lengths[:, :1].expand(-1, n))
        core.check_state(state, self.batch_size if batch_size is None else batch_size, self._never.device)

    def try_state(self, state: HierarchicalChunkMemoryState, path: str | os.PathLike[str]) -> None:
        """Skip the step: no counter leads outside this memory, and a second stream would double its bytes."""
