"""Causal Transformer: a pre-norm decoder whose layers keep the keys and values of the last w steps.

With n = LayerNorm, for the input x_t of a layer (the projected input for the first) and the steps s = t-w ... t of the
same episode:

    q_t, k_t, v_t = W_q n(x_t), W_k n(x_t), W_v n(x_t)
    a_ts = softmax_s( (rot_t q_t) (rot_s k_s) / sqrt(e) + c_{t-s} )                        per head of width e
    y_t = x_t + W_o sum_s a_ts v_s
    x'_t = y_t + W_2 f(W_1 n(y_t) + b_1) + b_2

``positions``: ``rotary`` turns pairs of channels (j, j + e/2) by the angle t * 10000^(-2j/e), so that scores depend on
t - s only, and c = 0. ``bias`` has no rotation and a learned c of w + 1 entries per head and layer, which starts as
ALiBi's line -m (t - s) with slope m = 2^(-8 i / h) for head i = 1 ... h. ``none`` has neither.

``final_norm`` adds a norm after the last layer.

Papers: Vaswani et al. (2017), equation 1; norms come first, as in George (master's thesis, Freiburg 2021), equations
2.27-2.28; Su et al., RoFormer (2021), equations 14-16; Press et al., ALiBi (2022), section 3.

Differs:

- The window slides: each query sees exactly w steps before it, in any split of the stream into calls.
- Keys are cached before their rotation. A call turns them by their place in the call, so that the state does not depend
  on the position in the stream and no number degrades at step 10^7. The stream turns each key once, by angles computed
  in float64, and turns them back when its state is read.
- Rotary channels are paired (j, j + e/2), not (2j, 2j + 1): the same up to the order of channels.
- ``bias`` is trained; the slopes of ALiBi are fixed.
- Dropout acts on the outputs of both sub-layers and on the hidden layer, not on attention weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.causal_transformer.config import CausalTransformerConfig
from recollect.cores.contract import MemoryCore, Places, companion
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection, linear_flops
from recollect.layers.tap import Tap
from recollect.layers.window_attention import plan_window, slide_layers, sliding_attention, window_steps
from recollect.ops.linear import Linear, linear

Phases = tuple[Tensor, Tensor]
"""Cosines and sines ``[s, e / 2]`` of the angles of s positions."""


def phases(positions: Tensor, head_dim: int, dtype: torch.dtype) -> Phases:
    """Compute angles of integer positions ``[s]`` in float64, and their cosines and sines in ``dtype``."""
    steps = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float64)
    angles = positions.to(torch.float64)[:, None] * 10000.0 ** (-steps / head_dim)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, angles: Phases, sign: float = 1.0) -> Tensor:
    """Turn ``[..., s, e]`` by the angles of its s positions (back, with ``sign=-1``)."""
    cos, sin = angles[0], angles[1] * sign
    a, b = heads.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(heads.dtype)


class CausalTransformerState(NamedTuple):
    """Cached keys and values; zero outside of the running episode."""

    keys: Tensor
    """``[b, layers, memory_len, dim]``, not rotated, oldest first."""
    values: Tensor
    """``[b, layers, memory_len, dim]``, oldest first."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count
    """``[b]`` int64: steps of the running episode in the window, at most ``memory_len``."""


