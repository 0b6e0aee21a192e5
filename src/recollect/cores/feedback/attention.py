"""Layers of the Feedback Transformer, and their attention to earlier memories, none of which is projected twice.

The keys and values of the steps before a block of 16 are one tensor for the whole block, whose gradient is one product
over all steps and layers of the block; those of the weights are one over all steps (:mod:`recollect.ops.weight_grads`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.feedback.config import FeedbackTransformerConfig
from recollect.layers.attention import masked_softmax, merge_heads, split_heads
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward
from recollect.layers.positions import LearnedPositions
from recollect.layers.tap import Tap
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import working_dtype
from recollect.ops.weight_grads import Affine

BLOCK = 16


def loop_map(*maps: nn.Linear) -> Affine:
    """Return maps of one input, side by side, for the loop over the steps, which computes weight gradients once."""
    dtype = working_dtype(maps[0].weight)
    weights = [one.weight.to(dtype) for one in maps]
    bias = maps[0].bias if len(maps) == 1 else None
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return Affine(weight, None if bias is None else bias.to(dtype), len(maps))


class Projections(nn.Module):
    """Keys and values of memories, for one layer or for all.

    With ``norm``, memories and the inputs of the layers that read them are normalized first.
    """

    def __init__(self, dim: int, num_heads: int, *, norm: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)

    def forward(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the memory by head: ``[..., s, d] -> [..., h, s, e]`` each."""
        memory = self.norm(memory)
        return split_heads(self.key(memory), self.num_heads), split_heads(self.value(memory), self.num_heads)


