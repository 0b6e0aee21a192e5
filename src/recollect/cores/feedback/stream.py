"""The Feedback Transformer one step at a time: projected memories in ring buffers.

A step projects one memory and reads w, without copying any. There is no dropout.
"""

from functools import partial

import torch
from torch import Tensor

from recollect.cores.feedback.attention import FeedbackLayer
from recollect.cores.feedback.core import FeedbackState, FeedbackTransformer
from recollect.cores.stream import Stream
from recollect.layers.attention import masked_softmax
from recollect.layers.rings import MirrorRing
from recollect.ops.packed_linear import PackedLinear, without_autocast


class FeedbackStream(Stream):
    """Stream of a :class:`FeedbackTransformer`."""

    core: FeedbackTransformer

    def __init__(self, core: FeedbackTransformer, batch_size: int) -> None:
        config, like = core.config, core.mix.detach()
        rows, width = batch_size * config.num_heads, config.dim // config.num_heads
        self._memory = MirrorRing(batch_size, config.memory_len, (config.dim,), like)
        self._keys = [MirrorRing(rows, config.memory_len, (width,), like) for _ in core.projections]
        self._values = [MirrorRing(rows, config.memory_len, (width,), like) for _ in core.projections]
        self._count = core.zeros(batch_size, dtype=torch.long)
        self._ages = torch.arange(config.memory_len, 0, -1, device=like.device)
        pack = partial(PackedLinear.for_stream, rows=batch_size)
        self._mix = core.mix.softmax(0)
        self._project = [pack(torch.cat((p.key.weight, p.value.weight))) for p in core.projections]
        self._layers = [
            (
                layer,
                pack(layer.query.weight * layer.scale),
                pack(layer.out.weight),
                pack(layer.feedforward.expand.weight, layer.feedforward.expand.bias),
                pack(layer.feedforward.contract.weight, layer.feedforward.contract.bias),
            )
            for layer in core.layers
        ]
        super().__init__(core, batch_size)

    @property
    def state(self) -> FeedbackState:
        """The memory as the core's state (a copy)."""
        return FeedbackState(self._memory.window().clone(), self._count.clone())

    def load_state(self, state: FeedbackState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._memory.load(state.memory)
        self._count.copy_(state.count)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip((keys, values), self.core.projections[group](self._memory.window()), strict=True):
                ring.load(part.flatten(0, 1))
        self._full_in = self.core.config.memory_len - int(self._count.min())

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step ``[b, i] -> [b, d]``."""
        with without_autocast(inputs):  # the packed products have the dtype of the weights
            return self._advance(inputs.to(self._mix.dtype), is_first)

    def _advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        if is_first is not self._never:
            self._clear(is_first)
        core, heads = self.core, self.core.config.num_heads
        x = core.project(inputs)
        mask = None  # once every row has w memories, there is nothing to mask
        if self._full_in > 0:
            mask = (self._ages <= self._count[:, None]).repeat_interleave(heads, 0)[:, None]
        memory = self._mix[0] * x
        for index, (layer, query, out, expand, contract) in enumerate(self._layers):
            group = core.group_of[index]
            projection = core.projections[group]
            q = query(projection.norm(x)).view(-1, 1, self._keys[group].data.shape[-1])
            z = layer.attention_norm(x + out(self._read(q, layer, group, mask).view_as(x)))
            if layer.pre:
                x = z + contract(expand(layer.feedforward_norm(z)).relu_())
            else:
                x = layer.feedforward_norm(z + contract(expand(z).relu_()))
            memory = torch.addcmul(memory, self._mix[index + 1], x)
        self._push(memory)
        return core.norm(x)

    def _read(self, q: Tensor, layer: FeedbackLayer, group: int, mask: Tensor | None) -> Tensor:
        # q [b*h, 1, e], mask [b*h, 1, w] -> [b*h, 1, e]
        keys, values = self._keys[group].window(), self._values[group].window()
        scores = torch.baddbmm(q @ layer.positions.table.t(), q, keys.transpose(1, 2))
        # Empty slots contain the projections of zeros, which official_empty needs.
        weights = masked_softmax(scores, None if self.core.config.official_empty else mask).to(values.dtype)
        if layer.tap.has_listeners:
            layer.tap(weights.view(self.batch_size, -1, *weights.shape[1:]))
        return weights @ values

    def _push(self, memory: Tensor) -> None:
        self._memory.push(memory)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            key, value = self._project[group](self.core.projections[group].norm(memory)).chunk(2, -1)
            keys.push(key.reshape(-1, keys.data.shape[-1]))
            values.push(value.reshape(-1, values.data.shape[-1]))
        if self._full_in > 0:
            self._count += 1
            self._count.clamp_(max=self.core.config.memory_len)
            self._full_in -= 1

    def _clear(self, rows: Tensor) -> None:
        self._memory.clear(rows)
        self._count.masked_fill_(rows, 0)
        self._full_in = self.core.config.memory_len
        empty = self._memory.data.new_zeros(1, self.core.config.dim)
        for group, rings in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip(rings, self.core.projections[group](empty), strict=True):
                cleared = part[None]  # 1 h 1 e
                data = ring.data.unflatten(0, (self.batch_size, -1))
                data.copy_(torch.where(rows[:, None, None, None], cleared, data))

    def buffers(self) -> list[Tensor]:
        """Return memories, their keys and values, and counts."""
        return [self._count, *(ring.data for ring in (self._memory, *self._keys, *self._values))]
