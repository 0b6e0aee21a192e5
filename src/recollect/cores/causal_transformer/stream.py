"""The causal Transformer in a stream: rotated keys, and values, of every layer in a ring."""

from collections.abc import Callable

import torch
from torch import Tensor

from recollect.cores.causal_transformer.core import CausalTransformer, CausalTransformerState, Phases, phases, rotate
from recollect.cores.stream import RowStream
from recollect.layers.feedforward import stream_projection
from recollect.layers.gates import ResidualGate
from recollect.layers.ring_attention import RingAttention, StreamLayer, StreamStack
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import without_autocast


class CausalTransformerStream(RowStream):
    """Stream of a :class:`CausalTransformer`: each key is turned once, by its place in the stream. No dropout."""

    core: CausalTransformer

    def __init__(self, core: CausalTransformer, batch_size: int) -> None:
        c, like = core.config, core.layers[0].out.weight
        layers = []
        for layer in core.layers:
            attention = RingAttention(
                layer.folded(),
                batch_size=batch_size,
                num_heads=c.num_heads,
                window=c.memory_len,
                offset_bias=layer.bias,
                tap=layer.tap,
            )
            gates = ResidualGate(), ResidualGate()
            layers.append(StreamLayer(attention, layer.out, layer.norm_forward, layer.feed_forward, gates))
        self._stack = StreamStack(layers)
        self._project = stream_projection(core.project, batch_size)
        self._head_dim = c.dim // c.num_heads if c.positions == "rotary" else 0
        self._dtype = like.dtype
        self._back = torch.arange(-c.memory_len, 0, device=like.device)  # the cached steps, relative to the next one
        self._position = 0  # of the next step in this stream, for a row that took each step
        self._ahead = torch.zeros(batch_size, dtype=torch.int64, device=like.device)  # of each row, to be added
        self._apart = False  # whether rows differ
        super().__init__(core, batch_size)

    def read_rows(self, rows: Rows | None) -> CausalTransformerState:
        """Return a copy of the core's state of some rows; None: of all."""
        entries = [layer.attention.contents(rows) for layer in self._stack.layers]
        keys, values = torch.stack(entries, 1).to(self._dtype).chunk(2, -1)
        count = self._stack.visible.count
        count = count.clone() if rows is None else count[rows.index]
        return CausalTransformerState(self._turned(keys, -1.0, rows), values.contiguous(), count)

    def write_rows(self, state: CausalTransformerState, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        if rows is None:
            self._position, self._apart = self.core.config.memory_len, False
            self._ahead.zero_()
        else:
            self._ahead.index_fill_(0, rows.index, self.core.config.memory_len - self._position)
            self._apart = True
        keys = self._turned(state.keys, 1.0, rows)
        self._stack.load(state.count, torch.cat((keys, state.values), -1).unbind(1), rows)

    def _next(self, rows: Rows | None) -> Tensor:
        """Return the positions of the next step of some rows ``[r, 1]``, or the one of all rows ``[1, 1]``."""
        if rows is None and not self._apart:
            return torch.tensor([[self._position]], device=self._back.device)
        return (self._ahead if rows is None else self._ahead[rows.index])[:, None] + self._position

    def _phases(self, positions: Tensor, dtype: torch.dtype) -> Phases:
        """Return the angles of positions ``[r, s]``, each ``[r, s, e/2]``."""
        cos, sin = phases(positions.flatten(), self._head_dim, dtype)
        return cos.unflatten(0, positions.shape), sin.unflatten(0, positions.shape)

    def _turned(self, keys: Tensor, sign: float, rows: Rows | None) -> Tensor:
        """Cached keys ``[r, layers, w, dim]``, turned by their positions in this stream or back."""
        if not self._head_dim:
            return keys.clone()
        cos, sin = self._phases(self._next(rows) + self._back, self._dtype)
        heads = keys.unflatten(-1, (-1, self._head_dim)).transpose(2, 3)  # r layers h w e
        return rotate(heads, (cos[:, None, None], sin[:, None, None]), sign).transpose(2, 3).flatten(-2)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, dim]``, or several of all rows ``[b, t, i] -> [b, t, dim]``."""
        if starting := self.starting(is_first, rows):
            self._stack.clear(starting)
        steps = 1 if inputs.ndim == 2 else inputs.shape[1]
        with without_autocast(inputs):
            x = self._project(inputs.to(self._dtype))
            *_, x = self._stack(x, self._turn(inputs.ndim, steps, rows) if self._head_dim else None, rows)
            if rows is None:
                self._position += steps
            else:
                self._ahead.index_add_(0, rows.index, torch.ones_like(rows.index))
                self._apart = True
            return self.core.norm(x)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take several steps ``[b, t, i] -> [b, t, dim]``."""
        return self.advance_rows(inputs, is_first, None)

    def _turn(self, ndim: int, steps: int, rows: Rows | None) -> Callable[[Tensor], Tensor]:
        """Return a function that turns queries and keys ``[b, t, 2 dim]`` (one step: ``[r, 2 dim]``)."""
        positions = self._next(rows) + torch.arange(steps, device=self._back.device)
        cos, sin = self._phases(positions, self._stack.dtype)  # r t e/2
        angles = cos[..., None, :], sin[..., None, :]  # the same for all heads
        if ndim == 2:
            angles = angles[0][:, 0], angles[1][:, 0]
        return lambda heads: rotate(heads.unflatten(-1, (-1, self._head_dim)), angles).flatten(-2)

    def buffers(self) -> list[Tensor]:
        """Return the rings and the counts."""
        return self._stack.buffers()
