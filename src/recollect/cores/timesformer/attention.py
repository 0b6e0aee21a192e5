"""The attention of TimeSformer: to a window of frames, whose keys depend on their present age, and within a frame.

The algebra is at the top of ``core.py``. Shapes: b rows, t steps, n places, d = h e token width, w frames before.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.attention import masked_softmax, merge_heads, split_heads
from recollect.layers.config import Grid
from recollect.layers.tap import Tap
from recollect.layers.window_attention import MIN_BLOCK, overlapping_blocks, to_full, to_window
from recollect.ops import unshifted_attention
from recollect.ops.linear import Linear, linear
from recollect.ops.packed_linear import without_autocast


def center(x: Tensor) -> Tensor:
    """Subtract the mean over the last axis."""
    return x - x.mean(-1, keepdim=True)


def _at_least_float32(x: Tensor) -> Tensor:
    # The gradient needs the cube of an inverse deviation, which is too large for float16.
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Folded(NamedTuple):
    """Weights that act on standardized (queries) or centered (keys, values) tokens."""

    queries: Tensor
    """``[d, d]``, with gain and scale."""
    queries_bias: Tensor
    """``[d]``."""
    keys_values: Tensor
    """``[2 d, d]``, with gain."""
    values_bias: Tensor
    """``[d]``: the part of every value, and thus of every answer, that comes from the norm's shift."""


