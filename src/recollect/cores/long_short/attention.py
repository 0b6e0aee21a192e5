"""Attention of the Long-Short Transformer: to landmarks of finished segments and to steps nearby, in one softmax.

A segment is c consecutive steps of one episode, counted from the episode's start. When it ends it becomes r
landmarks; an unfinished segment at the end of an episode becomes none. Landmarks are in one list in order of time:
those kept from before the call (right-aligned), then those of segments that end in the call. Segments of one episode
follow each other without gaps, so the landmarks that a query may read are the newest part of the list at its time.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.attention import masked_softmax
from recollect.layers.tap import Tap
from recollect.layers.window_attention import steps_since_first, to_full


class SegmentPlan(NamedTuple):
    """Plan of one call of t steps in which at most f segments end; s, c, r as in :func:`plan_segments`."""

    visible: Tensor
    """Bool ``[b, t, (s+f)*r]``: which landmarks a query may read."""
    age: Tensor
    """Long ``[b, t]``: steps of the running episode before each step."""
    distance: Tensor
    """Long ``[b, t, (s+f)*r]``: number of newer landmarks; within range also where not visible."""
    members: Tensor
    """Long ``[b, f*c]``: the steps of each segment that ends, as places in (c-1 cached steps, this call)."""
    ended: Tensor
    """Bool ``[b, f]``: whether the segment exists."""
    kept: Tensor
    """Long ``[b, s*r]``: places in the list of the landmarks that are kept after the call."""
    kept_count: Tensor
    """Long ``[b]``: number of those in use."""
    steps: Tensor
    """Long ``[b]``: steps of the running episode after the call."""


def plan_segments(is_first: Tensor, steps: Tensor, chunk_len: int, capacity: int, slots: int) -> SegmentPlan:
    """Find which steps and landmarks each segment of a call may attend to.

    Args:
        is_first: bool ``[b, t]``.
        steps: long ``[b]``, steps of the running episode before the call; 0 where it begins with ``is_first``.
        chunk_len: c.
        capacity: s, segments whose landmarks are kept.
        slots: r, landmarks of a segment.
    """
    batch, t = is_first.shape
    device = is_first.device
    # At most c - 1 steps of a segment are before the call, so no more than this can end in it.
    most = (t + chunk_len - 1) // chunk_len
    since = steps_since_first(is_first, steps)  # b t
    ends = since % chunk_len == chunk_len - 1
    total = ends.long().cumsum(1)
    before = total - ends.long()  # segments that ended in this call before step t

    # The step at which each of them ends; all other steps are written into a spare last column.
    ended_at = torch.zeros(batch, most + 1, dtype=torch.long, device=device)
    now = torch.arange(t, device=device).expand(batch, t)
    ended_at = ended_at.scatter(1, torch.where(ends, before, most), now)[:, :most]

    place = torch.arange(capacity + most, device=device)
    newest = (capacity + before)[..., None]  # b t 1
    visible = (place < newest) & (place >= newest - (since // chunk_len).clamp(max=capacity)[..., None])
    slot = torch.arange(slots - 1, -1, -1, device=device)
    distance = (newest - 1 - place)[..., None] * slots + slot
    after = since[:, -1] + 1
    return SegmentPlan(
        visible=visible.repeat_interleave(slots, -1),
        age=since,
        distance=distance.flatten(-2).clamp(0, capacity * slots - 1),
        members=(ended_at[..., None] + torch.arange(chunk_len, device=device)).flatten(1),
        ended=torch.arange(most, device=device) < total[:, -1:],
        kept=total[:, -1:] * slots + torch.arange(capacity * slots, device=device),
        kept_count=after // chunk_len * slots,
        steps=after,
    )


def project_segments(pairs: Tensor, logits: Tensor, num_heads: int, mask: Tensor | None = None) -> Tensor:
    """Compute the dynamic projection: per head, r weighted means of the steps of a segment.

        P = softmax over steps(logits)        out = P^T pairs

    Args:
        pairs: keys and values, ``[..., c, 2d]``.
        logits: ``[..., c, h*r]``.
        num_heads: h.
        mask: bool ``[..., c]``, True counts; a segment without such steps gives zeros. None counts all.

    Returns:
        ``[..., r, 2d]``.

    Source: Zhu et al., Long-Short Transformer (2021), equation 3.
    """
    logits = logits.unflatten(-1, (num_heads, -1)).movedim(-3, -1)  # ... h r c
    weights = masked_softmax(logits, None if mask is None else mask[..., None, None, :])
    pairs = pairs.unflatten(-1, (2, num_heads, -1)).movedim(-2, -4).flatten(-2)  # ... h c 2e
    return (weights.to(pairs.dtype) @ pairs).unflatten(-1, (2, -1)).movedim(-4, -2).flatten(-3)


def gather_steps(entries: Tensor, places: Tensor) -> Tensor:
    """Return the entries ``[b, p, d]`` at some places ``[b, p]`` of ``[b, s, d]``."""
    return entries.gather(1, places[..., None].expand(-1, -1, entries.shape[-1]))


def attend_jointly(
    far_scores: Tensor,
    near_scores: Tensor,
    far_values: Tensor,
    near_values: Tensor,
    readable: Tensor,
    *,
    dropout: float = 0.0,
    tap: Tap | None = None,
) -> Tensor:
    """Attend to landmarks and a sliding window in one softmax: ``softmax([far, near]) [far values, near values]``.

    Args:
        far_scores: ``[h, b, t, l]``, of landmarks.
        near_scores: ``[h, b, t, w + 1]``, in window layout (layers/window_attention.py).
        far_values: ``[h, b, l, e]``.
        near_values: ``[h, b, w + t, e]``.
        readable: bool ``[b, t, l + w + 1]``.
        dropout: of the weights (pass 0 outside training).
        tap: receives the weights ``[b, h, t, l + w + 1]``, the newest step last.

    Returns:
        ``[h, b, t, e]``.
    """
    weights = masked_softmax(torch.cat((far_scores, near_scores), -1), readable)
    if tap is not None and tap.has_listeners:
        weights = tap.edit(weights.transpose(0, 1))
        weights = tap(weights).transpose(0, 1)
    if dropout:
        weights = F.dropout(weights, dropout)
    far, near = weights.to(near_values.dtype).split((far_scores.shape[-1], near_scores.shape[-1]), -1)
    return far @ far_values + to_full(near) @ near_values


def attend_to_tiles(
    queries: Tensor,
    near: Tensor,
    shared: Tensor,
    padding: Tensor,
    *,
    width: int,
    dropout: float = 0.0,
    tap: Tap | None = None,
) -> Tensor:
    """Attend to the steps on both sides, and to keys that every query reads, in one softmax.

    A sequence is cut into home segments of w steps. A query reads its home segment and w/2 steps (at least one) on
    both sides, and all shared keys:

        softmax( q [shared; near]^T ) [shared; near]

    Source: Zhu et al. (2021), section 3 (segment-wise sliding window).

    Args:
        queries: ``[b, h, t, e]``, already scaled; t is a multiple of ``width``.
        near: keys and values of the steps, ``[b, t, 2, h, e]``.
        shared: keys and values that all queries read, ``[b, r, 2, h, e]``.
        padding: bool ``[b, t]``, True at steps to be ignored: as queries they get zeros, as keys they are not read.
        width: w.
        dropout: of the weights (pass 0 outside training).
        tap: receives the weights ``[b, h, t, r + w + 2 max(w/2, 1)]``.

    Returns:
        ``[b, h, t, e]``.
    """
    margin, slots = max(width // 2, 1), shared.shape[1]
    reach = width + 2 * margin
    tiles = F.pad(near, (0, 0) * 3 + (margin, margin)).unfold(1, reach, width)  # b g 2 h e w+2m
    near_keys, near_values = tiles.permute(2, 0, 3, 1, 5, 4)  # b h g w+2m e
    shared_keys, shared_values = shared.permute(2, 0, 3, 1, 4)  # b h r e
    near_scores = (queries.unflatten(2, (-1, width)) @ near_keys.transpose(-1, -2)).flatten(2, 3)
    scores = torch.cat((queries @ shared_keys.transpose(-1, -2), near_scores), -1)  # b h t r+w+2m

    read = F.pad(~padding, (margin, margin)).unfold(1, reach, width).repeat_interleave(width, 1)  # b t w+2m
    read = F.pad(read, (slots, 0), value=True) & ~padding[..., None]
    weights = masked_softmax(scores, read[:, None])
    if tap is not None and tap.has_listeners:
        tap(weights)
    if dropout:
        weights = F.dropout(weights, dropout)
    far, local = weights.to(shared_values.dtype).split((slots, reach), -1)
    return far @ shared_values + (local.unflatten(2, (-1, width)) @ near_values).flatten(2, 3)
