"""Losses on targets from the ground truth of a world: what must be remembered, and when it could be seen.

    label        L = sum_t -log softmax(l_t)[label_t]              label: what must be remembered at step t
    attention    L = sum_t -log max(mass_t, 1e-6)                  mass: attention to the steps where it could be seen

``sum`` and ``mean`` over the steps that have a target, as in ``policy_gradient.py``; several labels of a step count one
by one. In float32 or better. Both are targets and no inputs: a trained agent acts without them.

Source: the loss on attention is that of AttentionTuner (Yue et al. 2024, Learning memory mechanisms for decision
making through demonstrations), with the mean over heads and layers in place of one chosen head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.objectives.policy_gradient import Reduction, reduce_steps

LEAST_MASS = 1e-6
"""Smaller masses are raised to this, so that no loss is infinite."""


def label_loss(logits: Tensor, labels: Tensor, *, reduction: Reduction = "sum") -> Tensor:
    """Return the softmax cross-entropy of labels.

    Args:
        logits: float ``[b, t, labels]``; ``[b, t, q, labels]`` for q labels at a step.
        labels: long ``[b, t]`` or ``[b, t, q]``; -1 where there is no target.
        reduction: ``sum`` or ``mean`` over the labels that are not -1.

    Returns:
        A scalar; 0 when no step has a target.

    Raises:
        ValueError: shapes that do not agree, or an unknown reduction.
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits {list(logits.shape)} and labels {list(labels.shape)} do not agree: give one logit more axis, the "
            "classes"
        )
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-1, reduction="none")
    return reduce_steps(losses.view(labels.shape), labels >= 0, reduction)


def attention_loss(mass: Tensor, valid: Tensor, *, reduction: Reduction = "sum") -> Tensor:
    """Return minus the log of the attention to the target steps.

    Args:
        mass: float ``[b, t]``, in [0, 1].
        valid: bool ``[b, t]``, steps that have a target within reach.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.
    """
    mass = torch.where(valid, mass.to(torch.promote_types(mass.dtype, torch.float32)), 1.0)
    return reduce_steps(-mass.clamp(min=LEAST_MASS).log(), valid, reduction)


def interval_mass(weights: Tensor, places: tuple[Tensor, Tensor], start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention to an interval of steps, and whether any place holds one of them.

    Args:
        weights: ``[b, t, s]``, a softmax over the places.
        places: the first step of each place and the one after its last, long, broadcastable to ``[b, t, s]``;
            negative for empty places.
        start: long ``[b, t]``, first step of the interval; negative for none.
        stop: long ``[b, t]``, the step after its last.

    Returns:
        The sum of the weights of all places that overlap the interval, ``[b, t]``, and bool ``[b, t]``.
    """
    first, end = places
    start, stop = start[..., None], stop[..., None]
    inside = (first >= 0) & (start >= 0) & (first < stop) & (end > start)
    return (weights * inside).sum(-1), inside.any(-1)
