"""Long-Short Transformer: a window of recent steps, and landmarks that summarize everything before it.

The episode is cut into segments of c = ``chunk_len`` steps, anchored at its start. With X the (pre-normed) input
of a layer, and per head i, the r = ``num_landmarks`` landmarks of a finished segment S are

    P_i = softmax over the steps of S of (X_S W_i^P)              c r
    Kbar_i = P_i^T (X_S W_i^K),   Vbar_i = P_i^T (X_S W_i^V)      r e     (dynamic projection)

and the query of step t reads landmarks and window in one softmax

    H_i = softmax( Q_i [LN_G(Kbar_i); LN_L(K_i)]^T / sqrt(e) + position scores ) [LN_G(Vbar_i); LN_L(V_i)]

over the landmarks of the newest ``num_segments`` segments that were finished before the segment of t began (the
oldest are evicted first), and over step t itself and the ``memory_len`` steps before it. LN_L and LN_G are the
"dual" layer norms over the full width, each shared by keys and values. Layers are pre-norm with a feed-forward
block; a last layer norm follows.

    x = x + H(LN(x));   x = x + FF(LN(x))

Position scores (``positions="relative"``), with a the age of a key in steps, n the number of landmarks that are
newer, s(.) the sinusoid, u and v learned per head:

    window    u . k + (q / sqrt(e) + v) . W_r s(a)
    landmark  (q / sqrt(e)) . (W_g s(n) + b_g)

With ``causal=False`` there is no stream, only :meth:`LongShortTransformer.encode` for whole sequences: home
segments of w = ``memory_len`` steps see themselves and w/2 steps on both sides, and r landmarks are projected from
the whole sequence. Positions are then part of the inputs.

Paper: Zhu et al., Long-Short Transformer: Efficient Transformers for Language and Vision (2021), section 3,
equations 3 (dynamic projection), 5 (aggregation) and 6 (DualLN); the baseline of table 4 in Didolkar et al.,
Temporal Latent Bottleneck (2022).

Differs:

- Caches hold projected, normed keys and values. The official language model caches layer inputs, projects the
  window again in each call and compresses cached segments before it projects them, so that its numbers depend
  on the split into calls.
- The landmarks of at most ``num_segments`` segments are kept; in the paper their number grows with the length.
- No biases in the projections; that of X W^P would cancel in its softmax.
- The LRA code compresses keys and values that are already LN_L-normed: ``normalise_first=True``.
- No CLS vector; the LRA code adds one to the last layer.
"""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.input_checks import require_float_dtype
from recollect.cores.long_short.attention import (
    SegmentPlan,
    attend_jointly,
    attend_to_tiles,
    gather_steps,
    plan_segments,
    project_segments,
)
from recollect.cores.long_short.config import LongShortTransformerConfig
from recollect.cores.stream import COUNTED
from recollect.layers.attention import merge_heads, split_heads
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection, linear_flops
from recollect.layers.finite import is_finite
from recollect.layers.positions import sinusoid
from recollect.layers.tap import Tap
from recollect.layers.window_attention import slide, to_window, visible_steps, window_steps
from recollect.ops.linear import Linear

BLOCK = 128
"""Steps whose attention is computed at once (or memory_len, if that is more): linear cost in time."""


class LayerMemory(NamedTuple):
    """Memory of one layer; the newest entry is always last, unused ones are zero."""

    window: Tensor  # b w 2d, keys and values after LN_L
    segment: Tensor  # b c-1 2d+h*r, keys, values and projection logits of the unfinished segment
    landmarks: Tensor  # b s*r 2d, keys and values after LN_G


class LongShortTransformerState(NamedTuple):
    """Memories of all layers, and the steps of the running episode."""

    layers: tuple[LayerMemory, ...]
    steps: Tensor  # b, int64


