"""Transformer-XL: every layer reads its own inputs of the last w steps; with gates it is GTrXL.

For layer l, its input h_t (the projected input for l = 1), and the cached inputs h_{t-w} ... h_{t-1} of the
same episode, with n = LayerNorm:

    q_t = W_q n(h_t),   k_s = W_k n(h_s),   v_s = W_v n(h_s),   r_o = W_r phi(o)          s = t-w ... t, o = t-s
    a_ts = softmax_s( ((q_t + u) k_s + (q_t + v) r_{t-s}) / sqrt(e) )                      per head of width e
    y_t = W_o sum_s a_ts v_s                          x_t = g(h_t, act(y_t))
    z_t = W_2 f(W_1 n(x_t) + b_1) + b_2               h'_t = g(x_t, act(z_t))

``g`` adds (``gate="residual"``) or is the GRU of GTrXL (``gate="gru"``); ``act`` is the identity or a ReLU
(``relu_outputs``); phi(o) = [sin | cos] of the offset o, u and v are learned and shared by all layers.

``positions``: ``relative`` as above. ``learned`` replaces phi by a trainable table P of w + 1 rows that starts as
sines and cosines in turn (equations 2.22-2.23) and is added to normalized inputs: k_s = W_k (n(h_s) + P_{t-s}),
q_t = W_q (n(h_t) + P_0). ``none`` omits all of it. ``top_k``: the softmax runs over the k largest scores of each query
and head only.

Papers: Dai et al., Transformer-XL (2019), section 3.3 and appendix B. George, Neural architecture impact on
identifying temporally extended Reinforcement Learning tasks (master's thesis, Freiburg 2021), sections 2.7.1-2.7.2
(equations 2.22-2.25) and 3.2, where this core is called "Adaptive". Parisotto et al., Stabilizing Transformers
for RL (2020), section 3 (``gate="gru", relu_outputs=True``). Lampinen et al., Towards mental time travel (2021),
section 2 (baseline: gated) and appendix D.8 (``top_k``).

Differs:

- The window slides: each query sees exactly w steps before it. In the papers it sees the cache and the segment so
  far, so that the memory of a step depends on where a call starts. The cache has w steps, not segments.
- Queries come from the new steps only (George 2021 writes them over the extended context; only these rows are used).
- Gradients flow between the steps of a call; the stop-gradient of equation 2.24 is the caller's ``detach``.
- ``learned``: George 2021 adds P to the input of the model. Positions in a sliding window are offsets, so here it
  enters every layer, after the norm, in queries and keys; values carry no position.
- ``final_norm`` is off, as in the code behind George 2021; turn it on for deep residual stacks.
- The count of George 2021, 855 808 parameters per layer (d 256, feed-forward 1024), includes five LayerNorms, three of
  which are never used. They are not created here: a layer has 855 808 - 3 * 512 = 854 272, and u, v have 512.
- Dropout acts on the outputs of both sub-layers and on the hidden layer, not on attention weights.

Exact algebra: the scale and the affine part of n are folded into W_q, W_k, W_v, and u into the bias. The detached
cache is then only standardized and multiplied once for keys and values, and needs no input gradient, not even
for the norm's own parameters. The relative shift is a strided view (layers/window_attention.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection, linear_flops
from recollect.layers.gates import make_gate
from recollect.layers.positions import sinusoid
from recollect.layers.tap import Tap
from recollect.layers.window_attention import (
    narrow_plan,
    plan_window,
    slide_layers,
    sliding_attention,
    window_steps,
)
from recollect.ops.linear import Linear, linear


class TransformerXLState(NamedTuple):
    """State of a TransformerXL: the inputs of every layer in the window."""

    window: Tensor
    """``[b, layers, memory_len, dim]``: raw layer inputs, oldest first; zero where not of this episode."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count
    """``[b]`` int64: steps of the running episode in the window, at most ``memory_len``."""


class RelativePositions(NamedTuple):
    """Positions of the steps of a window, the same for every layer."""

    features: Tensor | None
    """phi or P, ``[w + 1, dim]``, for the offsets w ... 0."""
    u: Tensor | None
    """``[dim]``, added to queries before their product with keys."""
    v: Tensor | None
    """``[dim]``, added to queries before their product with positions."""


class FoldedLayer(NamedTuple):
    """Weights of a layer that act on standardized inputs."""

    weight: Tensor
    """``[3 dim, dim]``, of (q + u) / sqrt(e), k and v."""
    bias: Tensor
    """``[3 dim]``."""
    delta: Tensor | None
    """(v - u) / sqrt(e), ``[dim]``."""
    offset_keys: Tensor | None
    """``[h, w + 1, e]``."""