class WindowAttention(nn.Module):
    """Attention to a window of frames: of a place to itself, or with ``grid`` to all places of the map."""

    def __init__(self, dim: int, num_heads: int, window: int, *, grid: Grid | None) -> None:
        super().__init__()
        self.num_heads, self.window, self.grid = num_heads, window, grid
        self.norm = nn.LayerNorm(dim)
        self.qkv = Linear(dim, 3 * dim, bias=False)
        self.out = Linear(dim, dim)
        self.tap = Tap("b h t s")
        """Attention of a frame's places to each frame of the window, mean over the places."""
        if grid is None:
            self.place_tap = Tap("b h t n s")
            """Attention of every place to itself in each frame of the window."""
        else:
            self.map_tap = Tap("b h t s y x")
            """Attention of a frame's places to each place of each frame of the window, mean over the places."""

    @property
    def has_listeners(self) -> bool:
        """Whether any Tap needs the weights."""
        return any(tap.has_listeners for tap in self.children() if isinstance(tap, Tap))

    def folded(self) -> Folded:
        """Fold the norm's gain and shift and the scale of the scores into the weights."""
        d = self.qkv.in_features
        scale = (d // self.num_heads) ** -0.5
        weight = self.qkv.weight * self.norm.weight
        shift = (self.qkv.weight * self.norm.bias).sum(-1)  # a sum stays precise under autocast
        return Folded(weight[:d] * scale, shift[:d] * scale, weight[d:], shift[2 * d :])

    def forward(self, x: Tensor, frames: Tensor, visible: Tensor, times: Tensor) -> Tensor:
        """Attend to the window.

        Args:
            x: ``[b, t, n, d]``.
            frames: ``[b, w + t, n, d]``, centered, without time.
            visible: bool ``[b, t, w + 1]``; a step sees at least itself.
            times: centered ``[w + 1, d]``, age 0 last.

        Returns:
            ``[b, t, n, d]``.
        """
        folded = self.folded()
        queries = linear(F.layer_norm(x, x.shape[-1:]), folded.queries, folded.queries_bias)
        read = self._same_place if self.grid is None else self._all_places
        return self.out(read(queries, frames, visible, times, folded) + folded.values_bias)

    def _same_place(self, queries: Tensor, frames: Tensor, visible: Tensor, times: Tensor, folded: Folded) -> Tensor:
        block = max(self.window, MIN_BLOCK)
        outs = []
        # Time before places: a window of one place is a matrix, and blocks are cut along one axis.
        pieces = overlapping_blocks(frames.transpose(1, 2), self.window, block)
        blocks = zip(queries.split(block, 1), pieces, visible.split(block, 1), strict=True)
        for part, piece, seen in blocks:
            outs.append(self._block(part.transpose(1, 2), piece, seen, times, folded))
        return torch.cat(outs, 2).transpose(1, 2)

    def _block(self, queries: Tensor, frames: Tensor, visible: Tensor, times: Tensor, folded: Folded) -> Tensor:
        """Attend from some frames ``[b, n, t, d]`` to the window before them and themselves, ``[b, n, w + t, d]``."""
        w, heads = self.window, self.num_heads
        q = split_heads(queries, heads)  # b n h t e
        keys, values = (split_heads(part, heads) for part in linear(frames, folded.keys_values).chunk(2, -1))
        time_keys, time_values = (split_heads(part, heads) for part in linear(times, folded.keys_values).chunk(2, -1))
        scores = to_window((q @ keys.transpose(-1, -2)).contiguous(), w) + q @ time_keys.transpose(-1, -2)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        inverse = self._inverse_deviation(frames, times)[:, :, None].to(scores.dtype)  # b n 1 t w+1
        hidden = ~visible[:, None, None]
        weights = (scores * inverse).masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        if self.tap.has_listeners:
            self.tap(weights.mean(1))
        if self.place_tap.has_listeners:
            self.place_tap(weights.permute(0, 2, 3, 1, 4))
        weights = (weights * inverse).to(values.dtype)
        return merge_heads(to_full(weights) @ values + weights @ time_values)

    def _inverse_deviation(self, frames: Tensor, times: Tensor) -> Tensor:
        """Compute r of a window's frames at their ages: ``[b, n, w + t, d]`` to ``[b, n, t, w + 1]``."""
        length, d = self.window + 1, frames.shape[-1]
        frames, times = _at_least_float32(frames), _at_least_float32(times)
        with without_autocast(frames):
            products = frames @ times.t()  # b n w+t w+1: at every age, of which each step needs one
            shape, strides = (*products.shape[:2], products.shape[2] - self.window, length), products.stride()
            aged = products.as_strided(shape, (*strides[:2], length, length + 1))
            squares = frames.square().sum(-1).unfold(-1, length, 1) + times.square().sum(-1)
            # Rounding may give slightly negative numbers where a frame is the opposite of its time.
            return (squares + 2 * aged).clamp(min=0).div(d).add(self.norm.eps).rsqrt()

    def _all_places(self, queries: Tensor, frames: Tensor, visible: Tensor, times: Tensor, folded: Folded) -> Tensor:
        w, eps = self.window, self.norm.eps
        # Components first, so that operations on all places are contiguous.
        known = linear(frames, folded.keys_values).movedim(-1, 1).contiguous()  # b 2d w+t n
        known_times = linear(times, folded.keys_values).t()[..., None]  # 2d w+1 1
        frames, aged_times = _at_least_float32(frames).movedim(-1, 1).contiguous(), times.t()[..., None]
        outs = []
        # Step by step: attention costs many times the layout of the keys of a step.
        for step, (q, seen) in enumerate(zip(queries.unbind(1), visible.unbind(1), strict=True)):
            now = slice(step, step + w + 1)
            inverse = (frames[:, :, now] + aged_times).square().mean(1, keepdim=True).add(eps).rsqrt()
            entries = ((known[:, :, now] + known_times) * inverse.to(known.dtype)).flatten(2)  # b 2d s
            keys, values = entries.unflatten(1, (2, self.num_heads, -1)).unbind(1)
            outs.append(self.read_all(q, keys, values, seen))
        return torch.stack(outs, 1)

    def read_all(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        """Compute joint attention of one step.

        Args:
            queries: ``[b, n, d]``.
            keys: ``[b, h, e, (w + 1) n]``.
            values: the same.
            visible: bool ``[b, w + 1]``; None sees everything.

        Returns:
            ``[b, n, d]``.
        """
        q = split_heads(queries, self.num_heads)
        seen = None if visible is None else visible.repeat_interleave(q.shape[2], 1)
        if not self.has_listeners:
            return merge_heads(unshifted_attention.attention(q, keys, values, seen))
        weights = masked_softmax(q @ keys, None if seen is None else seen[:, None, None])
        self._show(weights)
        return merge_heads(weights.to(values.dtype) @ values.transpose(-1, -2))

    def _show(self, weights: Tensor) -> None:
        """Pass ``[b, h, n, (w + 1) n]`` to the Taps."""
        assert self.grid is not None
        maps = weights.mean(2).unflatten(-1, (self.window + 1, *self.grid))[:, :, None]  # b h 1 s y x
        if self.tap.has_listeners:
            self.tap(maps.sum((-1, -2)))
        if self.map_tap.has_listeners:
            self.map_tap(maps)


class SpaceAttention(nn.Module):
    """Attention of all places of a frame to each other."""

    def __init__(self, dim: int, num_heads: int, grid: Grid) -> None:
        super().__init__()
        self.num_heads, self.grid = num_heads, grid
        self.norm = nn.LayerNorm(dim)
        self.qkv = Linear(dim, 3 * dim, bias=False)
        self.out = Linear(dim, dim)
        self.map_tap = Tap("b h t y x")
        """Attention of a frame's places to each of them, mean over the places."""

    def forward(self, x: Tensor) -> Tensor:
        """Attend between the tokens of each frame: steps ``[b, t, n, d]``, or one step ``[b, n, d]``."""
        d = x.shape[-1]
        weight = self.qkv.weight * self.norm.weight
        shift = (self.qkv.weight * self.norm.bias).sum(-1)
        parts = linear(F.layer_norm(x, (d,)), weight, shift).chunk(3, -1)
        q, k, v = (split_heads(part, self.num_heads) for part in parts)  # ... h n e
        if not self.map_tap.has_listeners:
            # Exporters to ONNX take four axes only.
            q, k, v = (part.flatten(0, -4) for part in (q, k, v))
            return self.out(merge_heads(F.scaled_dot_product_attention(q, k, v)).reshape(x.shape))
        weights = masked_softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), None)
        maps = weights.mean(-2).unflatten(-1, self.grid)  # ... h y x
        self.map_tap(maps.transpose(1, 2) if maps.ndim == 5 else maps[:, :, None])
        return self.out(merge_heads(weights.to(v.dtype) @ v))
