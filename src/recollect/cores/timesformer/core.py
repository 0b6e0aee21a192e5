"""TimeSformer with a memory: every place of a map attends to the frames before it, and to the places of its own frame.

A step reads a map of n = y * x places and c channels, and e other features of the agent (reward, last action).
Tokens have width d; w frames are remembered; S is a table of places, P one of times, and P_a its row of age a. With
LN = LayerNorm and MHA = attention of h heads, for the place p of frame t

    x_tp = E m_tp + S_p + P_0                                          E only where c is not d

    divided (equations 2.35, 2.36), in every layer:
        z_sp = x_sp - P_0                                              a frame without its time, as it is remembered
        y_tp = x_tp + F MHA_time(LN(x_tp);  LN(z_sp + P_{t-s}), s = t-w ... t)
        y_tp = y_tp + MHA_space(LN(y_tp);  LN(y_tq), q = 1 ... n)
        x_tp = y_tp + W_2 gelu(W_1 LN(y_tp) + b_1) + b_2
    joint (equation 2.34), in every layer:
        y_tp = x_tp + MHA(LN(x_tp);  LN(z_sq + P_{t-s}), s = t-w ... t, q = 1 ... n)
        x_tp = y_tp + W_2 gelu(W_1 LN(y_tp) + b_1) + b_2

    out  = [ W_o [LN(x_t1) ... LN(x_tn)] + b_o,  e ]

F starts as zero: a fresh divided core ignores time. All tokens of a frame see each other, none sees a later frame.
The other features e follow the output of the linear map unchanged, so that policy and value see both.

Inputs are vectors ``[n * c + e]``: the map, ordered row, column, channel, then e.

Papers: George, Neural architecture impact on identifying temporally extended Reinforcement Learning tasks (master's
thesis, Freiburg 2021), sections 2.9 and 3.4. Bertasius et al., Is space-time attention all you need for video
understanding? (2021), section 3.

Differs:

- The window slides: each query sees exactly w frames before it. In the thesis it sees the cache and all frames of the
  call before it, so that the memory of a step depends on where a call starts.
- P is aligned to the right: age 0, the frame itself, is its last row. It has w + 1 rows; the thesis has a row for each
  frame of cache and call (100 + 80), and so has ``time_rows=180``. Rows beyond w + 1 are never read.
- In every layer a cached frame has its present age. The thesis caches the hidden states of the layers above the first
  with the ages they had; in a sliding window these would all be P_0.
- No class token and no dropout. S and P start normal, with a deviation of 0.02 (the thesis: Gaussian).
- Nothing follows the linear map (the thesis does not specify this).
- Gradients flow between the steps of a call; between calls the caller's ``detach`` cuts them.

Exact algebra. Cached frames are centered, z - mean(z), because every reader's norm removes the mean anyway. With z
and P centered and W_k' = W_k diag(gain), a key is

    W_k LN(z_s + P_a) = (W_k' z_s + W_k' P_a) r_sa + const      r_sa = ((|z_s|^2 + 2 z_s P_a + |P_a|^2) / d + eps)^-1/2

so that frames are projected once, though their keys change with their age: q W_k' z_s is one product, q W_k' P_a and
z_s P_a are two with a table of w + 1 rows, and r multiplies scores and weights. The constant is the same for all keys
of a query, and cancels in the softmax. A stream absorbs W_k and W_v into query and answer instead (``stream.py``).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.timesformer.attention import SpaceAttention, WindowAttention, center
from recollect.cores.timesformer.config import TimeSformerConfig
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection
from recollect.layers.spatial_attention import infer_map_channels, split_map
from recollect.layers.window_attention import plan_window, slide_layers, window_steps
from recollect.ops.linear import Linear


class TimeSformerState(NamedTuple):
    """State of a TimeSformer: the tokens of the last frames in every layer."""

    window: Tensor
    """float ``[b, layers, memory_len, n, d]``: centered tokens without their time, oldest first; zero where not of this
    episode."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count
    """``[b]`` int64: frames of the running episode in the window, at most ``memory_len``."""


class TimeSformerLayer(nn.Module):
    """Attention to space and time, divided or joint, and a feed-forward, all pre-norm with residuals."""

    def __init__(self, config: TimeSformerConfig) -> None:
        super().__init__()
        d, heads, window = config.token_dim, config.num_heads, config.memory_len
        divided = config.attention == "divided"
        self.window_attention = WindowAttention(d, heads, window, grid=None if divided else config.grid)
        self.time_out = nn.Linear(d, d) if divided else None
        self.space_attention = SpaceAttention(d, heads, config.grid) if divided else None
        self.norm_forward = nn.LayerNorm(d)
        self.feed_forward = FeedForward(d, feedforward_width(d, config.hidden_dim))
        if self.time_out is not None:
            nn.init.zeros_(self.time_out.weight)
            nn.init.zeros_(self.time_out.bias)

    def forward(self, x: Tensor, frames: Tensor, visible: Tensor, times: Tensor) -> Tensor:
        """Attend over time and space and apply the feed-forward part.

        Args:
            x: ``[b, t, n, d]``.
            frames: ``[b, w + t, n, d]``, cached frames and those of x, centered and without time.
            visible: bool ``[b, t, w + 1]``.
            times: centered P ``[w + 1, d]``, age 0 last.
        """
        return self.finish(x, self.window_attention(x, frames, visible, times))

    def finish(self, x: Tensor, seen: Tensor) -> Tensor:
        """Compute the rest of the layer from ``x [..., n, d]`` and the answers ``seen`` of its window."""
        if self.time_out is not None:
            seen = self.time_out(seen)
        x = x + seen
        if self.space_attention is not None:
            x = x + self.space_attention(x)
        return x + self.feed_forward(self.norm_forward(x))


