"""Loss and score of answers that are classes (integer targets) or values (float targets).

    classes   loss   cross-entropy, each step weighted by its class      score   1 where the largest logit is right
    values    loss   mean over k of (y - target)^2                       score   1 - that

With values that have variance 1 the mean score is 1 - (mean squared error) / variance.
"""

import torch
from torch import Tensor

from recollect.learners import total
from recollect.objectives.cross_entropy import cross_entropy, is_correct, require_shapes


def answer_loss(outputs: Tensor, targets: Tensor, mask: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Return the mean loss of the asked steps, in float32 or better.

    Args:
        outputs: float ``[b, t, k]``.
        targets: long ``[b, t]`` or float ``[b, t, k]``; ignored outside the mask.
        mask: bool ``[b, t]``; True where an answer is asked.
        class_weights: ``[k]``, as in :func:`cross_entropy`; None for equal weights. Not used for values.

    Returns:
        A scalar; 0 when nothing is asked.

    Raises:
        ValueError: the shapes do not agree, or the mask is not bool.
    """
    if not targets.is_floating_point():
        return cross_entropy(outputs, targets, mask, class_weights=class_weights)
    squares = squared_error(outputs, targets, mask)
    return squares.sum() / total(mask.sum()).clamp(min=1)


def answer_score(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the score of every step, float32 ``[b, t]``; 0 where nothing is asked. Raises as :func:`answer_loss`."""
    if not targets.is_floating_point():
        return is_correct(outputs, targets, mask).float()
    score = torch.zeros(mask.shape, device=outputs.device)
    score[mask] = 1 - squared_error(outputs, targets, mask).float()
    return score


def mean_score(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the mean score of the asked steps, a float32 scalar; 0 when nothing is asked."""
    return answer_score(outputs, targets, mask).sum() / total(mask.sum()).clamp(min=1)


def squared_error(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the squared error of each asked step, a mean over its values, in float32 or better: ``[asked steps]``."""
    if targets.shape != outputs.shape:
        raise ValueError(
            f"outputs {list(outputs.shape)} and values {list(targets.shape)} do not agree: give both [b, t, k]"
        )
    require_shapes(outputs, targets[..., 0], mask)
    asked = outputs[mask].to(torch.promote_types(outputs.dtype, torch.float32))
    return (asked - targets[mask]).square().mean(-1)
