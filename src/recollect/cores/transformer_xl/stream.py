"""Transformer-XL in a stream: keys and values of every layer in a ring; each step is projected once."""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.stream import RowStream
from recollect.cores.transformer_xl.core import TransformerXL, TransformerXLState
from recollect.layers.feedforward import stream_projection
from recollect.layers.ring_attention import RingAttention, StreamLayer, StreamStack
from recollect.layers.rings import MirrorRing, Rows
from recollect.ops.packed_linear import without_autocast
from recollect.ops.reduced_linear import cache_dtype


class TransformerXLStream(RowStream):
    """Stream of a :class:`TransformerXL`, without dropout.

    Raw layer inputs are in one ring, for ``state``; keys and values of every layer in another, for speed. The keys r of
    all offsets are computed once, and (v - u) r with them.
    """

    core: TransformerXL

    def __init__(self, core: TransformerXL, batch_size: int) -> None:
        c, like = core.config, core.layers[0].out.weight
        positions = core.relative_positions()
        self._project = stream_projection(core.project, batch_size)
        self._window = MirrorRing(batch_size, c.memory_len, (c.num_layers, c.dim), like.to(cache_dtype(like.dtype)))
        self._folded = [layer.folded(positions) for layer in core.layers]
        layers = []
        for layer, (weight, bias, delta, keys) in zip(core.layers, self._folded, strict=True):
            attention = RingAttention(
                (weight, bias),
                batch_size=batch_size,
                num_heads=c.num_heads,
                window=c.memory_len,
                offset_keys=keys,
                offset_bias=None if delta is None or keys is None else (keys @ delta.view(c.num_heads, -1, 1))[..., 0],
                top_k=c.top_k,
                tap=layer.tap,
            )
            gates = layer.gate_attention, layer.gate_forward
            weights = layer.out, layer.norm_forward, layer.feed_forward
            layers.append(StreamLayer(attention, *weights, gates, relu=c.relu_outputs))
        self._stack = StreamStack(layers)
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> TransformerXLState:
        """Return a copy of the core's state of some rows; None: of all."""
        index = None if rows is None else rows.index
        window = self._window.window(index).transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return TransformerXLState(
            window.to(self._dtype), self.count.clone() if rows is None else self.count[rows.index]
        )

    @property
    def count(self) -> Tensor:
        """Number of steps of the running episodes in the window, int64 ``[b]`` (a view)."""
        return self._stack.visible.count

    def write_rows(self, state: TransformerXLState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all. Projects all their keys and values again."""
        d = self.core.config.dim
        self._window.load(state.window.transpose(1, 2), None if rows is None else rows.index)
        with without_autocast(state.window):
            known = [F.layer_norm(cached, (d,)) for cached in state.window.unbind(1)]
            folded = zip(known, self._folded, strict=True)
            projected = [F.linear(n, weight[d:], bias[d:]) for n, (weight, bias, *_) in folded]
            self._stack.load(state.count, projected, rows)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, dim]``, or several of all rows ``[b, t, i] -> [b, t, dim]``."""
        if starting := self.starting(is_first, rows):
            self._stack.clear(starting)
            self._window.clear(starting.index)
        with without_autocast(inputs):
            *raw, x = self._stack(self._project(inputs.to(self._dtype)), rows=rows)
            if inputs.ndim == 2:
                self._window.push(torch.stack(raw, -2), None if rows is None else rows.index)
            else:
                self._window.extend(torch.stack(raw, -2))
            return self.core.norm(x)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take several steps ``[b, t, i] -> [b, t, dim]``."""
        return self.advance_rows(inputs, is_first, None)

    def buffers(self) -> list[Tensor]:
        """Return the rings and the counts."""
        return [self._window.data, *self._stack.buffers()]
