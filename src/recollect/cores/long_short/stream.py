"""The Long-Short Transformer in a stream: rings of projected keys and values, and landmarks.

Nothing is projected twice, and only landmarks are ever moved: once per segment. There is no dropout.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.long_short.core import (
    LayerMemory,
    LongShortBlock,
    LongShortTransformer,
    LongShortTransformerState,
)
from recollect.cores.stream import RowStream
from recollect.layers.rings import MirrorRing, Rows
from recollect.ops.packed_linear import PackedLinear, working_dtype
from recollect.state import clone


class LongShortTransformerStream(RowStream):
    """Stream of a :class:`LongShortTransformer`."""

    core: LongShortTransformer

    def __init__(self, core: LongShortTransformer, batch_size: int) -> None:
        self._rings = [LayerRings(block, batch_size) for block in core.layers]
        self._narrow = torch.is_autocast_enabled(next(core.parameters()).device.type)
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> LongShortTransformerState:
        """Return a copy of the core's state of some rows; None: of all."""
        steps = torch.tensor(self._steps_of(rows), device=self._never.device)
        phase = steps % self.core.config.chunk_len
        return LongShortTransformerState(tuple(clone(ring.dump(phase, rows)) for ring in self._rings), steps)

    def write_rows(self, state: LongShortTransformerState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        for ring, memory in zip(self._rings, state.layers, strict=True):
            ring.load(memory, rows)
        # Counters are Python numbers: no step waits for a device to find out whether a segment ends.
        steps: list[int] = state.steps.tolist()
        if rows is None:
            self._steps = steps
        else:
            for row, count in zip(rows.numbers, steps, strict=True):
                self._steps[row] = count

    def _steps_of(self, rows: Rows | None) -> list[int]:
        return self._steps if rows is None else [self._steps[row] for row in rows.numbers]

    def buffers(self) -> list[Tensor]:
        """Return rings, landmarks with and without positions, and position keys of all layers."""
        kept = []
        for ring in self._rings:
            kept += [ring.window.data, ring.segment.data, ring.landmarks]
            kept += [ring.keys, ring.far, ring.near] if ring.attention.relative else []
        return kept

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step on checked inputs ``[r, i]`` of some rows; None: of all."""
        kind = inputs.device.type
        if torch.is_autocast_enabled(kind) == self._narrow:
            return self._advance(inputs, is_first, rows)
        # The dtype of the products was chosen when the stream was constructed.
        with torch.autocast(kind, dtype=self._rings[0].dtype if self._narrow else None, enabled=self._narrow):
            return self._advance(inputs.to(self._dtype), is_first, rows)

    def _advance(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        core = self.core
        if starting := self.starting(is_first, rows):
            for row in starting.numbers:
                self._steps[row] = 0
            for ring in self._rings:
                ring.clear(starting)
        stream = core.embed(inputs)
        steps = self._steps_of(rows)
        hidden, ending = self._hidden(steps), self._ending(rows)
        for ring in self._rings:
            stream = ring.step(stream, hidden, rows)
            if ending:
                ring.finish(ending)
        if rows is None:
            self._steps = [count + 1 for count in steps]
        else:
            for row in rows.numbers:
                self._steps[row] += 1
        return core.norm(stream)

    def _ending(self, rows: Rows | None) -> Rows | None:
        """Return the rows whose segment ends with this step; None if there is none."""
        chunk = self.core.config.chunk_len
        numbers = range(self.batch_size) if rows is None else rows.numbers
        ending = [row for row in numbers if self._steps[row] % chunk == chunk - 1]
        return Rows(torch.tensor(ending, device=self._never.device), self.batch_size) if ending else None

    def _hidden(self, counts: list[int]) -> Tensor | None:
        """Return unused places ``[b*h, 1, s*r+w+1]`` after these steps; None once every row is full."""
        config = self.core.config
        slots = config.num_segments * config.num_landmarks
        if min(counts) >= max(config.memory_len, config.num_segments * config.chunk_len):
            return None
        steps, device = torch.tensor(counts, device=self._never.device)[:, None], self._never.device
        far = torch.arange(slots, 0, -1, device=device) > steps // config.chunk_len * config.num_landmarks
        near = torch.arange(config.memory_len, -1, -1, device=device) > steps
        return torch.cat((far, near), -1).repeat_interleave(config.num_heads, 0)[:, None]


def heads_first(pairs: Tensor, num_heads: int) -> Tensor:
    """Join batch and heads in one axis, so that products need no copy: ``[b, s, 2d] -> [b*h, s, 2e]``."""
    return pairs.unflatten(-1, (2, num_heads, -1)).movedim(-2, 1).flatten(-2).flatten(0, 1)


def heads_last(pairs: Tensor, num_heads: int) -> Tensor:
    """Undo :func:`heads_first`: ``[b*h, s, 2e] -> [b, s, 2d]``."""
    return pairs.unflatten(0, (-1, num_heads)).unflatten(-1, (2, -1)).movedim(1, -2).flatten(-3)


class LayerRings:
    """Memory and packed weights of one layer in a stream."""

    def __init__(self, block: LongShortBlock, batch_size: int) -> None:
        self.block, self.attention, self.config = block, block.attention, block.attention.config
        config, heads, like = self.config, self.config.num_heads, block.attention.out.weight
        self.dtype = working_dtype(like)
        products = self.attention.project, self.attention.out, block.feed_forward.expand, block.feed_forward.contract
        self.project, self.out, self.expand, self.contract = (
            PackedLinear.for_stream(layer.weight, layer.bias, rows=batch_size, dtype=self.dtype) for layer in products
        )
        self.window = MirrorRing(batch_size * heads, config.memory_len + 1, (2 * config.dim // heads,), like)
        # The last c entries of every row: at the end of a segment, they are that segment.
        self.segment = MirrorRing(batch_size, config.chunk_len, (2 * config.dim + heads * config.num_landmarks,), like)
        if self.attention.relative:
            far, near = self.attention.position_keys()
            self.far = far.flip(1).repeat(batch_size, 1, 1)  # b*h s*r e
            self.near = near.transpose(1, 2).contiguous()  # h e w+1
        size = config.num_segments * config.num_landmarks
        self.landmarks = like.new_zeros(batch_size * heads, size, 2 * config.dim // heads)
        self.keys = self.landmarks.chunk(2, -1)[0]  # with relative positions: their own, with positions
        if self.attention.relative:
            self.keys = self.keys.clone()

    def load(self, memory: LayerMemory, rows: Rows | None) -> None:
        """Copy the memory of the functional form."""
        heads = self.config.num_heads
        self.window.load(heads_first(F.pad(memory.window, (0, 0, 1, 0)), heads), self._entries(rows))
        self.segment.load(F.pad(memory.segment, (0, 0, 1, 0)), None if rows is None else rows.index)
        self._keep(heads_first(memory.landmarks, heads), rows)

    def dump(self, phase: Tensor, rows: Rows | None) -> LayerMemory:
        """Return a copy in the functional form; ``phase`` long ``[b]``, steps of the unfinished segment."""
        heads, entries = self.config.num_heads, self._entries(rows)
        segment = self.segment.window(None if rows is None else rows.index)[:, 1:]
        used = torch.arange(segment.shape[1], 0, -1, device=phase.device) <= phase[:, None]
        return LayerMemory(
            heads_last(self.window.window(entries)[:, 1:], heads),
            torch.where(used[..., None], segment, 0.0),
            heads_last(self.landmarks if entries is None else self.landmarks[entries], heads),
        )

    def clear(self, rows: Rows) -> None:
        """Set the buffers of rows that begin an episode to zero."""
        by_head = rows.of_parts(self.config.num_heads)
        self.window.clear(by_head)
        self.segment.clear(rows.index)
        self._keep(torch.zeros_like(self.landmarks[by_head]), rows)

    def finish(self, rows: Rows) -> None:
        """Turn the last c steps of the rows into landmarks."""
        steps = self.segment.window(rows.index)
        new = heads_first(self.attention.compress(steps), self.config.num_heads)
        known = self.landmarks[self._entries(rows)]
        self._keep(torch.cat((known[:, new.shape[1] :], new.to(known.dtype)), 1), rows)

    def _entries(self, rows: Rows | None) -> Tensor | None:
        return None if rows is None else rows.of_parts(self.config.num_heads)

    def _keep(self, landmarks: Tensor, rows: Rows | None) -> None:
        entries = slice(None) if rows is None else rows.of_parts(self.config.num_heads)
        self.landmarks[entries] = landmarks
        # Landmarks and their distances change once per segment: positions are added to the keys here.
        if self.attention.relative:
            self.keys[entries] = landmarks.chunk(2, -1)[0] + self.far[entries]

    def step(self, inputs: Tensor, hidden: Tensor | None, rows: Rows | None) -> Tensor:
        """Compute the block on one step: ``[r, d] -> [r, d]``."""
        block = self.block
        stream = inputs + self.read(block.attention_norm(inputs), hidden, rows)
        inside = block.feed_forward.activation(self.expand(block.feed_forward_norm(stream).to(self.dtype)))
        return stream + self.contract(inside)

    def read(self, inputs: Tensor, hidden: Tensor | None, rows: Rows | None) -> Tensor:
        """Push the normed step ``[r, d]`` and attend: ``[r, d]``; ``hidden`` bool ``[r*h, 1, s*r+w+1]``."""
        attention, heads, batch = self.attention, self.config.num_heads, inputs.shape[0]
        queries, local, entry = attention.split(self.project(inputs.to(self.dtype)))
        entries = self._entries(rows)
        self.window.push(local.unflatten(-1, (2, heads, -1)).transpose(1, 2).reshape(batch * heads, -1), entries)
        self.segment.push(entry, None if rows is None else rows.index)
        near_keys, near_values = self.window.window(entries).chunk(2, -1)  # b*h w+1 e
        far_keys, far_values = self.keys, self.landmarks.chunk(2, -1)[1]
        if entries is not None:
            far_keys, far_values = far_keys[entries], far_values[entries]
        queries = queries.reshape(batch, heads, -1) * (self.config.dim // heads) ** -0.5
        flat = queries.flatten(0, 1).unsqueeze(1)  # b*h 1 e
        far = torch.bmm(flat, far_keys.transpose(1, 2))
        if attention.relative:
            age = torch.matmul((queries + attention.position_bias).transpose(0, 1), self.near)  # h b w+1
            age = age.transpose(0, 1).reshape(batch * heads, 1, -1)
            content = (queries + attention.content_bias).flatten(0, 1).unsqueeze(1)
            near = torch.baddbmm(age, content, near_keys.transpose(1, 2))
        else:
            near = torch.bmm(flat, near_keys.transpose(1, 2))
        scores = torch.cat((far, near), -1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        if attention.tap.has_listeners:
            attention.tap(weights.unflatten(0, (batch, heads)))
        far, near = weights.to(far_values.dtype).split((far.shape[-1], near.shape[-1]), -1)
        read = torch.baddbmm(torch.bmm(far, far_values), near, near_values)
        return self.out(read.reshape(batch, -1).to(self.dtype))
