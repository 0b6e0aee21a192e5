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
from recollect.cores.stream import Stream
from recollect.layers.rings import MirrorRing
from recollect.ops.packed_linear import PackedLinear, working_dtype
from recollect.state import clone


class LongShortTransformerStream(Stream):
    """Stream of a :class:`LongShortTransformer`."""

    core: LongShortTransformer

    def __init__(self, core: LongShortTransformer, batch_size: int) -> None:
        self._rings = [LayerRings(block, batch_size) for block in core.layers]
        self._narrow = torch.is_autocast_enabled(next(core.parameters()).device.type)
        super().__init__(core, batch_size)

    @property
    def state(self) -> LongShortTransformerState:
        """The memory as the core's state (a copy)."""
        steps = torch.tensor(self._steps, device=self._never.device)
        phase = steps % self.core.config.chunk_len
        return LongShortTransformerState(tuple(clone(ring.dump(phase)) for ring in self._rings), steps)

    def load_state(self, state: LongShortTransformerState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        for ring, memory in zip(self._rings, state.layers, strict=True):
            ring.load(memory)
        # Counters are Python numbers: no step waits for a device to find out whether a segment ends.
        self._steps: list[int] = state.steps.tolist()

    def buffers(self) -> list[Tensor]:
        """Return rings, landmarks with and without positions, and position keys of all layers."""
        kept = []
        for ring in self._rings:
            kept += [ring.window.data, ring.segment.data, ring.landmarks]
            kept += [ring.keys, ring.far, ring.near] if ring.attention.relative else []
        return kept

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs."""
        kind = inputs.device.type
        if torch.is_autocast_enabled(kind) == self._narrow:
            return self._advance(inputs, is_first)
        # The dtype of the products was chosen when the stream was constructed.
        with torch.autocast(kind, dtype=self._rings[0].dtype if self._narrow else None, enabled=self._narrow):
            return self._advance(inputs.to(self._dtype), is_first)

    def _advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        core = self.core
        if is_first is not self._never and any(firsts := is_first.tolist()):
            self._steps = [0 if first else steps for first, steps in zip(firsts, self._steps, strict=True)]
            for ring in self._rings:
                ring.clear(is_first)
        stream = core.embed(inputs)
        hidden, (ends, rows) = self._hidden(), self._ends()
        for ring in self._rings:
            stream = ring.step(stream, hidden)
            if ends:
                ring.finish(rows)
        self._steps = [steps + 1 for steps in self._steps]
        return core.norm(stream)

    def _ends(self) -> tuple[bool, Tensor | None]:
        """Return whether a segment ends with this step, and in which rows (None: in all)."""
        chunk = self.core.config.chunk_len
        ends = [steps % chunk == chunk - 1 for steps in self._steps]
        return any(ends), None if all(ends) else torch.tensor(ends, device=self._never.device)

    def _hidden(self) -> Tensor | None:
        """Return unused places ``[b*h, 1, s*r+w+1]``; None once every row is full."""
        config = self.core.config
        slots = config.num_segments * config.num_landmarks
        if min(self._steps) >= max(config.memory_len, config.num_segments * config.chunk_len):
            return None
        steps, device = torch.tensor(self._steps, device=self._never.device)[:, None], self._never.device
        far = torch.arange(slots, 0, -1, device=device) > steps // config.chunk_len * config.num_landmarks
        near = torch.arange(config.memory_len, -1, -1, device=device) > steps
        return torch.cat((far, near), -1).repeat_interleave(config.num_heads, 0)[:, None]


def heads_first(pairs: Tensor, num_heads: int) -> Tensor:
    """``[b, s, 2d] -> [b*h, s, 2e]``: join batch and heads in one axis, so that products need no copy."""
    return pairs.unflatten(-1, (2, num_heads, -1)).movedim(-2, 1).flatten(-2).flatten(0, 1)


def heads_last(pairs: Tensor, num_heads: int) -> Tensor:
    """``[b*h, s, 2e] -> [b, s, 2d]``: the inverse of :func:`heads_first`."""
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

    def load(self, memory: LayerMemory) -> None:
        """Copy the memory of the functional form."""
        self.window.load(heads_first(F.pad(memory.window, (0, 0, 1, 0)), self.config.num_heads))
        self.segment.load(F.pad(memory.segment, (0, 0, 1, 0)))
        self._keep(heads_first(memory.landmarks, self.config.num_heads))

    def dump(self, phase: Tensor) -> LayerMemory:
        """Return a copy in the functional form; ``phase`` long ``[b]``, steps of the unfinished segment."""
        segment = self.segment.window()[:, 1:]
        used = torch.arange(segment.shape[1], 0, -1, device=phase.device) <= phase[:, None]
        return LayerMemory(
            heads_last(self.window.window()[:, 1:], self.config.num_heads),
            torch.where(used[..., None], segment, 0.0),
            heads_last(self.landmarks, self.config.num_heads),
        )

    def clear(self, rows: Tensor) -> None:
        """Zero the rows of a bool mask ``[b]``."""
        by_head = rows.repeat_interleave(self.config.num_heads)
        self.window.clear(by_head)
        self.segment.clear(rows)
        self._keep(self.landmarks.masked_fill(by_head[:, None, None], 0.0))

    def finish(self, rows: Tensor | None) -> None:
        """Turn the last c steps into landmarks, in the rows of a bool mask ``[b]`` or in all."""
        new = heads_first(self.attention.compress(self.segment.window()), self.config.num_heads)
        shifted = torch.cat((self.landmarks[:, new.shape[1] :], new.to(self.landmarks.dtype)), 1)
        if rows is not None:
            shifted = torch.where(rows.repeat_interleave(self.config.num_heads)[:, None, None], shifted, self.landmarks)
        self._keep(shifted)

    def _keep(self, landmarks: Tensor) -> None:
        self.landmarks = landmarks
        keys, self.values = landmarks.chunk(2, -1)
        # Landmarks and their distances change once per segment: positions are added to the keys here.
        self.keys = keys + self.far if self.attention.relative else keys

    def step(self, inputs: Tensor, hidden: Tensor | None) -> Tensor:
        """Compute the block on one step: ``[b, d] -> [b, d]``."""
        block = self.block
        stream = inputs + self.read(block.attention_norm(inputs), hidden)
        inside = block.feed_forward.activation(self.expand(block.feed_forward_norm(stream).to(self.dtype)))
        return stream + self.contract(inside)

    def read(self, inputs: Tensor, hidden: Tensor | None) -> Tensor:
        """Push the normed step ``[b, d]`` and attend: ``[b, d]``; ``hidden`` bool ``[b*h, 1, s*r+w+1]``."""
        attention, heads, batch = self.attention, self.config.num_heads, inputs.shape[0]
        queries, local, entry = attention.split(self.project(inputs.to(self.dtype)))
        self.window.push(local.unflatten(-1, (2, heads, -1)).transpose(1, 2).reshape(batch * heads, -1))
        self.segment.push(entry)
        near_keys, near_values = self.window.window().chunk(2, -1)  # b*h w+1 e
        queries = queries.reshape(batch, heads, -1) * (self.config.dim // heads) ** -0.5
        flat = queries.flatten(0, 1).unsqueeze(1)  # b*h 1 e
        far = torch.bmm(flat, self.keys.transpose(1, 2))
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
        far, near = weights.to(self.values.dtype).split((far.shape[-1], near.shape[-1]), -1)
        read = torch.baddbmm(torch.bmm(far, self.values), near, near_values)
        return self.out(read.reshape(batch, -1).to(self.dtype))