class TimeSformer(MemoryCore[TimeSformerState]):
    """TimeSformer with a window of frames; equations and differences are at the top of this module.

    Raises:
        ValueError: ``input_dim`` does not fit the map, or as many other features as outputs follow it.
    """

    stream_type = companion("recollect.cores.timesformer.stream:TimeSformerStream")
    reference_unroll = companion("recollect.cores.timesformer.reference:reference_unroll")
    runs_in_float16 = True

    layers: Sequence[TimeSformerLayer]

    def __init__(self, config: TimeSformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.channels, num_others = infer_map_channels(config.grid, config.channels, input_dim)
        remedy = f"of input_dim={input_dim}, {num_others} go to the output unchanged: give more than these"
        require(num_others < config.dim, "dim", config.dim, remedy)
        d, self.places = config.token_dim, math.prod(config.grid)
        self.project = input_projection(self.channels, d)
        self.space = nn.Parameter(torch.randn(self.places, d) * 0.02)
        rows = config.memory_len + 1 if config.time_rows is None else config.time_rows
        self.time = nn.Parameter(torch.randn(rows, d) * 0.02)
        self.layers = nn.ModuleList(TimeSformerLayer(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(d)
        self.out = Linear(self.places * d, config.dim - num_others)

    def initial_state(self, batch_size: int) -> TimeSformerState:
        """Return an empty window."""
        c = self.config
        return TimeSformerState(
            window=self.zeros(batch_size, c.num_layers, c.memory_len, self.places, c.token_dim),
            count=self.zeros(batch_size, dtype=torch.int64),
        )

    def embed(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute tokens with place and time ``[..., n, d]`` of inputs ``[..., i]``, and return other features."""
        maps, others = split_map(inputs, self.places, self.channels)
        return self.project(maps) + (self.space + self.time[-1]), others

    def answer(self, x: Tensor, others: Tensor) -> Tensor:
        """Compute the output ``[..., dim]`` from the last layer's tokens ``[..., n, d]`` and the other features."""
        return torch.cat((self.out(self.norm(x).flatten(-2)), others), -1)

    def times(self) -> Tensor:
        """Return centered P of the ages w ... 0, ``[w + 1, d]``."""
        return center(self.time[-self.config.memory_len - 1 :])

    def unroll(self, inputs: Tensor, state: TimeSformerState, is_first: Tensor) -> tuple[Tensor, TimeSformerState]:
        """Compute all steps at once, layer by layer."""
        plan = plan_window(is_first, state.count, self.config.memory_len)
        x, others = self.embed(inputs)
        x, times = x.to(state.window.dtype), self.times()  # the residual stream keeps its precision under autocast
        # A selection: frames of an earlier episode or a broken state must not reach a product, even with weight 0.
        # They are centered already, except for rounding and for gradients of the state.
        known = center(torch.where(plan.held[:, None, ..., None], state.window, 0.0))
        kept = []
        for layer, memory in zip(self.layers, known.unbind(1), strict=True):
            kept.append(center(x) - times[-1])
            x = layer(x, torch.cat((memory, kept[-1]), 1), plan.visible, times)
        return self.answer(x, others), TimeSformerState(slide_layers(state.window, kept, plan.count), plan.count)

    def largest_counters(self) -> dict[str, int]:
        """Return the largest step count."""
        return {"count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the window of every layer."""
        places = window_steps(clock, self.config.memory_len)
        return {f"layers.{i}.window_attention.tap": places for i in range(len(self.layers))}

    def flops_per_step(self) -> int:
        """Sum with n places, tokens of width d, f = hidden_dim, w = memory_len and s = w + 1 frames.

        Per layer and place: feed-forward 4 d f; divided: absorbed queries and answers 4 h d^2, scores and sum over the
        window 4 d h s, space 8 d^2 + 4 d n, F 2 d^2; joint: queries and output 4 d^2, keys and values 4 d^2 s, scores
        and sum 4 d n s. Once: the projection of the map, 2 c d n, and the output, 2 n d dim.
        """
        c, n = self.config, self.places
        d, seen = c.token_dim, c.memory_len + 1
        if c.attention == "divided":
            layer = (4 * c.num_heads + 10) * d * d + 4 * d * (c.num_heads * seen + n)
        else:
            layer = 4 * d * d * (1 + seen) + 4 * d * n * seen
        layer += 4 * d * feedforward_width(d, c.hidden_dim)
        project = 0 if self.channels == d else 2 * self.channels * d
        return n * (c.num_layers * layer + project) + 2 * self.out.weight.numel()