class CausalTransformerLayer(nn.Module):
    """Windowed attention and feed-forward, each with a norm before and a residual after."""

    def __init__(self, config: CausalTransformerConfig) -> None:
        super().__init__()
        d, hidden = config.dim, feedforward_width(config.dim, config.hidden_dim)
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        self.norm_attention = nn.LayerNorm(d)
        self.qkv = Linear(d, 3 * d, bias=False)
        self.out = Linear(d, d, bias=False)
        self.norm_forward = nn.LayerNorm(d)
        self.feed_forward = FeedForward(d, hidden, activation=config.activation, dropout=config.dropout)
        self.tap = Tap("b h t s")
        self.rotary = config.positions == "rotary"
        self.bias = None
        if config.positions == "bias":
            slopes = 2.0 ** (-8.0 * torch.arange(1, self.num_heads + 1) / self.num_heads)
            self.bias = nn.Parameter(-slopes[:, None] * torch.arange(config.memory_len, -1.0, -1.0))

    def folded(self) -> tuple[Tensor, Tensor]:
        """Compute weight ``[3 dim, dim]`` and bias ``[3 dim]`` of q / sqrt(e), k and v for standardized inputs."""
        d = self.qkv.in_features
        scale = torch.ones_like(self.qkv.weight[:, 0])
        scale[:d] = (d // self.num_heads) ** -0.5
        weight = self.qkv.weight * scale[:, None]
        return weight * self.norm_attention.weight, (weight * self.norm_attention.bias).sum(-1)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, visible: Tensor, angles: Phases | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend to the window and apply the feed-forward part.

        Args:
            x: ``[b, t, dim]``.
            keys: cached, ``[b, w, dim]``, finite.
            values: cached, ``[b, w, dim]``, finite.
            visible: bool ``[b, t, w + 1]``.
            angles: of the w + t positions, or None.

        Returns:
            The output ``[b, t, dim]``, and the keys and values ``[b, t, dim]`` of the new steps.
        """
        new_queries, new_keys, new_values = linear(F.layer_norm(x, x.shape[-1:]), *self.folded()).chunk(3, -1)
        queries = self._heads(new_queries)
        kind = new_keys.dtype  # narrower than the cache under autocast
        seen_keys = torch.cat((self._heads(keys.to(kind)), self._heads(new_keys)), 2)
        seen_values = torch.cat((self._heads(values.to(kind)), self._heads(new_values)), 2)
        if angles is not None:
            w = keys.shape[1]
            queries = rotate(queries, (angles[0][w:], angles[1][w:]))
            seen_keys = rotate(seen_keys, angles)
        read = sliding_attention(queries, seen_keys, seen_values, visible, bias=self.bias, tap=self.tap)
        update = self.out(read.permute(1, 2, 0, 3).flatten(2))
        x = x + F.dropout(update, self.dropout, self.training)
        return x + self.feed_forward(self.norm_forward(x)), new_keys, new_values

    def _heads(self, steps: Tensor) -> Tensor:
        """Cut vectors into heads: ``[b, s, dim] -> [h, b, s, e]``."""
        return steps.unflatten(-1, (self.num_heads, -1)).permute(2, 0, 1, 3)


class CausalTransformer(MemoryCore[CausalTransformerState]):
    """Causal Transformer with a bounded key/value cache; equations and differences are at the top of this module."""

    stream_type = companion("recollect.cores.causal_transformer.stream:CausalTransformerStream")
    reference_unroll = companion("recollect.cores.causal_transformer.reference:reference_unroll")
    runs_in_float16 = True

    layers: Sequence[CausalTransformerLayer]

    def __init__(self, config: CausalTransformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.project = input_projection(input_dim, config.dim)
        layers = [CausalTransformerLayer(config) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.dim) if config.final_norm else nn.Identity()

    def initial_state(self, batch_size: int) -> CausalTransformerState:
        """Return an empty window."""
        shape = batch_size, self.config.num_layers, self.config.memory_len, self.config.dim
        return CausalTransformerState(self.zeros(*shape), self.zeros(*shape), self.zeros(batch_size, dtype=torch.int64))

    def unroll(
        self, inputs: Tensor, state: CausalTransformerState, is_first: Tensor
    ) -> tuple[Tensor, CausalTransformerState]:
        """Compute all steps at once, layer by layer."""
        c, kind = self.config, state.keys.dtype
        plan = plan_window(is_first, state.count, c.memory_len)
        angles = None
        if c.positions == "rotary":
            steps = torch.arange(c.memory_len + inputs.shape[1], device=inputs.device)
            angles = phases(steps, c.dim // c.num_heads, kind)
        x = self.project(inputs).to(kind)  # the residual stream keeps its precision under autocast
        keys, values = [], []
        for layer, old_keys, old_values in zip(self.layers, state.keys.unbind(1), state.values.unbind(1), strict=True):
            old = torch.where(plan.held, old_keys, 0.0), torch.where(plan.held, old_values, 0.0)
            x, new_keys, new_values = layer(x, *old, plan.visible, angles)
            keys.append(new_keys)
            values.append(new_values)
        slid = slide_layers(state.keys, keys, plan.count), slide_layers(state.values, values, plan.count)
        return self.norm(x), CausalTransformerState(*slid, plan.count)

    def largest_counters(self) -> dict[str, int]:
        """Return the largest step count."""
        return {"count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the window of every layer."""
        places = window_steps(clock, self.config.memory_len)
        return {f"layers.{i}.tap": places for i in range(len(self.layers))}

    def flops_per_step(self) -> int:
        """Sum of all linear maps, and of scores and sums 4 d (w + 1) per layer."""
        c = self.config
        return linear_flops(self) + c.num_layers * 4 * c.dim * (c.memory_len + 1)
