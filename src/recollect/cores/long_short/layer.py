"""One layer of the Long-Short Transformer: its memory, its attention, and its form in a stream.

Equations and source: :mod:`recollect.cores.long_short.core`.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.long_short.joint import attend_jointly
from recollect.cores.long_short.segments import SegmentPlan, gather_steps, project_segments
from recollect.cores.long_short.tiles import attend_to_tiles
from recollect.layers.attention import merge_heads, split_heads
from recollect.layers.feedforward import FeedForward
from recollect.layers.positions import sinusoid
from recollect.layers.rings import MirrorRing
from recollect.layers.tap import Tap
from recollect.layers.window_attention import slide, to_window, visible_steps
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import PackedLinear, working_dtype

if TYPE_CHECKING:
    from recollect.cores.long_short.core import LongShortTransformerConfig


class LayerMemory(NamedTuple):
    """What one layer remembers; the newest entry is always in the last place, unused ones are zero."""

    window: Tensor  # b w 2d, keys and values after LN_L
    segment: Tensor  # b c-1 2d+h*r, keys, values and projection logits of the unfinished segment
    landmarks: Tensor  # b s*r 2d, keys and values after LN_G


class LongShortAttention(nn.Module):
    """Attention over landmarks and window, with the memory of one layer."""

    def __init__(self, config: "LongShortTransformerConfig") -> None:
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
        """Queries ``[..., d]``, window entries ``[..., 2d]`` and segment entries ``[..., 2d+h*r]`` of ``project``."""
        dim = self.config.dim
        queries, pairs, logits = projected.split((dim, 2 * dim, self.project.out_features - 3 * dim), -1)
        local = self.local_norm(pairs.unflatten(-1, (2, dim))).flatten(-2)
        source = local if self.config.normalise_first else pairs.to(local.dtype)
        return queries, local, torch.cat((source, logits.to(local.dtype)), -1)

    def compress(self, segments: Tensor, mask: Tensor | None = None) -> Tensor:
        """Landmarks of whole segments: ``[..., c, 2d+h*r] -> [..., r, 2d]``; ``mask`` bool ``[..., c]`` hides steps."""
        pairs, logits = segments.split((2 * self.config.dim, segments.shape[-1] - 2 * self.config.dim), -1)
        summary = project_segments(pairs, logits, self.config.num_heads, mask)
        return self.landmark_norm(summary.unflatten(-1, (2, -1))).flatten(-2)

    def forward(self, inputs: Tensor, memory: LayerMemory, plan: SegmentPlan) -> tuple[Tensor, LayerMemory]:
        """``[b, t, d]`` to ``[b, t, d]`` and the memory after the call."""
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
        """Keys and values by head: ``[b, s, 2d] -> [2, h, b, s, e]``."""
        return pairs.unflatten(-1, (2, self.config.num_heads, -1)).permute(2, 3, 0, 1, 4)

    def scores(self, queries: Tensor, far: Tensor, near: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of landmarks ``[h, b, t, l]`` and of the window ``[h, b, t, w+1]``, positions included.

        Args:
            queries: ``[b, t, d]``.
            far: keys of landmarks, ``[h, b, l, e]``.
            near: keys of steps, ``[h, b, w+t, e]``.
            distance: long ``[b, t, l]``, how many landmarks are newer.
        """
        window, heads = self.config.memory_len, self.config.num_heads
        queries = queries.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)  # h b t e
        queries = (queries * queries.shape[-1] ** -0.5).contiguous()
        if not self.relative:
            return queries @ far.mT, to_window(queries @ near.mT, window)
        by_landmark, by_age = self.position_keys()
        places = (queries.flatten(1, 2) @ by_landmark.mT).unflatten(1, queries.shape[1:3])
        moved = queries + self.position_bias[:, None, None]
        ages = (moved.flatten(1, 2) @ by_age.mT).unflatten(1, queries.shape[1:3])
        content = to_window((queries + self.content_bias[:, None, None]) @ near.mT, window)
        return queries @ far.mT + places.gather(-1, distance.expand(heads, -1, -1, -1)), content + ages

    def position_keys(self) -> tuple[Tensor, Tensor]:
        """Projected sinusoids: ``[h, s*r, e]`` by number of newer landmarks, ``[h, w+1, e]`` from the oldest age."""
        config, weight = self.config, self.window_position.weight
        count = config.num_segments * config.num_landmarks
        newer = torch.arange(count, device=weight.device, dtype=weight.dtype)
        age = torch.arange(config.memory_len, -1, -1, device=weight.device, dtype=weight.dtype)
        far = self.landmark_position(sinusoid(newer, config.dim, "concatenated"))
        near = self.window_position(sinusoid(age, config.dim, "concatenated"))
        return split_heads(far, config.num_heads), split_heads(near, config.num_heads)

    def encode(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """Two-way form: ``[b, t, d]`` to ``[b, t, d]``, t a multiple of w; ``padding`` bool ``[b, t]``."""
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

    def __init__(self, config: "LongShortTransformerConfig") -> None:
        super().__init__()
        hidden = 4 * config.dim if config.hidden_dim is None else config.hidden_dim
        self.dropout = config.dropout
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = LongShortAttention(config)
        self.feed_forward_norm = nn.LayerNorm(config.dim)
        self.feed_forward = FeedForward(config.dim, hidden, dropout=config.dropout)

    def forward(self, inputs: Tensor, memory: LayerMemory, plan: SegmentPlan) -> tuple[Tensor, LayerMemory]:
        """``[b, t, d]`` to ``[b, t, d]`` and the memory after the call."""
        read, memory = self.attention(self.attention_norm(inputs), memory, plan)
        return self.join(inputs, read), memory

    def encode(self, inputs: Tensor, padding: Tensor) -> Tensor:
        """Two-way form."""
        return self.join(inputs, self.attention.encode(self.attention_norm(inputs), padding))

    def join(self, inputs: Tensor, read: Tensor) -> Tensor:
        """Add what attention read, then the feed-forward block."""
        hidden = inputs + F.dropout(read, self.dropout, self.training)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


def heads_first(pairs: Tensor, num_heads: int) -> Tensor:
    """``[b, s, 2d] -> [b*h, s, 2e]``: batch and heads in one axis, so that products need no copy."""
    return pairs.unflatten(-1, (2, num_heads, -1)).movedim(-2, 1).flatten(-2).flatten(0, 1)


def heads_last(pairs: Tensor, num_heads: int) -> Tensor:
    """The inverse of :func:`heads_first`."""
    return pairs.unflatten(0, (-1, num_heads)).unflatten(-1, (2, -1)).movedim(1, -2).flatten(-3)


class LayerRings:
    """The memory of one layer in a stream."""

    def __init__(self, block: LongShortBlock, batch_size: int) -> None:
        self.block, self.attention, self.config = block, block.attention, block.attention.config
        config, heads, like = self.config, self.config.num_heads, block.attention.out.weight
        self.dtype = working_dtype(like)
        self.project, self.out = (
            self._product(self.attention.project, batch_size),
            self._product(self.attention.out, batch_size),
        )
        self.expand = self._product(block.feed_forward.expand, batch_size)
        self.contract = self._product(block.feed_forward.contract, batch_size)
        self.window = MirrorRing(batch_size * heads, config.memory_len + 1, (2 * config.dim // heads,), like)
        # Every row keeps its last c entries, whatever its phase: where a segment ends, they are that segment.
        self.segment = MirrorRing(batch_size, config.chunk_len, (2 * config.dim + heads * config.num_landmarks,), like)
        if self.attention.relative:
            far, near = self.attention.position_keys()
            self.far = far.flip(1).repeat(batch_size, 1, 1)  # b*h s*r e
            self.near = near.transpose(1, 2).contiguous()  # h e w+1

    def load(self, memory: LayerMemory) -> None:
        """Take over the memory of the functional form."""
        self.window.load(heads_first(F.pad(memory.window, (0, 0, 1, 0)), self.config.num_heads))
        self.segment.load(F.pad(memory.segment, (0, 0, 1, 0)))
        self._keep(heads_first(memory.landmarks, self.config.num_heads))

    def dump(self, phase: Tensor) -> LayerMemory:
        """A copy in the functional form; ``phase`` long ``[b]``, steps of the unfinished segment."""
        segment = self.segment.window()[:, 1:]
        used = torch.arange(segment.shape[1], 0, -1, device=phase.device) <= phase[:, None]
        return LayerMemory(
            heads_last(self.window.window()[:, 1:], self.config.num_heads),
            torch.where(used[..., None], segment, 0.0),
            heads_last(self.landmarks, self.config.num_heads),
        )

    def clear(self, rows: Tensor) -> None:
        """Forget the rows of a bool mask ``[b]``."""
        by_head = rows.repeat_interleave(self.config.num_heads)
        self.window.clear(by_head)
        self.segment.clear(rows)
        self._keep(self.landmarks.masked_fill(by_head[:, None, None], 0.0))

    def finish(self, rows: Tensor | None) -> None:
        """Turn the last c steps into landmarks, in the rows of a bool mask ``[b]`` or in all."""
        new = heads_first(self.attention.compress(self.segment.window()), self.config.num_heads)
        shifted = torch.cat((self.landmarks[:, new.shape[1] :], new.to(self.landmarks.dtype)), 1)
        if rows is not None:
            shifted = torch.where(rows.repeat_interleave(self.config.num_heads)[:, None, None], shifted, self.landmarks)
        self._keep(shifted)

    def _keep(self, landmarks: Tensor) -> None:
        self.landmarks = landmarks
        keys, self.values = landmarks.chunk(2, -1)
        # Landmarks change once per segment, and with them their distances: add these to the keys here.
        self.keys = keys + self.far if self.attention.relative else keys

    def _product(self, layer: nn.Linear, batch_size: int) -> PackedLinear:
        bias = None if layer.bias is None else layer.bias.to(self.dtype)
        return PackedLinear(layer.weight.to(self.dtype), bias, rows=batch_size, uses=1000)

    def step(self, inputs: Tensor, hidden: Tensor | None) -> Tensor:
        """The whole block on one step: ``[b, d]`` to ``[b, d]``."""
        block = self.block
        stream = inputs + F.dropout(self.read(block.attention_norm(inputs), hidden), block.dropout, block.training)
        inside = block.feed_forward.activation(self.expand(block.feed_forward_norm(stream).to(self.dtype)))
        inside = self.contract(F.dropout(inside, block.dropout, block.training))
        return stream + F.dropout(inside, block.dropout, block.training)

    def read(self, inputs: Tensor, hidden: Tensor | None) -> Tensor:
        """Push the (normed) step ``[b, d]`` and attend: ``[b, d]``; ``hidden`` bool ``[b*h, 1, s*r+w+1]``."""
        attention, heads, batch = self.attention, self.config.num_heads, inputs.shape[0]
        queries, local, entry = attention.split(self.project(inputs.to(self.dtype)))
        self.window.push(local.unflatten(-1, (2, heads, -1)).transpose(1, 2).reshape(batch * heads, -1))
        self.segment.push(entry)
        near_keys, near_values = self.window.window().chunk(2, -1)  # b*h w+1 e
        queries = queries.reshape(batch, heads, -1) * (self.config.dim // heads) ** -0.5
        flat = queries.flatten(0, 1).unsqueeze(1)  # b*h 1 e
        far = torch.bmm(flat, self.keys.transpose(1, 2))
        if attention.relative:
            age = torch.matmul((queries + attention.position_bias).transpose(0, 1), self.near)  # h b w+1
            age = age.transpose(0, 1).reshape(batch * heads, 1, -1)
            content = (queries + attention.content_bias).flatten(0, 1).unsqueeze(1)
            near = torch.baddbmm(age, content, near_keys.transpose(1, 2))
        else:
            near = torch.bmm(flat, near_keys.transpose(1, 2))
        scores = torch.cat((far, near), -1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = scores.softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        if attention.tap.listening:
            attention.tap(weights.unflatten(0, (batch, heads)))
        weights = F.dropout(weights, self.config.dropout, attention.training)
        far, near = weights.split((far.shape[-1], near.shape[-1]), -1)
        read = torch.baddbmm(torch.bmm(far, self.values), near, near_values)
        return self.out(read.reshape(batch, -1).to(self.dtype))
