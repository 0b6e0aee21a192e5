"""Two-way attention in overlapping tiles, jointly with keys that every query reads.

A sequence is cut into home segments of w steps. A query reads its home segment and w/2 steps (at least one) on both
sides, and all shared keys, in one softmax:

    softmax( q [shared; near]^T ) [shared; near]

Source: Zhu et al., Long-Short Transformer (2021), section 3.1 (segment-wise sliding window).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.attention import masked_softmax
from recollect.layers.tap import Tap


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
    """Attention of projected heads.

    Args:
        queries: ``[b, h, t, e]``, already scaled; t is a multiple of ``width``.
        near: keys and values of the steps, ``[b, t, 2, h, e]``.
        shared: keys and values that all queries read, ``[b, r, 2, h, e]``.
        padding: bool ``[b, t]``, True where there is nothing: such a query gets zeros, such a step is not read.
        width: w.
        dropout: of the weights (pass 0 outside training).
        tap: hears the weights ``[b, h, t, r + w + 2 max(w/2, 1)]``.

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
    if tap is not None and tap.listening:
        tap(weights)
    if dropout:
        weights = F.dropout(weights, dropout)
    far, local = weights.to(shared_values.dtype).split((slots, reach), -1)
    return far @ shared_values + (local.unflatten(2, (-1, width)) @ near_values).flatten(2, 3)
