"""Segments of episodes that are summarised when they end, and the newest of which every later step may read.

A segment is c consecutive steps of one episode, counted from the episode's start. When it ends it becomes r
landmarks; an episode cut short leaves none. Landmarks stand in one list in order of time: those kept from before
the call (right-aligned), then those of segments that end in the call. Segments of one episode follow each other
without gaps, so what a query may read is always the newest part of the list as of its time.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from recollect.layers.attention import masked_softmax
from recollect.layers.window_attention import steps_since_first


class SegmentPlan(NamedTuple):
    """Which entry goes where in one call of t steps in which at most f segments end; s, c, r as below."""

    visible: Tensor
    """Bool ``[b, t, (s+f)*r]``: which landmarks a query may read."""
    age: Tensor
    """Long ``[b, t]``: steps of the running episode before each step."""
    distance: Tensor
    """Long ``[b, t, (s+f)*r]``: how many landmarks are newer; within range also where the mask forbids."""
    members: Tensor
    """Long ``[b, f*c]``: the steps of each segment that ends, as places in (c-1 cached steps, this call)."""
    ended: Tensor
    """Bool ``[b, f]``: whether there is such a segment."""
    kept: Tensor
    """Long ``[b, s*r]``: places in the list of the landmarks that are kept after the call."""
    kept_count: Tensor
    """Long ``[b]``: how many of them are in use."""
    steps: Tensor
    """Long ``[b]``: steps of the running episode after the call."""


def plan_segments(is_first: Tensor, steps: Tensor, chunk_len: int, capacity: int, slots: int) -> SegmentPlan:
    """Lay out one call.

    Args:
        is_first: bool ``[b, t]``.
        steps: long ``[b]``, steps of the running episode before the call; 0 where it begins with ``is_first``.
        chunk_len: c.
        capacity: s, segments whose landmarks are kept.
        slots: r, landmarks of a segment.
    """
    batch, t = is_first.shape
    device = is_first.device
    # A segment takes c steps, at most c - 1 of them before the call, so no more than this can end in it.
    most = (t + chunk_len - 1) // chunk_len
    since = steps_since_first(is_first, steps)  # b t
    ends = since % chunk_len == chunk_len - 1
    total = ends.long().cumsum(1)
    before = total - ends.long()  # segments that ended in this call before step t

    # Where each of them ends; steps that end nothing are written into a spare last column.
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
        kept_count=(after // chunk_len).clamp(max=capacity) * slots,
        steps=after,
    )


def project_segments(pairs: Tensor, logits: Tensor, num_heads: int, mask: Tensor | None = None) -> Tensor:
    """Dynamic projection: per head, r weighted means of the steps of a segment.

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
    """``[b, s, d], [b, p] -> [b, p, d]``."""
    return entries.gather(1, places[..., None].expand(-1, -1, entries.shape[-1]))
