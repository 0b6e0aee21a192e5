"""The causal Transformer in a stream: rotated keys, and values, of every layer in a ring."""

from collections.abc import Callable

import torch
from torch import Tensor

from recollect.cores.causal_transformer.core import CausalTransformer, CausalTransformerState, phases, rotate
from recollect.cores.stream import Stream
from recollect.layers.gates import ResidualGate
from recollect.layers.ring_attention import RingAttention, StreamLayer, StreamStack
from recollect.ops.packed_linear import without_autocast


class CausalTransformerStream(Stream):
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
        self._head_dim = c.dim // c.num_heads if c.positions == "rotary" else 0
        self._dtype = like.dtype
        self._back = torch.arange(-c.memory_len, 0, device=like.device)  # the cached steps, relative to the next one
        self._position = 0  # of the next step in this stream
        super().__init__(core, batch_size)

    @property
    def state(self) -> CausalTransformerState:
        """The memory as the core's state (a copy): keys turned back."""
        entries = torch.stack([layer.attention.contents() for layer in self._stack.layers], 1).to(self._dtype)
        keys, values = entries.chunk(2, -1)
        return CausalTransformerState(self._turned(keys, -1.0), values.contiguous(), self._stack.visible.count.clone())

    def load_state(self, state: CausalTransformerState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._position = self.core.config.memory_len
        self._stack.load(state.count, torch.cat((self._turned(state.keys, 1.0), state.values), -1).unbind(1))

    def _turned(self, keys: Tensor, sign: float) -> Tensor:
        """Cached keys ``[b, layers, w, dim]``, turned by their positions in this stream or back."""
        if not self._head_dim:
            return keys.clone()
        angles = phases(self._position + self._back, self._head_dim, self._dtype)
        heads = keys.unflatten(-1, (-1, self._head_dim)).transpose(2, 3)  # b layers h w e
        return rotate(heads, angles, sign).transpose(2, 3).flatten(-2)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step ``[b, i] -> [b, dim]``, or several ``[b, t, i] -> [b, t, dim]``."""
        if is_first is not self._never and is_first.any():
            self._stack.clear(is_first)
        steps = 1 if inputs.ndim == 2 else inputs.shape[1]
        with without_autocast(inputs):
            x = self.core.project(inputs.to(self._dtype))
            *_, x = self._stack(x, self._turn(steps) if self._head_dim else None)
            self._position += steps
            return self.core.norm(x)

    advance_block = advance

    def _turn(self, steps: int) -> Callable[[Tensor], Tensor]:
        """Return a function that turns queries and keys ``[b, t, 2 dim]`` (one step: ``[b, 2 dim]``)."""
        positions = torch.arange(self._position, self._position + steps, device=self._back.device)
        cos, sin = phases(positions, self._head_dim, self._stack.dtype)
        angles = cos[:, None], sin[:, None]  # t 1 e/2: the same for all heads
        return lambda heads: rotate(heads.unflatten(-1, (-1, self._head_dim)), angles).flatten(-2)

    def buffers(self) -> list[Tensor]:
        """Return the rings and the counts."""
        return self._stack.buffers()
