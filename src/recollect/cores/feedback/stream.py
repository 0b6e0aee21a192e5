"""The Feedback Transformer one step at a time: projected memories in ring buffers.

A step projects one memory and reads w, without copying any. There is no dropout.
"""

from functools import partial

import torch
from torch import Tensor

from recollect.cores.feedback.attention import FeedbackLayer
from recollect.cores.feedback.core import FeedbackState, FeedbackTransformer
from recollect.cores.stream import RowStream
from recollect.layers.attention import masked_softmax
from recollect.layers.feedforward import stream_projection
from recollect.layers.rings import MirrorRing, Rows
from recollect.ops.packed_linear import PackedLinear, without_autocast


class FeedbackStream(RowStream):
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
        self._project_input = stream_projection(core.project, batch_size)
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

    def read_rows(self, rows: Rows | None) -> FeedbackState:
        """Return a copy of the core's state of some rows; None: of all."""
        if rows is None:
            return FeedbackState(self._memory.window().clone(), self._count.clone())
        return FeedbackState(self._memory.window(rows.index), self._count[rows.index])

    def write_rows(self, state: FeedbackState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all. Projects all their memories again."""
        if rows is None:
            self._memory.load(state.memory)
            self._count.copy_(state.count)
        else:
            self._memory.load(state.memory, rows.index)
            self._count.index_copy_(0, rows.index, state.count)
        of_heads = self._heads_of(rows)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip((keys, values), self.core.projections[group](state.memory), strict=True):
                ring.load(part.flatten(0, 1), of_heads)
        self._full_in = self.core.config.memory_len - int(self._count.min())

    def _heads_of(self, rows: Rows | None) -> Tensor | None:
        return None if rows is None else rows.of_parts(self.core.config.num_heads)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, d]``."""
        with without_autocast(inputs):  # the packed products have the dtype of the weights
            return self._advance(inputs.to(self._mix.dtype), is_first, rows)

    def _advance(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        if starting := self.starting(is_first, rows):
            self._clear(starting)
        core, heads = self.core, self.core.config.num_heads
        x = self._project_input(inputs)
        mask = None  # once every row has w memories, there is nothing to mask
        if self._full_in > 0:
            count = self._count if rows is None else self._count[rows.index]
            mask = (self._ages <= count[:, None]).repeat_interleave(heads, 0)[:, None]
        memory = self._mix[0] * x
        for index, (layer, query, out, expand, contract) in enumerate(self._layers):
            group = core.group_of[index]
            projection = core.projections[group]
            q = query(projection.norm(x)).view(-1, 1, self._keys[group].data.shape[-1])
            z = layer.attention_norm(x + out(self._read(q, layer, group, mask, rows).view_as(x)))
            if layer.pre:
                x = z + contract(expand(layer.feedforward_norm(z)).relu_())
            else:
                x = layer.feedforward_norm(z + contract(expand(z).relu_()))
            memory = torch.addcmul(memory, self._mix[index + 1], x)
        self._push(memory, rows)
        return core.norm(x)

    def _read(self, q: Tensor, layer: FeedbackLayer, group: int, mask: Tensor | None, rows: Rows | None) -> Tensor:
        # q [b*h, 1, e], mask [b*h, 1, w] -> [b*h, 1, e]
        keys, values = (rings[group].window(self._heads_of(rows)) for rings in (self._keys, self._values))
        scores = torch.baddbmm(q @ layer.positions.table.t(), q, keys.transpose(1, 2))
        # Empty slots contain the projections of zeros, which official_empty needs.
        weights = masked_softmax(scores, None if self.core.config.official_empty else mask).to(values.dtype)
        if layer.tap.has_listeners:
            layer.tap(weights.unflatten(0, (-1, self.core.config.num_heads)))
        return weights @ values

    def _push(self, memory: Tensor, rows: Rows | None) -> None:
        self._memory.push(memory, None if rows is None else rows.index)
        of_heads = self._heads_of(rows)
        for group, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            key, value = self._project[group](self.core.projections[group].norm(memory)).chunk(2, -1)
            keys.push(key.reshape(-1, keys.data.shape[-1]), of_heads)
            values.push(value.reshape(-1, values.data.shape[-1]), of_heads)
        if self._full_in <= 0:
            return
        if rows is not None:
            after = (self._count[rows.index] + 1).clamp(max=self.core.config.memory_len)
            self._count.index_copy_(0, rows.index, after)
            return
        self._count += 1
        self._count.clamp_(max=self.core.config.memory_len)
        self._full_in -= 1

    def _clear(self, rows: Rows) -> None:
        self._memory.clear(rows.index)
        self._count.index_fill_(0, rows.index, 0)
        self._full_in = self.core.config.memory_len
        empty = self._memory.data.new_zeros(1, self.core.config.dim)
        for group, rings in enumerate(zip(self._keys, self._values, strict=True)):
            for ring, part in zip(rings, self.core.projections[group](empty), strict=True):
                data = ring.data.unflatten(0, (self.batch_size, -1))
                data[rows.index] = part[None].to(data.dtype)  # 1 h 1 e

    def buffers(self) -> list[Tensor]:
        """Return memories, their keys and values, and counts."""
        return [self._count, *(ring.data for ring in (self._memory, *self._keys, *self._values))]
