"""Attention to a set of landmarks and to a sliding window in one softmax."""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.attention import masked_softmax
from recollect.layers.tap import Tap
from recollect.layers.window_attention import to_full


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
    """``softmax([far, near]) [far values, near values]``.

    Args:
        far_scores: ``[h, b, t, l]``, of landmarks.
        near_scores: ``[h, b, t, w + 1]``, in window layout (layers/window_attention.py).
        far_values: ``[h, b, l, e]``.
        near_values: ``[h, b, w + t, e]``.
        readable: bool ``[b, t, l + w + 1]``.
        dropout: of the weights (pass 0 outside training).
        tap: hears the weights ``[b, h, t, l + w + 1]``, the newest step last.

    Returns:
        ``[h, b, t, e]``.
    """
    weights = masked_softmax(torch.cat((far_scores, near_scores), -1), readable)
    if tap is not None and tap.listening:
        tap(weights.transpose(0, 1))
    if dropout:
        weights = F.dropout(weights, dropout)
    far, near = weights.to(near_values.dtype).split((far_scores.shape[-1], near_scores.shape[-1]), -1)
    return far @ far_values + to_full(near) @ near_values
