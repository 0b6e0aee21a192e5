"""TimeSformer with a memory: every place of a map attends to the frames before it, and to the places of its own frame.

A step reads a map of n = y * x places and c channels, and what the agent is told beside it, e (reward, last action).
Tokens have width d; w frames are remembered; S is a table of places, P one of times, and P_a its row of age a. With
LN = LayerNorm and MHA = attention of h heads, for the place p of frame t

    x_tp = E m_tp + S_p + P_0                                          E only where c is not d

    divided (equations 2.35, 2.36), in every layer:
        z_sp = x_sp - P_0                                              what is remembered of the frames s < t
        y_tp = x_tp + F MHA_time(LN(x_tp);  LN(z_sp + P_{t-s}), s = t-w ... t)
        y_tp = y_tp + MHA_space(LN(y_tp);  LN(y_tq), q = 1 ... n)
        x_tp = y_tp + W_2 gelu(W_1 LN(y_tp))
    joint (equation 2.34), in every layer:
        y_tp = x_tp + MHA(LN(x_tp);  LN(z_sq + P_{t-s}), s = t-w ... t, q = 1 ... n)
        x_tp = y_tp + W_2 gelu(W_1 LN(y_tp))

    out  = [ W_o [LN(x_t1) ... LN(x_tn)] + b_o,  e ]

F starts as zero: a fresh divided core knows no time. All tokens of a frame see each other, none sees a later frame.
What is told stands behind the output of the linear map, as it is, so that policy and value see both.

Inputs are vectors ``[n * c + e]``: the map, ordered row, column, channel, then e.

Papers: George, Neural architecture impact on identifying temporally extended Reinforcement Learning tasks (master's
thesis, Freiburg 2021), sections 2.9 and 3.4. Bertasius et al., Is space-time attention all you need for video
understanding? (2021), section 3.

Differs:
- The window slides: each query sees exactly w frames before it, where the thesis lets a query of a call see the cache
  and all frames of the call before it, so that what a step remembers would depend on where a call starts.
- P is aligned to the right: age 0, the frame itself, is its last row. Its rows are w + 1; the thesis has a row for each
  of cache and call (100 + 80), of which ``time_rows`` makes as many. Those beyond w + 1 are never read.
- In every layer a remembered frame carries the time that it has now. The thesis remembers the hidden states of the
  layers above the first with the times they had; in a window that slides these would all be P_0.
- No class token and no dropout. S and P start normal, with a deviation of 0.02 (the thesis says Gaussian).
- Nothing follows the linear map (the thesis does not say).
- The gradient flows between the steps of a call; between calls it is the caller's ``detach`` that cuts it.

Exact algebra. What is remembered is centred, z - mean(z), because every reader's norm removes the mean anyway. With z
and P centred and W_k' = W_k diag(gain), a key is

    W_k LN(z_s + P_a) = (W_k' z_s + W_k' P_a) r_sa + const      r_sa = ((|z_s|^2 + 2 z_s P_a + |P_a|^2) / d + eps)^-1/2

so that frames are projected once, though their keys change as they grow older: q W_k' z_s is one product, q W_k' P_a
and z_s P_a are two with a table of w + 1 rows, and r multiplies scores and weights. The constant is the same for all
keys of a query, and leaves the softmax. A stream absorbs W_k and W_v into query and answer instead (``stream.py``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.timesformer.attention import SpaceAttention, WindowAttention, centre
from recollect.layers.config import feedforward_width, require_map, require_map_of
from recollect.layers.feedforward import FeedForward, input_projection
from recollect.layers.spatial_attention import infer_map_channels, split_map
from recollect.layers.window_attention import plan_window, slide_layers, window_steps
from recollect.ops.linear import Linear

SpaceTime = Literal["divided", "joint"]


class TimeSformerState(NamedTuple):
    """What is remembered."""

    window: Tensor
    """float ``[b, layers, memory_len, n, d]``: centred tokens without their time, oldest first; zero where not of this
    episode."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody asks for
    """``[b]`` int64: frames of the running episode in the window, at most ``memory_len``."""


@dataclass(frozen=True, kw_only=True)
class TimeSformerConfig(CoreConfig):
    """Settings of :class:`TimeSformer`."""

    paper: ClassVar[str] = "Bertasius et al. 2021; with memory: George 2021"
    remembers: ClassVar[str] = "a window of maps"
    reads_map: ClassVar[bool] = True

    dim: int = 256
    """Width of the output: of the linear map behind the tokens, and what is told."""
    grid: tuple[int, int] = (1, 1)
    """Rows and columns of the map."""
    channels: int | None = None
    """Channels c of the map; what is behind y * x * c inputs goes to the output as it is. None: all are the map's."""
    token_dim: int = 16
    """Width d of a token; a map with other channels is projected."""
    attention: SpaceTime = "divided"
    """divided: a token attends to its place in earlier frames, then to its own frame; joint: to all places of all
    frames at once."""
    num_layers: int = 1
    """Layers of attention and feed-forward."""
    num_heads: int = 4
    """Attention heads; must divide token_dim."""
    hidden_dim: int | None = None
    """Width of the feed-forward layer; 4 x token_dim when None."""
    memory_len: int = 100
    """Frames that a frame sees before itself, in every layer."""
    time_rows: int | None = None
    """Rows of the table of times; memory_len + 1 when None, and no more are read (George 2021 counts 180)."""

    def __post_init__(self) -> None:
        for field in ("dim", "token_dim", "num_layers", "num_heads", "memory_len"):
            require(getattr(self, field) >= 1, field, getattr(self, field), "give at least 1")
        require_map(self.grid, self.channels)
        known = get_args(SpaceTime)
        require(self.attention in known, "attention", self.attention, f"choose one of {', '.join(known)}")
        require(
            self.token_dim % self.num_heads == 0, "num_heads", self.num_heads, f"must divide token_dim={self.token_dim}"
        )
        feedforward_width(self.token_dim, self.hidden_dim)
        least = self.memory_len + 1
        require(
            self.time_rows is None or self.time_rows >= least,
            "time_rows",
            self.time_rows,
            f"give at least {least} for memory_len={self.memory_len}, or None",
        )

    @property
    def reach(self) -> int:
        """Layers x window."""
        return self.num_layers * self.memory_len

    def require_map_of(self, shape: tuple[int, int, int]) -> None:
        """Raise ``ValueError`` unless ``grid`` and ``channels`` are those of a map of this shape."""
        require_map_of(self.grid, self.channels, shape)

    def build(self, input_dim: int) -> "TimeSformer":
        """Make the core for inputs of width ``input_dim``.

        Raises:
            ValueError: the width does not fit the map, or what is told does not fit into the output.
        """
        return TimeSformer(self, input_dim)