class TransformerXLLayer(nn.Module):
    """Windowed attention and feed-forward, each with a norm before and a gate after."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        d, hidden = config.dim, feedforward_width(config.dim, config.hidden_dim)
        self.num_heads = config.num_heads
        self.relu_outputs = config.relu_outputs
        self.top_k = config.top_k
        self.dropout = config.dropout
        self.memory_len = config.memory_len
        self.norm_attention = nn.LayerNorm(d)
        self.qkv = Linear(d, 3 * d, bias=False)
        self.relative = Linear(d, d, bias=False) if config.positions == "relative" else None
        self.out = Linear(d, d, bias=False)
        self.gate_attention = make_gate(config.gate, d)
        self.norm_forward = nn.LayerNorm(d)
        self.feed_forward = FeedForward(d, hidden, activation=config.activation, dropout=config.dropout)
        self.gate_forward = make_gate(config.gate, d)
        self.tap = Tap("b h t s")

    def folded(self, positions: RelativePositions) -> FoldedLayer:
        """Fold norm, scale and biases into weights that act on standardized inputs."""
        d = self.qkv.in_features
        scale = (d // self.num_heads) ** -0.5
        weight = self.qkv.weight * self.norm_attention.weight
        bias = (self.qkv.weight * self.norm_attention.bias).sum(-1)  # a sum stays precise under autocast
        u, delta, keys = None, None, None
        if self.relative is not None:
            u, delta = positions.u, (positions.v - positions.u) * scale  # type: ignore[operator]
            keys = linear(positions.features, self.relative.weight)  # type: ignore[arg-type]
        elif positions.features is not None:
            u = (self.qkv.weight[:d] * positions.features[-1]).sum(-1)  # W_q P_0 is part of all products
            keys = linear(positions.features, self.qkv.weight[d : 2 * d])
        query = bias[:d] if u is None else bias[:d] + u
        weight = torch.cat((weight[:d] * scale, weight[d:]))
        bias = torch.cat((query * scale, bias[d:]))
        if keys is not None:
            keys = keys.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        return FoldedLayer(weight, bias, delta, keys)

    def forward(self, x: Tensor, memory: Tensor, held: Tensor, visible: Tensor, positions: RelativePositions) -> Tensor:
        """Attend to the window and apply the feed-forward part.

        Args:
            x: ``[b, t, dim]``.
            memory: ``[b, w, dim]``, raw.
            held: bool ``[b, w, 1]``, the part that belongs to the first step's episode; the rest may be anything.
            visible: bool ``[b, t, w + 1]``.
            positions: of the core.
        """
        folded = self.folded(positions)
        return self.advance(x, self.project_memory(memory, held, folded), visible, folded)[0]

    def project_memory(self, memory: Tensor, held: Tensor, folded: FoldedLayer) -> tuple[Tensor, Tensor]:
        """Compute keys and values, each ``[h, b, w, e]``, of ``[b, w, dim]``; ``held`` as in :meth:`forward`."""
        d = memory.shape[-1]
        # A selection: steps of an earlier episode or a broken state must not reach a product, even with weight 0,
        if memory.requires_grad:  # nor may a gradient go back through them.
            memory = torch.where(held, memory, 0.0)
        known = F.layer_norm(memory, (d,)).masked_fill_(~held, 0.0)
        old = linear(known, folded.weight[d:], folded.bias[d:])  # b w 2d
        keys, values = old.unflatten(-1, (2, self.num_heads, -1)).permute(2, 3, 0, 1, 4)
        return keys, values

    def advance(
        self, x: Tensor, known: tuple[Tensor, Tensor], visible: Tensor, folded: FoldedLayer
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute the layer from known keys and values ``[h, b, w, e]``.

        Returns:
            ``[b, t, dim]``, and all keys and values, the new ones last, ``[h, b, w + t, e]``.
        """
        heads, d = self.num_heads, x.shape[-1]
        new = linear(F.layer_norm(x, (d,)), folded.weight, folded.bias)  # b t 3d
        queries, new_keys, new_values = new.unflatten(-1, (3, heads, -1)).permute(2, 3, 0, 1, 4)  # each h b t e
        queries = queries.contiguous()
        shifted = None
        if folded.offset_keys is not None:
            # (q + u) + (v - u), head by head
            delta = folded.delta
            shifted = queries if delta is None else queries + delta.view(heads, 1, 1, -1).to(queries.dtype)
        keys, values = torch.cat((known[0], new_keys), 2), torch.cat((known[1], new_values), 2)
        heads_out = sliding_attention(
            queries,
            keys,
            values,
            visible,
            offset_queries=shifted,
            offset_keys=folded.offset_keys,
            top_k=self.top_k,
            tap=self.tap,
            shown=self.memory_len,
        )
        update = self.out(heads_out.permute(1, 2, 0, 3).flatten(2))
        x = self.gate_attention(x, self.activate(F.dropout(update, self.dropout, self.training)))
        return self.gate_forward(x, self.activate(self.feed_forward(self.norm_forward(x)))), (keys, values)

    def activate(self, update: Tensor) -> Tensor:
        """Apply the ReLU of ``relu_outputs``."""
        return F.relu(update) if self.relu_outputs else update