class LongShortAttention(nn.Module):
    """Attention over landmarks and window, with the memory of one layer."""

    def __init__(self, config: LongShortTransformerConfig) -> None:
        super().__init__()
        self.config = config
        dim, heads = config.dim, config.num_heads
        # One product makes queries, keys, values and the logits of the dynamic projection.
        self.project = Linear(dim, 3 * dim + heads * config.num_landmarks, bias=False)
        self.local_norm = nn.LayerNorm(dim)
        self.landmark_norm = nn.LayerNorm(dim)
        self.out = Linear(dim, dim, bias=False)
        self.tap = Tap("b h t s")
        self.relative = config.causal and config.positions == "relative"
        if self.relative:
            self.window_position = nn.Linear(dim, dim, bias=False)
            self.landmark_position = nn.Linear(dim, dim)
            self.content_bias = nn.Parameter(torch.zeros(heads, dim // heads))
            self.position_bias = nn.Parameter(torch.zeros(heads, dim // heads))

    def split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split ``project``'s output: queries ``[..., d]``, window ``[..., 2d]``, segment entries ``[..., 2d+h*r]``."""
        dim = self.config.dim
        queries, pairs, logits = projected.split((dim, 2 * dim, self.project.out_features - 3 * dim), -1)
        local = self.local_norm(pairs.unflatten(-1, (2, dim))).flatten(-2)
        source = local if self.config.normalise_first else pairs.to(local.dtype)
        return queries, local, torch.cat((source, logits.to(local.dtype)), -1)

    def compress(self, segments: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compress whole segments, ``[..., c, 2d+h*r] -> [..., r, 2d]``; ``mask`` bool ``[..., c]``, True counts."""
        pairs, logits = segments.split((2 * self.config.dim, segments.shape[-1] - 2 * self.config.dim), -1)
        summary = project_segments(pairs, logits, self.config.num_heads, mask)
        return self.landmark_norm(summary.unflatten(-1, (2, -1))).flatten(-2)

    def forward(self, inputs: Tensor, memory: LayerMemory, plan: SegmentPlan) -> tuple[Tensor, LayerMemory]:
        """Return what is read from window and landmarks, ``[b, t, d]``, and the memory after the call."""
        config, window = self.config, self.config.memory_len
        queries, local, entries = self.split(self.project(inputs))
        timeline = torch.cat((memory.segment, entries), 1)
        finished = self.compress(gather_steps(timeline, plan.members).unflatten(1, (-1, config.chunk_len)))
        finished = torch.where(plan.ended[..., None, None], finished, 0.0).flatten(1, 2)
        landmarks = torch.cat((memory.landmarks, finished.to(local.dtype)), 1)

        far_keys, far_values = self.heads(landmarks).contiguous()
        near_keys, near_values = torch.cat((self.heads(memory.window), self.heads(local)), 3)
        scores = self.scores(queries, far_keys, near_keys, plan.distance)
        readable = torch.cat((plan.visible, visible_steps(plan.age, window)), -1)
        dropout = config.dropout if self.training else 0.0
        read = attend_jointly(*scores, far_values, near_values, readable, dropout=dropout, tap=self.tap)

        kept = gather_steps(landmarks, plan.kept)
        used = torch.arange(kept.shape[1], 0, -1, device=kept.device) <= plan.kept_count[:, None]
        return self.out(read.permute(1, 2, 0, 3).flatten(2)), LayerMemory(
            slide(memory.window, local, plan.steps.clamp(max=window)),
            slide(memory.segment, entries, plan.steps % config.chunk_len),
            torch.where(used[..., None], kept, 0.0),
        )

    def heads(self, pairs: Tensor) -> Tensor:
        """Split keys and values into heads: ``[b, s, 2d] -> [2, h, b, s, e]``."""
        return pairs.unflatten(-1, (2, self.config.num_heads, -1)).permute(2, 3, 0, 1, 4)

    def scores(self, queries: Tensor, far: Tensor, near: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Score the landmarks (last axis l) and the window (the query's own step last), positions included.

        Args:
            queries: ``[b, t, d]``.
            far: keys of landmarks, ``[h, b, l, e]``.
            near: keys of steps, ``[h, b, w+t, e]``.
            distance: long ``[b, t, l]``, number of newer landmarks.
        """
        window, heads = self.config.memory_len, self.config.num_heads
        queries = queries.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)  # h b t e
        queries = (queries * queries.shape[-1] ** -0.5).contiguous()
        if not self.relative:
            return queries @ far.mT, to_window(queries @ near.mT, window)
        by_landmark, by_age = self.position_keys()
        numbers = (queries.flatten(1, 2) @ by_landmark.mT).unflatten(1, queries.shape[1:3])
        moved = queries + self.position_bias[:, None, None]
        ages = (moved.flatten(1, 2) @ by_age.mT).unflatten(1, queries.shape[1:3])
        content = to_window((queries + self.content_bias[:, None, None]) @ near.mT, window)
        return queries @ far.mT + numbers.gather(-1, distance.expand(heads, -1, -1, -1)), content + ages

    def position_keys(self) -> tuple[Tensor, Tensor]:
        """Project sinusoids: ``[h, s*r, e]`` by number of newer landmarks, ``[h, w+1, e]`` from the oldest age."""
        config, weight = self.config, self.window_position.weight
        count = config.num_segments * config.num_landmarks
        # In half precision, neighboring positions of a long window would be equal.
        dtype = torch.promote_types(weight.dtype, torch.float32)
        newer = torch.arange(count, device=weight.device, dtype=dtype)
        age = torch.arange(config.memory_len, -1, -1, device=weight.device, dtype=dtype)
        far = self.landmark_position(sinusoid(newer, config.dim, "concatenated").to(weight.dtype))
        near = self.window_position(sinusoid(age, config.dim, "concatenated").to(weight.dtype))
        return split_heads(far, config.num_heads), split_heads(near, config.num_heads)

    def encode(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """Compute the two-way form: ``[b, t, d] -> [b, t, d]``, t a multiple of w; ``padding`` bool ``[b, t]``."""
        config = self.config
        queries, local, entries = self.split(self.project(inputs))
        read = attend_to_tiles(
            split_heads(queries, config.num_heads) * (config.dim // config.num_heads) ** -0.5,
            local.unflatten(-1, (2, config.num_heads, -1)),
            self.compress(entries, ~padding).unflatten(-1, (2, config.num_heads, -1)),
            padding,
            width=config.memory_len,
            dropout=config.dropout if self.training else 0.0,
            tap=self.tap,
        )
        return self.out(merge_heads(read))


class LongShortBlock(nn.Module):
    """``x = x + attention(LN(x)); x = x + FF(LN(x))``."""

    def __init__(self, config: LongShortTransformerConfig) -> None:
        super().__init__()
        hidden = feedforward_width(config.dim, config.hidden_dim)
        self.dropout = config.dropout
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = LongShortAttention(config)
        self.feed_forward_norm = nn.LayerNorm(config.dim)
        self.feed_forward = FeedForward(config.dim, hidden, dropout=config.dropout)

    def forward(self, inputs: Tensor, memory: LayerMemory, plan: SegmentPlan) -> tuple[Tensor, LayerMemory]:
        """Return the block's outputs ``[b, t, d]`` and the memory after the call."""
        read, memory = self.attention(self.attention_norm(inputs), memory, plan)
        return self._add(inputs, read), memory

    def encode(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """Compute the two-way form: ``[b, t, d] -> [b, t, d]``; ``padding`` bool ``[b, t]``."""
        return self._add(inputs, self.attention.encode(self.attention_norm(inputs), padding))

    def _add(self, inputs: Tensor, read: Tensor) -> Tensor:
        hidden = inputs + F.dropout(read, self.dropout, self.training)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class LongShortTransformer(MemoryCore[LongShortTransformerState]):
    """Window plus landmarks of everything before it; equations are at the top of this module."""

    stream_type = companion("recollect.cores.long_short.stream:LongShortTransformerStream")
    reference_unroll = companion("recollect.cores.long_short.reference:reference_unroll")
    runs_in_float16 = True

    def __init__(self, config: LongShortTransformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.embed = input_projection(input_dim, config.dim)
        self.blocks = nn.ModuleList(LongShortBlock(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)

    @property
    def layers(self) -> list[LongShortBlock]:
        """The blocks of the network, in order."""
        return cast("list[LongShortBlock]", list(self.blocks))

    def initial_state(self, batch_size: int) -> LongShortTransformerState:
        """Return zeros. Raises ``ValueError`` for the two-way form, which has no stream."""
        config = self.config
        self._require(causal=True)
        entry = 2 * config.dim + config.num_heads * config.num_landmarks
        layers = tuple(
            LayerMemory(
                self.zeros(batch_size, config.memory_len, 2 * config.dim),
                self.zeros(batch_size, config.chunk_len - 1, entry),
                self.zeros(batch_size, config.num_segments * config.num_landmarks, 2 * config.dim),
            )
            for _ in range(config.num_layers)
        )
        return LongShortTransformerState(layers, self.zeros(batch_size, dtype=torch.long))

    def forward(
        self, inputs: Tensor, state: LongShortTransformerState, is_first: Tensor
    ) -> tuple[Tensor, LongShortTransformerState]:
        """Read inputs step by step (the streaming form), as every :class:`MemoryCore` does."""
        self._require(causal=True)
        return super().forward(inputs, state, is_first)

    def unroll(
        self, inputs: Tensor, state: LongShortTransformerState, is_first: Tensor
    ) -> tuple[Tensor, LongShortTransformerState]:
        """Compute block by block, so that the cost of a long call is linear in its length."""
        size = max(BLOCK, self.config.memory_len)
        outputs = []
        for hidden, first in zip(self.embed(inputs).split(size, 1), is_first.split(size, 1), strict=True):
            config, layers = self.config, []
            plan = plan_segments(first, state.steps, config.chunk_len, config.num_segments, config.num_landmarks)
            for block, memory in zip(self.layers, state.layers, strict=True):
                hidden, memory = block(hidden, memory, plan)
                layers.append(memory)
            state = LongShortTransformerState(tuple(layers), plan.steps)
            outputs.append(self.norm(hidden))
        return torch.cat(outputs, 1), state

    def encode(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """Compute the two-way form over whole sequences.

        Args:
            inputs: float ``[b, t, d_in]``, positions included.
            padding: bool ``[b, t]``, True at steps to be ignored; None when every row is full.

        Returns:
            ``[b, t, d]``; zeros at padded steps, and NaN at steps that are not finite, which others read as zeros.

        Raises:
            ValueError: the core is causal, no step, or a shape or dtype that does not fit.
        """
        self._require(causal=False)
        self._check_rows(inputs)
        batch, t, _ = inputs.shape
        if padding is None:
            padding = torch.zeros(batch, t, dtype=torch.bool, device=inputs.device)
        if padding.dtype != torch.bool or tuple(padding.shape) != (batch, t):
            raise ValueError(f"padding is {padding.dtype} {list(padding.shape)}; it must be bool [{batch}, {t}]")
        extra = -t % self.config.memory_len
        empty = F.pad(padding, (0, extra), value=True)
        finite = is_finite(inputs).all(-1, keepdim=True)
        hidden = self.embed(torch.where(finite & ~padding[..., None], inputs, 0.0))
        hidden = F.pad(hidden, (0, 0, 0, extra))
        for block in self.layers:
            hidden = block.encode(hidden, empty)
        outputs = torch.where(finite, self.norm(hidden[:, :t]), torch.nan)
        return torch.where(padding[..., None], 0.0, outputs)

    def _check_rows(self, inputs: Tensor) -> None:
        """Raise ``ValueError`` unless :meth:`encode` can read the inputs."""
        if inputs.ndim != 3 or tuple(inputs.shape[2:]) != self.input_shape or not inputs.shape[1]:
            raise ValueError(
                f"inputs have shape {list(inputs.shape)}; encode takes [b, t, {self.input_shape[0]}]: "
                "give rows of at least one step"
            )
        require_float_dtype(inputs, self.norm.weight.dtype, type(self).__name__)

    def attended_steps(self, clock: Tensor) -> Places:
        """Return the segments of the landmarks, then the window."""
        c, nothing = self.config, torch.zeros_like(clock, dtype=torch.bool)
        plan = plan_segments(nothing, clock[:, 0], c.chunk_len, c.num_segments, c.num_landmarks)
        number = clock[..., None] // c.chunk_len - 1 - plan.distance // c.num_landmarks
        far = torch.where(plan.visible, number * c.chunk_len, -1)
        near, behind = window_steps(clock, c.memory_len)
        places = torch.cat((far, near), -1), torch.cat((torch.where(far < 0, -1, far + c.chunk_len), behind), -1)
        return {f"blocks.{i}.attention.tap": places for i in range(c.num_layers)}

    def largest_counters(self) -> dict[str, int]:
        """Return the largest step count."""
        return {"steps": COUNTED}

    def flops_per_step(self) -> int:
        """Count the operations of a step of the streaming form, with a full window and all landmarks.

        With w = memory_len, s = num_segments and r = num_landmarks, per layer:

            all linear maps except those of positions
            4d (w + 1 + sr)                 scores and sums over window and landmarks
            2d (w + 1)                      position scores of the window, when relative
            4rd                             dynamic projection: 4crd once per c steps

        and the input projection, if there is one.

        Raises:
            ValueError: the core is two-way: it has no steps.
        """
        self._require(causal=True)
        config, d = self.config, self.config.dim
        window, far = config.memory_len + 1, config.num_segments * config.num_landmarks
        attention = 4 * d * (window + far + config.num_landmarks)
        products = linear_flops(self)
        if config.positions == "relative":
            attention += 2 * d * window
            products -= sum(
                linear_flops(b.attention.window_position, b.attention.landmark_position) for b in self.layers
            )
        return products + config.num_layers * attention

    def _require(self, *, causal: bool) -> None:
        if self.config.causal != causal:
            raise ValueError(
                "causal=False: this core reads whole sequences, use core.encode, or build it with causal=True to stream"
                if causal
                else "causal=True: this core streams, call it with a state, or build it with causal=False to encode"
            )