class TimeSformerLayer(nn.Module):
    """Attention to space and time, divided or joint, and a feed-forward; each normed before and added after."""

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
        """One layer.

        Args:
            x: ``[b, t, n, d]``.
            frames: ``[b, w + t, n, d]``, what is remembered and what of x will be: centred, without time.
            visible: bool ``[b, t, w + 1]``.
            times: centred P ``[w + 1, d]``, age 0 last.
        """
        return self.finish(x, self.window_attention(x, frames, visible, times))

    def finish(self, x: Tensor, seen: Tensor) -> Tensor:
        """What follows the attention to the window: ``[..., n, d]`` and what it gave, to ``[..., n, d]``."""
        if self.time_out is not None:
            seen = self.time_out(seen)
        x = x + seen
        if self.space_attention is not None:
            x = x + self.space_attention(x)
        return x + self.feed_forward(self.norm_forward(x))


class TimeSformer(MemoryCore[TimeSformerState]):
    """Equations, papers and differences at the top of this file.

    Args:
        config: all settings.
        input_dim: width of the inputs: y * x * channels, and what is told.
    """

    layers: Sequence[TimeSformerLayer]

    runs_in_float16 = True

    def __init__(self, config: TimeSformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.channels, self.told = infer_map_channels(config.grid, config.channels, input_dim)
        require(
            self.told < config.dim,
            "dim",
            config.dim,
            f"of input_dim={input_dim}, {self.told} stand in the output as they are: give more than these",
        )
        d, self.places = config.token_dim, math.prod(config.grid)
        self.project = input_projection(self.channels, d)
        self.space = nn.Parameter(torch.randn(self.places, d) * 0.02)
        rows = config.memory_len + 1 if config.time_rows is None else config.time_rows
        self.time = nn.Parameter(torch.randn(rows, d) * 0.02)
        self.layers = nn.ModuleList(TimeSformerLayer(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(d)
        self.out = Linear(self.places * d, config.dim - self.told)

    def initial_state(self, batch_size: int) -> TimeSformerState:
        """An empty window."""
        c = self.config
        return TimeSformerState(
            window=self.zeros(batch_size, c.num_layers, c.memory_len, self.places, c.token_dim),
            count=self.zeros(batch_size, dtype=torch.int64),
        )

    def embed(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """``[..., i]`` to tokens with place and time, ``[..., n, d]``, and what is told."""
        maps, told = split_map(inputs, self.places, self.channels)
        return self.project(maps) + (self.space + self.time[-1]), told

    def answer(self, x: Tensor, told: Tensor) -> Tensor:
        """The output ``[..., dim]`` from the tokens ``[..., n, d]`` behind the last layer, and what is told."""
        return torch.cat((self.out(self.norm(x).flatten(-2)), told), -1)

    def times(self) -> Tensor:
        """Centred P of the ages w ... 0, ``[w + 1, d]``."""
        return centre(self.time[-self.config.memory_len - 1 :])

    def unroll(self, inputs: Tensor, state: TimeSformerState, is_first: Tensor) -> tuple[Tensor, TimeSformerState]:
        """All steps at once, layer by layer."""
        plan = plan_window(is_first, state.count, self.config.memory_len)
        x, told = self.embed(inputs)
        x, times = x.to(state.window.dtype), self.times()  # the stream keeps its precision under autocast
        # A selection: what an earlier episode or a broken state left must not reach a product, even with weight 0.
        # Centred already, but for rounding and for who asks for the gradient.
        known = centre(torch.where(plan.held[:, None, ..., None], state.window, 0.0))
        kept = []
        for layer, memory in zip(self.layers, known.unbind(1), strict=True):
            kept.append(centre(x) - times[-1])
            x = layer(x, torch.cat((memory, kept[-1]), 1), plan.visible, times)
        return self.answer(x, told), TimeSformerState(slide_layers(state.window, kept, plan.count), plan.count)

    def largest_counters(self) -> dict[str, int]:
        """How far the counters of the state go."""
        return {"count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Every layer's window; see :class:`MemoryCore`."""
        places = window_steps(clock, self.config.memory_len)
        return {f"layers.{i}.window_attention.tap": places for i in range(len(self.layers))}

    def flops_per_step(self) -> int:
        """Of one step, with n places, tokens of width d, f = hidden_dim, w = memory_len and s = w + 1 frames.

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
