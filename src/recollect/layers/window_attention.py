"""Sliding windows over episodes: visible past steps, cached steps, and attention to them.

A cache holds the last ``w`` steps before a call, oldest first (right-aligned: the newest is in the last place), of
which the newest ``count[b]`` belong to the running episode of row b. During a call of ``t`` steps the keys are the
``w`` cached ones followed by the ``t`` new ones. A query sees itself and at most ``w`` steps before it, never across
an ``is_first``, so that the window is the same for every split of a sequence into calls.

In *window layout* a query's scores have w + 1 columns, column j for the step w - j back (the query itself last):

    window[i, j] = full[i, i + j]           i = 0 ... t-1,  j = 0 ... w,  full is [t, w + t]

The window is a strided view of the full scores: moving between the two needs no gather, the relative shift of
Transformer-XL is this view, and softmax and mask touch w + 1 columns instead of w + t. A sequence that is longer
than its window is cut into blocks of queries, so that the cost is O(t w).
"""

from itertools import repeat
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.tap import Tap
from recollect.ops.short_softmax import softmax
from recollect.ops.torch_internals import learns_on_cpu
from recollect.state import spread_rows

MIN_BLOCK = 64
"""Least length of a block of queries: short windows are faster in one product than in many small ones."""


def steps_since_first(is_first: Tensor, count: Tensor) -> Tensor:
    """Count the steps of the running episode before each step: ``[b, t]`` long.

    Args:
        is_first: bool ``[b, t]``.
        count: long ``[b]``, steps of the running episode before this call.
    """
    t = is_first.shape[1]
    steps = torch.arange(t, device=is_first.device).expand_as(is_first)
    last_first = torch.where(is_first, steps, -1)
    if t > 1:
        last_first = last_first.cummax(1).values
    return torch.where(last_first >= 0, steps - last_first, steps + count[:, None])


def visible_steps(age: Tensor, window: int) -> Tensor:
    """Compute which steps of its window a query may see.

    Args:
        age: long ``[b, t]``, steps of the running episode before each step.
        window: w.

    Returns:
        bool ``[b, t, w + 1]``, the query itself last.
    """
    return torch.arange(window, -1, -1, device=age.device) <= age[..., None]


def next_count(is_first: Tensor, count: Tensor, window: int) -> Tensor:
    """Count the valid steps in the cache after the call: ``[b]`` long, at most ``window``."""
    return (steps_since_first(is_first, count)[:, -1] + 1).clamp(max=window)


