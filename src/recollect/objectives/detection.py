"""Sigmoid cross-entropy with smoothed labels, for several labels at a step.

    y' = (1 - s) y + (s / k) (1 - y)
    loss = - mean over asked steps and the k labels of  y' log p + (1 - y') log (1 - p),   p = sigmoid(logit)

Source: Ryoo et al. 2023 (Token Turing Machines), appendix A.1 ("sigmoid cross-entropy loss with a label smoothing of
0.1"). That an absent label gets s / k follows Scenic, in which the paper's code is written.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.objectives.cross_entropy import require_bool


def detection_loss(logits: Tensor, targets: Tensor, mask: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the mean loss of the asked steps, in float32 or better.

    Args:
        logits: float ``[b, t, k]``.
        targets: 0 or 1, float ``[b, t, k]``; ignored outside the mask.
        mask: bool ``[b, t]``; True where an answer is asked.
        smoothing: s, in [0, 1).

    Returns:
        A scalar; 0 when nothing is asked.

    Raises:
        ValueError: the shapes do not agree, or the mask is not bool.
    """
    if targets.shape != logits.shape or mask.shape != logits.shape[:-1]:
        raise ValueError(
            f"logits {list(logits.shape)}, targets {list(targets.shape)} and mask {list(mask.shape)} do not agree: "
            "give [b, t, k], [b, t, k] and [b, t]"
        )
    require_bool(mask)
    asked = logits[mask].to(torch.promote_types(logits.dtype, torch.float32))
    labels = targets[mask].to(asked.dtype)
    if smoothing:
        labels = labels * (1 - smoothing) + (1 - labels) * (smoothing / labels.shape[-1])
    if not len(asked):
        return asked.sum()
    return F.binary_cross_entropy_with_logits(asked, labels)
