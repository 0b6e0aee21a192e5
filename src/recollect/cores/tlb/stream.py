"""The stream of the temporal latent bottleneck: one step, or several steps of one chunk, at a time, in place.

It keeps the keys and values of the running chunk for each self layer, those of the slots for each cross layer, and
those of the chunk's outputs for the write. A step is then one step of each layer. The K-th step of a chunk also writes
the slots, which costs as much as a few steps.

Rows at the same place of their chunks share slices of the buffers. After a reset of some rows only, each row has its
own mask. The buffers have fixed sizes, and a stream never applies dropout.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.stream import RowStream
from recollect.cores.tlb.blocks import FoldedBlock, normalise
from recollect.cores.tlb.core import TemporalLatentBottleneck, TemporalLatentBottleneckState
from recollect.cores.tlb.level import FoldedLevel
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import PackedLinear
from recollect.ops.weight_grads import Affine


class Span(NamedTuple):
    """Places of the next steps in the running chunk of each row."""

    where: slice | Tensor
    """Places, the same for all rows, or long ``[b, t]``."""
    end: int
    """End of the entries that the steps read."""
    hidden: Tensor | None
    """Entries before the end that are hidden from a step, bool ``[t, end]`` or ``[b*h, t, end]``; None: none."""


def span_of(places: list[int], steps: int, length: int, heads: int, device: torch.device) -> Span:
    """Return the span of ``steps`` from a place of each row, in chunks of ``length`` entries."""
    ahead = torch.arange(steps, device=device)
    first = places[0]
    if places.count(first) == len(places):
        end = first + steps
        later = None if steps == 1 else torch.arange(end, device=device) > first + ahead[:, None]
        return Span(slice(first, end), end, later)
    where = torch.tensor(places, device=device)[:, None] + ahead
    later = torch.arange(length, device=device) > where[..., None]
    return Span(where, length, later.repeat_interleave(heads, 0))


class KVCache:
    """Keys and values ``[2, b, h, s, e]`` of up to ``length`` entries, in place."""

    def __init__(self, batch_size: int, heads: int, length: int, width: int, like: Tensor) -> None:
        self.data = torch.zeros(2, batch_size, heads, length, width, dtype=like.dtype, device=like.device)
        self.rows = torch.arange(batch_size, device=like.device)

    def put(self, pairs: Tensor, where: slice | Tensor, rows: Rows | None) -> None:
        """Write ``[r, t, 2, h, e]`` at the places of a span."""
        if rows is None and isinstance(where, slice):
            self.data[:, :, :, where] = pairs.permute(2, 0, 3, 1, 4)
            return
        index = self.rows if rows is None else rows.index
        if isinstance(where, slice):
            where = torch.arange(where.start, where.stop, device=index.device)
        self.data[:, index[:, None], :, where] = pairs

    def read(self, queries: Tensor, end: int, hidden: Tensor | None, layer: FoldedBlock, rows: Rows | None) -> Tensor:
        """Attend by scaled queries ``[r, t, h*e]`` to the entries before an end: ``[r*t, h*e]``."""
        data = self.data[:, :, :, :end] if rows is None else self.data[:, :, :, :end].index_select(1, rows.index)
        _, b, heads, _, width = data.shape
        t = queries.shape[1]
        keys, values = data.flatten(1, 2).unbind(0)
        queries = queries.reshape(b, t, heads, width).transpose(1, 2).reshape(b * heads, t, width)
        scores = torch.bmm(queries, keys.transpose(1, 2))
        if hidden is not None:
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        tap = layer.block.attention.tap
        if tap.has_listeners:
            tap(weights.view(b, heads, t, -1))
        read = torch.bmm(weights.to(values.dtype), values).view(b, heads, t, width)
        return read.transpose(1, 2).reshape(b * t, heads * width)


class StreamLayer:
    """A folded layer for a few steps of each row, and the cache that it reads."""

    def __init__(self, layer: FoldedBlock, cache: KVCache) -> None:
        self.layer, self.cache, self.cross = layer, cache, layer.block.cross
        heads, width = cache.data.shape[2], cache.data.shape[4]
        self.width, self.dtype, self.eps = heads * width, layer.inward.weight.dtype, layer.block.eps
        weight, bias = layer.inward.weight.clone(), layer.inward.bias
        weight[: self.width] *= width**-0.5  # queries come scaled
        if bias is not None:
            bias = torch.cat((bias[: self.width] * width**-0.5, bias[self.width :]))
        self.inward = _packed(Affine(weight, bias), cache)
        self.out = _packed(layer.out, cache)
        self.expand, self.contract = [_packed(affine, cache) for affine in layer.rest[1:]] or (None, None)

    def replay(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Run a whole chunk ``[r, K, d]`` of which the first steps are valid, and fill the cache of a self layer."""
        queries, *own = self.layer.project(x, self.layer.inward)
        if not self.cross:
            self.cache.data[0][rows], self.cache.data[1][rows] = own
        keys, values = self.cache.data[:, rows].unbind(0)
        return self.layer.join(x, queries, keys, values, causal=not self.cross)

    def __call__(self, x: Tensor, span: Span, rows: Rows | None) -> Tensor:
        """Run the steps of a span, ``[r*t, d] -> [r*t, d]``."""
        _, b, heads, length, width = self.cache.data.shape
        b = b if rows is None else len(rows)
        t = len(x) // b
        projected = self.inward(normalise(x, self.eps).to(self.dtype)).view(b, t, -1)
        if self.cross:
            read = self.cache.read(projected, length, None, self.layer, rows)
        else:
            self.cache.put(projected[..., self.width :].view(b, t, 2, heads, width), span.where, rows)
            read = self.cache.read(projected[..., : self.width], span.end, span.hidden, self.layer, rows)
        x = self.out.plus(read, x) if x.dtype == self.dtype else x + self.out(read)
        feedforward = self.layer.block.feedforward
        if feedforward is None or self.expand is None or self.contract is None:
            return x
        hidden = feedforward.activation(self.expand(normalise(x, self.eps).to(self.dtype)))
        return self.contract(hidden) + x


