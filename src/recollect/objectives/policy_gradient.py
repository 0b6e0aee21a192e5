"""Losses of an actor-critic: policy, baseline and entropy, over the valid steps of ``[b, t]``.

    policy gradient    L = - sum_t A_t log pi(a_t | x_t)                                   (George 2021, equation 2.11)
    clipped surrogate  L = - sum_t min(ratio_t A_t, clip(ratio_t, 1 - e, 1 + e) A_t)       (PPO equation 7)
    baseline           L = 1/2 sum_t (v_t - V_t)^2                                         (George 2021, equation 2.10)
    entropy            L = - sum_t H[pi(. | x_t)]                                          (George 2021, equation 2.12)

``reduction="sum"`` is IMPALA's: the loss grows with batch and unroll, and the learning rate is chosen for that.
``"mean"`` divides by the number of valid steps. Advantages and targets are treated as constants. Invalid steps are
replaced by 0 before anything is computed, so a NaN there reaches neither the loss nor a gradient. All is computed in
float32 or better, under autocast too.

Sources: Espeholt et al. (2018), IMPALA; Schulman et al. (2017), PPO; George (master's thesis,
Freiburg 2021), section 2.3.2.
"""

from typing import Literal

import torch
from torch import Tensor

from recollect import learners

Reduction = Literal["sum", "mean"]


def policy_gradient_loss(
    log_prob: Tensor, advantages: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum"
) -> Tensor:
    """Return the policy-gradient loss, which raises the probability of actions with positive advantages.

    Args:
        log_prob: ``[b, t]``, log pi(a_t | x_t) of the learning policy.
        advantages: ``[b, t]``; constants.
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree, or an unknown reduction.
    """
    log_prob, advantages = _zero_invalid(valid, log_prob=log_prob, advantages=advantages)
    return reduce_steps(-log_prob * advantages.detach(), valid, reduction)


def clipped_surrogate_loss(
    log_ratio: Tensor,
    advantages: Tensor,
    *,
    valid: Tensor | None = None,
    clip: float = 0.2,
    reduction: Reduction = "sum",
) -> Tensor:
    """Return PPO's clipped loss, which does not reward a change of the old policy by more than ``clip``.

    On fresh data the ratio is 1 and the gradient is that of :func:`policy_gradient_loss`.

    Args:
        log_ratio: ``[b, t]``, log pi(a_t | x_t) - log pi_0(a_t | x_t), where pi_0 is the policy for which the
            advantages were computed: the learner's at the first of several passes over a batch, where the ratio is 1.
        advantages: ``[b, t]``; constants. Those of V-trace correct for the change from the acting policy to pi_0.
        valid: bool ``[b, t]``; None: all are valid.
        clip: e, change of the ratio from 1 beyond which the loss is constant.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree, an unknown reduction, or a clip that is not positive.
    """
    if not clip > 0:
        raise ValueError(f"clip={clip!r}: give a positive distance of the ratio from 1, for example 0.2")
    log_ratio, advantages = _zero_invalid(valid, log_ratio=log_ratio, advantages=advantages)
    advantages = advantages.detach()
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return reduce_steps(-gain, valid, reduction)


def baseline_loss(
    value: Tensor, targets: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum"
) -> Tensor:
    """Return half the squared distance of the value from its target.

    Args:
        value: ``[b, t]``, V_t.
        targets: ``[b, t]``, v_t; constants.
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree, or an unknown reduction.
    """
    value, targets = _zero_invalid(valid, value=value, targets=targets)
    return reduce_steps(0.5 * (targets.detach() - value).square(), valid, reduction)


def entropy_loss(entropy: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum") -> Tensor:
    """Return minus the entropy of the policy, in nats.

    Args:
        entropy: ``[b, t]``, from ``agent.distribution(policy).entropy()``.
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree, or an unknown reduction.
    """
    (entropy,) = _zero_invalid(valid, entropy=entropy)
    return reduce_steps(-entropy, valid, reduction)


def reduce_steps(losses: Tensor, valid: Tensor | None, reduction: Reduction) -> Tensor:
    """Reduce the losses ``[b, t]`` of single steps to their sum or mean over the valid ones.

    With several learners (``recollect.learners``) it is this learner's part of the mean over the rows of all of them.

    Raises:
        ValueError: an unknown reduction.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction={reduction!r}: choose 'sum' or 'mean'")
    if valid is None:
        return losses.sum() if reduction == "sum" else losses.mean() / learners.present().size
    total = torch.where(valid, losses, 0.0).sum()
    return total if reduction == "sum" else total / learners.total(valid.sum()).clamp(min=1)


def _zero_invalid(valid: Tensor | None, **tensors: Tensor) -> list[Tensor]:
    """Return the tensors in float32 or better, 0 where not valid."""
    shape = next(iter(tensors.values())).shape
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}; {next(iter(tensors))} has {list(shape)}")
    if valid is not None and (valid.dtype != torch.bool or valid.shape != shape):
        raise ValueError(f"valid is {valid.dtype} {list(valid.shape)}: give bool {list(shape)}")
    wide = [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors.values()]
    return wide if valid is None else [torch.where(valid, tensor, 0.0) for tensor in wide]
