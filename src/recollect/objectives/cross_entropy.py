"""Cross-entropy and accuracy over the asked steps of sequences.

    loss = - 1/|M| sum_{(i,s) in M} log softmax(logits[i, s])[targets[i, s]]       M: steps where mask is True

Steps outside the mask are removed, not multiplied by zero: a NaN there reaches neither value nor gradient.
An empty mask gives 0 (an unroll may have no question).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.learners import total as total_of_learners


def require_shapes(logits: Tensor, targets: Tensor, mask: Tensor) -> None:
    """Raise ``ValueError`` unless logits ``[b, t, k]``, targets ``[b, t]`` and a bool mask ``[b, t]`` agree."""
    if logits.ndim != 3 or targets.shape != logits.shape[:2] or mask.shape != logits.shape[:2]:
        raise ValueError(
            f"logits {list(logits.shape)}, targets {list(targets.shape)} and mask {list(mask.shape)} do not agree: "
            "give [b, t, classes], [b, t] and [b, t]"
        )
    require_bool(mask)


def require_bool(mask: Tensor) -> None:
    """Raise ``ValueError`` unless a mask holds bools; others would be read as indices."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask has dtype {mask.dtype}: use mask.bool()")


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    mask: Tensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Tensor:
    """Return the mean negative log-likelihood of the asked steps, in float32 or better.

    With class weights the weighted sum is divided by the number of asked steps, and not by the sum of their weights as
    in ``torch.nn.functional.cross_entropy``.

    Args:
        logits: float ``[b, t, k]``.
        targets: long ``[b, t]``; ignored outside the mask.
        mask: bool ``[b, t]``; True where an answer is asked.
        label_smoothing: share of the target that is spread over all classes.
        class_weights: ``[k]``, weight of a step by its class; None for equal weights.

    Returns:
        A scalar; 0 when nothing is asked.

    Raises:
        ValueError: the shapes do not agree, or the mask is not bool.
    """
    require_shapes(logits, targets, mask)
    asked = logits[mask].to(torch.promote_types(logits.dtype, torch.float32))
    weights = None if class_weights is None else class_weights.to(asked)
    total = F.cross_entropy(asked, targets[mask], weights, reduction="sum", label_smoothing=label_smoothing)
    return total / total_of_learners(mask.sum()).clamp(min=1)


def is_correct(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return where the step is asked and its largest logit is the target's, bool ``[b, t]``; NaN is never correct.

    Raises:
        ValueError: the shapes do not agree, or the mask is not bool.
    """
    require_shapes(logits, targets, mask)
    finite = ~logits.isnan().any(-1)
    return (logits.argmax(-1) == targets) & mask & finite


def accuracy(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the share of correct answers, a float32 scalar; 0 when nothing is asked."""
    return is_correct(logits, targets, mask).sum() / total_of_learners(mask.sum()).clamp(min=1)