class LoopLayer:
    """The weights of a :class:`FeedbackLayer` in one loop over steps."""

    def __init__(self, layer: "FeedbackLayer") -> None:
        self.layer = layer
        self.query, self.out = loop_map(layer.query), loop_map(layer.out)
        self.expand, self.contract = loop_map(layer.feedforward.expand), loop_map(layer.feedforward.contract)

    def queries(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute :meth:`FeedbackLayer.queries` of one step."""
        return self.layer.prepare(self.query(x))

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        """Compute the layer's output ``[b, 1, d]`` from the heads' answers ``[b, h, 1, e]``."""
        layer = self.layer
        z = layer.attention_norm(x + self.out(merge_heads(heads)))
        return (
            z + self._forward(layer.feedforward_norm(z)) if layer.pre else layer.feedforward_norm(z + self._forward(z))
        )

    def _forward(self, z: Tensor) -> Tensor:
        def drop(x: Tensor) -> Tensor:
            return F.dropout(x, self.layer.dropout, self.layer.training)

        return drop(self.contract(drop(F.relu(self.expand(z)))))


class FeedbackLayer(nn.Module):
    """Attention to memories, then a feed-forward block; both with residual and norm."""

    def __init__(self, config: FeedbackTransformerConfig) -> None:
        super().__init__()
        dim, head_dim = config.dim, config.dim // config.num_heads
        self.num_heads = config.num_heads
        self.scale = head_dim**-0.5
        self.dropout = config.dropout
        self.pre = config.norm == "pre"
        self.query = Linear(dim, dim, bias=False)
        self.out = Linear(dim, dim, bias=False)
        self.positions = LearnedPositions(config.memory_len, head_dim, std=1.0)  # oldest first
        self.attention_norm = nn.Identity() if self.pre else nn.LayerNorm(dim)
        self.feedforward_norm = nn.LayerNorm(dim)
        hidden = feedforward_width(dim, config.hidden_dim)
        self.feedforward = FeedForward(dim, hidden, activation="relu", dropout=config.dropout)
        self.tap = Tap("b h t s")

    def queries(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scaled queries ``[b, h, t, e]`` of inputs ``[b, t, d]``, and position scores ``[b, h, t, w]``."""
        return self.prepare(self.query(x))

    def prepare(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the same of projected inputs ``[b, t, d]``."""
        q = split_heads(queries, self.num_heads) * self.scale
        return q, q @ self.positions.table.t()


class Past:
    """Keys and values of one pair of projections during a call, from the memory ``[b, w, d]`` of the state on.

    With ``official_empty`` softmax sees empty slots as zeros.
    """

    def __init__(self, projections: Projections, memory: Tensor, *, official_empty: bool) -> None:
        self.project = loop_map(projections.key, projections.value)
        self.norm, self.num_heads = projections.norm, projections.num_heads
        self.window = memory.shape[1]
        self.block = min(BLOCK, self.window)
        self.start = 0
        """First step of the block; ``old`` has the steps ``start - w`` to ``start - 1``."""
        self.old = projections(memory)
        self.new: list[tuple[Tensor, Tensor]] = []
        self.empty = projections(memory.new_zeros(1, 1, memory.shape[-1])) if official_empty else None

    def clear(self, rows: Tensor) -> None:
        """Zero the past of rows, so that none of their NaNs survives (a weight of 0 times NaN is NaN)."""
        rows = rows[:, None, None, None]
        self.old, *self.new = (
            (keys.masked_fill(rows, 0.0), values.masked_fill(rows, 0.0)) for keys, values in (self.old, *self.new)
        )

    def recent(self) -> tuple[Tensor, Tensor] | None:
        """Return keys and values ``[b, h, n, e]`` of the block's steps so far."""
        if not self.new:
            return None
        keys, values = zip(*self.new, strict=True)
        return torch.cat(keys, 2), torch.cat(values, 2)

    def hold(self) -> list[Affine]:
        """Return the products with the keys and the values of ``old``, which the steps until its next change share."""
        keys, values = (part.flatten(0, 1).to(working_dtype(part)) for part in self.old)  # (b h) w e
        self.scores, self.answers = Affine(keys, None), Affine(values.mT, None)
        return [self.scores, self.answers]

    def push(self, memory: Tensor) -> None:
        """Add the memory ``[b, 1, d]`` of a step."""
        keys, values = self.project(self.norm(memory)).chunk(2, -1)
        self.new.append((split_heads(keys, self.num_heads), split_heads(values, self.num_heads)))

    def join(self) -> None:
        """Join a full block with the earlier steps."""
        if len(self.new) == self.block:
            keys, values = (torch.cat(part, 2) for part in zip(self.old, *self.new, strict=True))
            self.old = keys[:, :, -self.window :], values[:, :, -self.window :]
            self.start += self.block
            self.new = []

    def read(
        self, q: Tensor, offsets: Tensor, mask: Tensor, recent: tuple[Tensor, Tensor] | None, layer: FeedbackLayer
    ) -> tuple[Tensor, Tensor]:
        """Attend with one layer's query.

        Args:
            q: scaled queries ``[b, h, 1, e]``.
            offsets: ``[b, h, 1, w]``, position scores of being w, .., 1 steps back.
            mask: bool ``[b, 1, 1, w + n]``, the visible steps.
            recent: from :meth:`recent`.
            layer: gives the dropout.

        Returns:
            Answers ``[b, h, 1, e]`` and weights ``[b, h, 1, w + n]``.
        """
        values, rows = self.old[1], q.shape[:2]
        scores = self.scores(q.flatten(0, 1)).unflatten(0, rows)
        if recent is not None:
            scores = torch.cat((scores, q @ recent[0].transpose(-1, -2)), -1)
        late = len(self.new)  # the oldest `late` keys of the earlier steps have left the window
        bias = F.pad(offsets, (late, 0))
        if self.empty is None:
            weights = masked_softmax(scores + bias, mask)
        else:
            inside = torch.arange(scores.shape[-1], device=mask.device) >= late
            scores = torch.where(mask, scores, q @ self.empty[0].transpose(-1, -2))
            weights = masked_softmax(scores + bias, inside)
        weights = F.dropout(weights, layer.dropout, layer.training).to(values.dtype)
        seen = weights if self.empty is None else weights.masked_fill(~mask, 0.0)
        heads = self.answers(seen[..., : self.window].flatten(0, 1)).unflatten(0, rows)
        if recent is not None:
            heads = heads + seen[..., self.window :] @ recent[1]
        if self.empty is not None:
            heads = heads + (weights - seen).sum(-1, keepdim=True) @ self.empty[1]
        return heads, weights