def _packed(affine: Affine, cache: KVCache) -> PackedLinear:
    return PackedLinear(affine.weight, affine.bias, rows=len(cache.rows), uses=1000)


class StreamLevel:
    """A level for a few steps of each row, with slots ``[b, N, d]`` that are changed in place."""

    def __init__(self, level: FoldedLevel, slots: Tensor, chunk_len: int) -> None:
        self.level, self.slots = level, slots
        self.initial = level.initial.clone()  # a copy, because the core may be trained further
        b, num_slots = slots.shape[:2]
        heads = level.write.block.attention.num_heads
        like = level.write.inward.weight
        width = like.shape[0] // heads

        def stream_layer(layer: FoldedBlock) -> StreamLayer:
            return StreamLayer(layer, KVCache(b, heads, num_slots if layer.block.cross else chunk_len, width, like))

        self.layers = [stream_layer(layer) for layer in (*level.before, *level.inner)]
        self.after = [stream_layer(layer) for layer in level.after]
        self.crosses = [layer.cache for layer in self.layers if layer.cross]
        self.outputs = KVCache(b, heads, chunk_len, width, like)
        self.to_outputs = _packed(level.write.from_context, self.outputs)
        self.used = torch.zeros_like(slots)
        self.queries = torch.zeros(b, heads, num_slots, width, dtype=like.dtype, device=like.device)
        self.caches = [self.outputs, *(layer.cache for layer in (*self.layers, *self.after))]

    def buffers(self) -> list[Tensor]:
        """Return all tensors that are kept."""
        return [self.slots, self.used, self.queries, *(cache.data for cache in self.caches)]

    def begin(self, rows: Tensor | slice = slice(None)) -> None:
        """Compute the keys, values and queries of the slots for the next chunk."""
        level, slots = self.level, self.slots[rows]
        used = slots if level.added is None else slots + level.added
        *context, write_queries = level.write.project(used, level.from_slots)
        self.used[rows], self.queries[rows] = used, write_queries
        for cache in self.crosses:
            cache.data[0][rows], cache.data[1][rows] = context.pop(0), context.pop(0)

    def clear(self, rows: Tensor) -> None:
        """Begin an episode in the rows (integers), without anything of the past, which could be NaN."""
        for cache in self.caches:
            cache.data[:, rows] = 0.0
        self.slots[rows] = self.initial
        self.begin(rows)

    def __call__(self, x: Tensor, span: Span, rows: Rows | None) -> Tensor:
        """Run the steps of a span, ``[r*t, d] -> [r*t, d]``."""
        for layer in self.layers:
            x = layer(x, span, rows)
        pairs = self.to_outputs(normalise(x, self.level.write.block.eps).to(self.queries.dtype))
        batch_size, heads, _, width = self.queries.shape
        batch_size = batch_size if rows is None else len(rows)
        self.outputs.put(pairs.view(batch_size, len(x) // batch_size, 2, heads, width), span.where, rows)
        for layer in self.after:
            x = layer(x, span, rows)
        return x

    def write(self, rows: Tensor | slice) -> None:
        """Write the slots of rows whose chunk is complete: equation 2."""
        keys, values = (part[rows] for part in self.outputs.data.unbind(0))
        self.slots[rows] = self.level.write.join(self.used[rows], self.queries[rows], keys, values).to(self.slots.dtype)
        self.begin(rows)

    def replay(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Fill the caches from a chunk ``[r, K, d]``, of which the first steps are valid."""
        for layer in self.layers:
            x = layer.replay(x, rows)
        write = self.level.write
        self.outputs.data[0][rows], self.outputs.data[1][rows] = write.project(x, write.from_context)
        for layer in self.after:
            x = layer.replay(x, rows)
        return x


class TemporalLatentBottleneckStream(RowStream):
    """The stream of a :class:`~recollect.cores.TemporalLatentBottleneck`."""

    core: TemporalLatentBottleneck

    def __init__(self, core: TemporalLatentBottleneck, batch_size: int) -> None:
        config = core.config
        self._chunk_len = config.chunk_len
        slots = core.initial_state(batch_size).slots.clone()
        folded = core.folded_levels()
        for level in folded:
            level.never_drop()
        self._levels = [StreamLevel(level, slots[:, i], config.chunk_len) for i, level in enumerate(folded)]
        self._positions = core.local_positions()
        self._inputs = core.zeros(batch_size, config.chunk_len, config.dim)
        self._rows = torch.arange(batch_size, device=slots.device)
        self._steps = [0] * batch_size  # state.position, on the host
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> TemporalLatentBottleneckState:
        """Return a copy of the core's state of some rows; None: of all."""
        index = self._rows if rows is None else rows.index
        position = torch.tensor(self._steps_of(rows), device=self._rows.device)
        back = torch.arange(1 - self._chunk_len, 0, device=self._rows.device) + (position % self._chunk_len)[:, None]
        inputs = self._inputs[index[:, None], back.clamp(min=0)]
        slots = torch.stack([level.slots[index] for level in self._levels], 1)
        inputs = torch.where((back >= 0)[..., None], inputs, 0.0)
        return TemporalLatentBottleneckState(slots, inputs, position)

    def write_rows(self, state: TemporalLatentBottleneckState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        for row, steps in zip(self._numbers_of(rows), state.position.tolist(), strict=True):
            self._steps[row] = steps
        index = slice(None) if rows is None else rows.index
        inside = state.position % self._chunk_len
        ahead = torch.arange(self._chunk_len, device=self._rows.device) + (self._chunk_len - 1 - inside)[:, None]
        padded = F.pad(state.inputs, (0, 0, 0, self._chunk_len))
        inputs = padded.gather(1, ahead[..., None].expand(-1, -1, padded.shape[-1]))
        self._inputs[index] = inputs
        with torch.autocast(self._inputs.device.type, enabled=False):
            x = inputs if self._positions is None else inputs + self._positions
            for i, level in enumerate(self._levels):
                level.slots[index] = state.slots[:, i]
                level.begin(index)
                x = level.replay(x, index)

    def _numbers_of(self, rows: Rows | None) -> Sequence[int]:
        return range(self.batch_size) if rows is None else rows.numbers

    def _steps_of(self, rows: Rows | None) -> list[int]:
        return self._steps if rows is None else [self._steps[row] for row in rows.numbers]

    def buffers(self) -> list[Tensor]:
        """Return every tensor that is kept between steps."""
        return [self._inputs, *(buffer for level in self._levels for buffer in level.buffers())]

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step on checked inputs of some rows; None: of all."""
        return self._advance_block(inputs[:, None], is_first, rows)[:, 0]

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take steps ``[b, t, i] -> [b, t, dim]``, in one pass for each part that completes a chunk in some row."""
        return self._advance_block(inputs, is_first, None)

    def _advance_block(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        kind = inputs.device.type
        if not torch.is_autocast_enabled(kind):
            return self._advance(inputs, is_first, rows)
        # The weights were cast when the stream was made, and their dtype decides.
        with torch.autocast(kind, enabled=False):
            return self._advance(inputs.to(self._inputs.dtype), is_first, rows)

    def _advance(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        x = self.core.project(inputs).to(self._inputs.dtype)
        if starting := self.starting(is_first, rows):
            self._reset(starting)
        parts = []
        while x.shape[1]:
            ahead = min(self._chunk_len - steps % self._chunk_len for steps in self._steps_of(rows))
            parts.append(self._inside(x[:, :ahead], rows))
            x = x[:, ahead:]
        return self.core.final_norm(parts[0] if len(parts) == 1 else torch.cat(parts, 1))

    def _inside(self, x: Tensor, rows: Rows | None) -> Tensor:
        """Take steps ``[r, t, d]`` of which only the last may complete a chunk."""
        b, t, d = x.shape
        places = [steps % self._chunk_len for steps in self._steps_of(rows)]
        heads = self._levels[0].queries.shape[1]
        span = span_of(places, t, self._chunk_len, heads, x.device)
        if isinstance(span.where, slice):
            self._inputs[slice(None) if rows is None else rows.index, span.where] = x
        else:
            self._inputs[(self._rows if rows is None else rows.index)[:, None], span.where] = x
        if self._positions is not None:
            x = x + self._positions[span.where]
        x = x.reshape(b * t, d)
        for level in self._levels:
            x = level(x, span, rows)
        self._finish(places, t, rows)
        return x.view(b, t, d)

    def _reset(self, rows: Rows) -> None:
        for row in rows.numbers:
            self._steps[row] = 0
        self._inputs[rows.index] = 0.0
        for level in self._levels:
            level.clear(rows.index)

    def _finish(self, places: list[int], t: int, rows: Rows | None) -> None:
        """Count t steps from these places, and write the slots of rows whose chunk they complete."""
        c, stretch, numbers = self._chunk_len, self.core.config.details.detach_every, self._numbers_of(rows)
        for row in numbers:
            for _ in range(t):
                self._steps[row] = after_step(self._steps[row], c, stretch)
        full = [row for row, place in zip(numbers, places, strict=True) if place + t == c]
        if full:
            index = slice(None) if len(full) == self.batch_size else torch.tensor(full, device=self._rows.device)
            for level in self._levels:
                level.write(index)


def after_step(position: int, chunk_len: int, stretch: int | None) -> int:
    """Return ``state.position`` one step later."""
    position += 1
    if stretch is None:
        return position % chunk_len
    return position if position < chunk_len * (stretch + 1) else chunk_len