class WindowPlan(NamedTuple):
    """Visible and cached steps of one call of t steps."""

    visible: Tensor
    """Bool ``[b, t, w + 1]``: which steps each query may see, itself last."""
    held: Tensor
    """Bool ``[b, w, 1]``: which cached steps belong to the episode of the first new step. The others must not reach a
    product, even with weight 0: 0 times NaN is NaN."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count
    """Long ``[b]``: valid steps in the cache after the call."""


def plan_window(is_first: Tensor, count: Tensor, window: int) -> WindowPlan:
    """Find which cached steps and steps of the call each step may attend to.

    Args:
        is_first: bool ``[b, t]``.
        count: long ``[b]``, valid steps in the cache, at most ``window``.
        window: w, steps that a query sees before itself.
    """
    age = steps_since_first(is_first, count)
    held = torch.arange(window, 0, -1, device=count.device) <= count[:, None]
    return WindowPlan(
        visible=visible_steps(age, window),
        held=(held & ~is_first[:, :1])[..., None],
        count=(age[:, -1] + 1).clamp(max=window),
    )


class NarrowedPlan(NamedTuple):
    """The part of a window that some query sees."""

    places: int
    """Number of cached steps, the newest ones; at least one."""
    visible: Tensor
    """Bool ``[b, t, places + 1]``."""
    held: Tensor
    """Bool ``[b, places, 1]``."""


def narrow_plan(plan: WindowPlan, *taps: Tap) -> NarrowedPlan:
    """Reduce a window to the steps that some query of the call sees, where this saves work: when training on a CPU.

    Args:
        plan: window of the call.
        taps: taps of the layers; with editors the complete window is kept.
    """
    w = plan.visible.shape[-1] - 1
    if not learns_on_cpu(plan.visible) or any(tap.has_editors for tap in taps):
        return NarrowedPlan(w, plan.visible, plan.held)
    seen = plan.visible.flatten(0, 1).any(0)  # from w steps back to the query itself, which is always seen
    places = max(1, w - int(seen.byte().argmax()))
    return NarrowedPlan(places, plan.visible[..., w - places :], plan.held[:, w - places :])


def slide(cache: Tensor, new: Tensor, count: Tensor) -> Tensor:
    """Return the cache after a call: the newest w of (cache, new), zero outside of the running episode.

    Args:
        cache: ``[b, w, ...]``.
        new: ``[b, t, ...]``.
        count: long ``[b]``, from :func:`next_count`.
    """
    w = cache.shape[1]
    t = new.shape[1]
    valid = torch.arange(w, 0, -1, device=new.device) <= count[:, None]
    valid = spread_rows(valid, new)
    if t >= w:
        return torch.where(valid, new[:, t - w :], 0.0)
    # In place on the fresh tensor: caches are large, and a second one costs more than the copy itself.
    return torch.cat((cache[:, t:], new), 1).masked_fill_(~valid, 0.0)


def slide_layers(cache: Tensor, new: list[Tensor], count: Tensor) -> Tensor:
    """:func:`slide` for all layers of a core at once.

    Args:
        cache: ``[b, layers, w, ...]``.
        new: one ``[b, t, ...]`` per layer.
        count: long ``[b]``, from :func:`next_count`.
    """
    rows = torch.stack(new, 1).to(cache.dtype).flatten(0, 1)
    return slide(cache.flatten(0, 1), rows, count.repeat_interleave(len(new))).unflatten(0, cache.shape[:2])


def to_window(full: Tensor, window: int) -> Tensor:
    """View the columns that each query may see: ``[..., t, w + t] -> [..., t, w + 1]``.

    ``full`` must be contiguous, as products are.
    """
    strides = full.stride()
    return full.as_strided((*full.shape[:-1], window + 1), (*strides[:-2], full.shape[-1] + 1, 1))


def to_full(window_weights: Tensor) -> Tensor:
    """Undo :func:`to_window`, with zeros elsewhere: ``[..., t, w + 1] -> [..., t, w + t]``."""
    t, w = window_weights.shape[-2], window_weights.shape[-1] - 1
    s = w + t
    # Rows of length s + 1, read again as rows of length s: row i moves right by i.
    rows = F.pad(window_weights, (0, t)).flatten(-2)
    return rows[..., : t * s].unflatten(-1, (t, s))


def softmax_top_k(scores: Tensor, visible: Tensor, k: int) -> Tensor:
    """Softmax over the k largest visible scores of every query; all others get weight 0.

    Args:
        scores: ``[..., s]`` with forbidden entries at the smallest finite number.
        visible: bool, broadcastable to ``scores``.
        k: entries kept; ``topk`` breaks ties.
    """
    best, index = scores.topk(min(k, scores.shape[-1]), -1)
    weights = softmax(best).masked_fill(~visible.expand_as(scores).gather(-1, index), 0.0)
    return torch.zeros_like(scores).scatter(-1, index, weights)


def sliding_attention(  # noqa: PLR0913 (an equation of many letters)
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    *,
    offset_queries: Tensor | None = None,
    offset_keys: Tensor | None = None,
    bias: Tensor | None = None,
    top_k: int | None = None,
    tap: Tap | None = None,
    shown: int | None = None,
) -> Tensor:
    """Compute attention of projected heads in a sliding window.

        a[i, j] = softmax_j( q_i k_{i+j} + p_i r_j + c_j )        out_i = sum_j a[i, j] v_{i+j}

    Heads come before batch, so that the products with r are one product per head.

    Args:
        queries: q ``[h, b, t, e]``, already scaled.
        keys: k ``[h, b, w + t, e]``.
        values: v ``[h, b, w + t, e]``.
        visible: bool ``[b, t, w + 1]`` from :func:`visible_steps`; a query sees at least itself.
        offset_queries: p ``[h, b, t, e]``, scaled; goes together with ``offset_keys``.
        offset_keys: r ``[h, w + 1, e]``, the keys of the offsets w ... 0.
        bias: c ``[h, w + 1]``.
        top_k: keep only so many of the largest scores of each query and head.
        tap: receives weights ``[b, h, t, w + 1]`` in window layout while it has listeners.
        shown: window of the tapped weights, where :func:`narrow_plan` has made w smaller; None is w. No edits then.

    Returns:
        ``[h, b, t, e]`` in the dtype of ``values``.
    """
    w, t = visible.shape[-1] - 1, visible.shape[1]
    is_recorded = tap is not None and tap.has_listeners
    fused = not is_recorded and offset_keys is None and bias is None and top_k is None

    def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=to_full(seen), scale=1.0), None
        scores = to_window(q @ k.transpose(-1, -2), w)
        if p is not None and offset_keys is not None:
            # In place on the fresh product, whose values no gradient needs: one pass less over memory.
            scores = (p.flatten(1, 2) @ offset_keys.transpose(-1, -2)).unflatten(1, p.shape[1:3]).add_(scores)
        if bias is not None:
            scores = scores + bias[:, None, None].to(scores.dtype)
        weights = softmax_visible(scores, seen, top_k)
        if tap is not None:
            weights = tap.edit(weights.transpose(0, 1)).transpose(0, 1)
        return to_full(weights.to(v.dtype)) @ v, weights

    block = max(w, MIN_BLOCK)
    if t <= block:
        out, weights = attend(queries, keys, values, visible, offset_queries)
        maps = [weights]
    else:
        # split, not slices: every slice would have a gradient of full length.
        p_blocks = repeat(None) if offset_queries is None else offset_queries.split(block, 2)
        k_blocks, v_blocks = overlapping_blocks(keys, w, block), overlapping_blocks(values, w, block)
        blocks = zip(queries.split(block, 2), k_blocks, v_blocks, visible.split(block, 1), p_blocks, strict=False)
        outs, maps = zip(*(attend(*parts) for parts in blocks), strict=True)
        out = torch.cat(outs, 2)
    if tap is not None and is_recorded:
        tapped = torch.cat([weights for weights in maps if weights is not None], 2).transpose(0, 1)
        tap(tapped if shown is None else F.pad(tapped, (shown - w, 0)))
    return out


def window_steps(clock: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the episode steps in window layout, for queries that are ``clock [b, t]`` steps into their episodes.

    Returns:
        The step at each place, long ``[b, t, w + 1]``, negative before the episode's start; and the one after it.
    """
    steps = clock[..., None] + torch.arange(-window, 1, device=clock.device)
    return steps, steps + 1


def overlapping_blocks(steps: Tensor, window: int, block: int) -> list[Tensor]:
    """Cut ``[., ., w + t, .]`` into overlapping parts along time: ``block`` new steps and the w before them."""
    total = steps.shape[2] - window
    lengths = [min(block, total - start) for start in range(0, total, block)]
    before, *new = steps.split([window, *lengths], 2)
    parts = []
    for piece in new:
        parts.append(torch.cat((before, piece), 2))
        before = piece[:, :, -window:]
    return parts


def softmax_visible(scores: Tensor, visible: Tensor, top_k: int | None = None) -> Tensor:
    """Return the softmax over visible entries, in float32 or better.

    Args:
        scores: ``[..., w + 1]``.
        visible: bool, broadcastable to ``scores``; at least one entry of each row.
        top_k: keep only so many of the largest scores; None: all.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # A query sees at least itself, so the smallest finite number becomes weight 0 exactly.
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return softmax(scores) if top_k is None else softmax_top_k(scores, visible, top_k)