class TransformerXL(MemoryCore[TransformerXLState]):
    """Transformer-XL and GTrXL; equations, papers and differences are at the top of this module."""

    stream_type = companion("recollect.cores.transformer_xl.stream:TransformerXLStream")
    reference_unroll = companion("recollect.cores.transformer_xl.reference:reference_unroll")
    runs_in_float16 = True

    layers: Sequence[TransformerXLLayer]

    def __init__(self, config: TransformerXLConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.discrete = config.top_k is not None
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.project = input_projection(input_dim, config.dim)
        layers = [TransformerXLLayer(config) for _ in range(config.num_layers)]
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.dim) if config.final_norm else nn.Identity()
        self.u = self.v = self.table = None
        if config.positions == "relative":
            self.u = nn.Parameter(torch.randn(config.dim) * 0.02)
            self.v = nn.Parameter(torch.randn(config.dim) * 0.02)
        elif config.positions == "learned":
            offsets = torch.arange(config.memory_len, -1, -1)
            self.table = nn.Parameter(sinusoid(offsets, config.dim))

    def initial_state(self, batch_size: int) -> TransformerXLState:
        """Return an empty window."""
        c = self.config
        return TransformerXLState(
            window=self.zeros(batch_size, c.num_layers, c.memory_len, c.dim),
            count=self.zeros(batch_size, dtype=torch.int64),
        )

    def relative_positions(self, window: int | None = None) -> RelativePositions:
        """Return features of the offsets ``window ... 0`` (None: ``memory_len``), and their biases."""
        window = self.config.memory_len if window is None else window
        if self.table is not None:
            return RelativePositions(self.table[-1 - window :], None, None)
        if self.u is None:
            return RelativePositions(None, None, None)
        dtype = torch.promote_types(self.u.dtype, torch.float32)
        offsets = torch.arange(window, -1, -1, device=self.u.device, dtype=dtype)
        return RelativePositions(sinusoid(offsets, self.config.dim, "concatenated").to(self.u.dtype), self.u, self.v)

    def unroll(self, inputs: Tensor, state: TransformerXLState, is_first: Tensor) -> tuple[Tensor, TransformerXLState]:
        """Compute all steps at once, layer by layer."""
        plan = plan_window(is_first, state.count, self.config.memory_len)
        sight = narrow_plan(plan, *(layer.tap for layer in self.layers))
        positions = self.relative_positions(sight.places)
        x = self.project(inputs).to(state.window.dtype)  # the residual stream keeps its precision under autocast
        raw = []
        for layer, cached in zip(self.layers, state.window.unbind(1), strict=True):
            raw.append(x)
            x = layer(x, cached[:, -sight.places :], sight.held, sight.visible, positions)
        return self.norm(x), TransformerXLState(slide_layers(state.window, raw, plan.count), plan.count)

    def largest_counters(self) -> dict[str, int]:
        """Return the largest step count."""
        return {"count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the window of every layer."""
        places = window_steps(clock, self.config.memory_len)
        return {f"layers.{i}.tap": places for i in range(len(self.layers))}

    def flops_per_step(self) -> int:
        """Sum of linear maps except those of positions, and per layer 4 d (w + 1), or 6 d (w + 1) with positions."""
        c = self.config
        seen = c.dim * (c.memory_len + 1)
        attention = (4 if c.positions == "none" else 6) * seen
        relative = [layer.relative for layer in self.layers if layer.relative is not None]
        return linear_flops(self) - linear_flops(*relative) + c.num_layers * attention
