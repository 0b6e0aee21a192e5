"""V-trace: value targets and advantages from transitions of an older policy.

For transitions t = 0 .. T - 1 with importance ratios pi(a_t | x_t) / mu(a_t | x_t) = exp(log_ratio_t):

    rho_t   = min(rho_clip, ratio_t)                  c_t = lambda min(c_clip, ratio_t)
    delta_t = rho_t (r_t + gamma_t V_{t+1} - V_t)                                  V_T = bootstrap
    v_t     = V_t + delta_t + gamma_t c_t (v_{t+1} - V_{t+1})                      v_T = bootstrap
    A_t     = min(pg_rho_clip, ratio_t) (r_t + gamma_t v_{t+1} - V_t)

Source: Espeholt et al. (2018), IMPALA, section 4.1 and remark 2 (lambda); George (master's thesis, Freiburg
2021), equations 2.7 (v_t as a sum), 2.9 (as a recursion) and 2.11 (A_t). Every transition has its own gamma_t: it is 0
at a true end; where a time limit cut the episode it keeps its value, and V_{t+1} is then the value of the final
observation.

There is no loop over time: with u_t = v_t - V_t and g_t = gamma_t c_t the recursion is linear, u_t = delta_t +
g_t u_{t+1}, and such maps compose. Each round doubles the number of steps in every u_t, so T steps take log2(T) rounds
of a few operations on ``[b, t]``, on any device.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """Value targets and advantages of V-trace."""

    targets: Tensor
    """v_t, ``[b, t]``: targets of the value; 0 where the transition is not valid."""
    advantages: Tensor
    """A_t, ``[b, t]``: advantages of the actions; 0 where the transition is not valid."""


@torch.no_grad()
def vtrace(  # noqa: PLR0913 (the six tensors of the equations and their four settings)
    log_ratio: Tensor,
    reward: Tensor,
    discount: Tensor,
    value: Tensor,
    bootstrap: Tensor,
    *,
    valid: Tensor | None = None,
    rho_clip: float | None = 1.0,
    c_clip: float = 1.0,
    pg_rho_clip: float | None = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """Compute targets and advantages, as constants, in float32 or better.

    Args:
        log_ratio: ``[b, t]``, log pi(a_t | x_t) - log mu(a_t | x_t).
        reward: ``[b, t]``, r_t, which follows action t.
        discount: ``[b, t]``, gamma_t; 0 where transition t ends its episode. The value after a zero discount is not
            read.
        value: ``[b, t]``, V_t of the observation before action t.
        bootstrap: ``[b]``, V of the observation after the last transition.
        valid: bool ``[b, t]``; False where t is not a transition (its observation was the last of an episode). Such
            an entry has no delta and ends the trace; only its value is read, as V_{t+1} of the previous transition.
            None: all are valid.
        rho_clip: bound on the ratios in delta; None does not bound.
        c_clip: bound on the ratios that carry later deltas back.
        pg_rho_clip: bound on the ratios in the advantages; None does not bound.
        lambda_: factor of what is carried back, in [0, 1]; 0 gives one-step targets.

    Raises:
        ValueError: shapes that do not agree, a mask that is not bool, or a clip out of range.
    """
    _check(log_ratio, (reward, discount, value), bootstrap, valid)
    if not 0 <= lambda_ <= 1:
        raise ValueError(f"lambda_={lambda_!r}: give a share in [0, 1]")
    for name, clip in (("rho_clip", rho_clip), ("c_clip", c_clip), ("pg_rho_clip", pg_rho_clip)):
        if clip is not None and not clip > 0:
            raise ValueError(f"{name}={clip!r}: give a positive bound")
    dtype = torch.promote_types(value.dtype, torch.float32)
    reward, discount, value = reward.to(dtype), discount.to(dtype), value.to(dtype)
    ratio = log_ratio.to(dtype).exp()
    following = torch.cat((value[:, 1:], bootstrap.to(dtype)[:, None]), 1)  # V_{t+1}
    ahead = _discounted(discount, following)
    delta = _at_most(ratio, rho_clip) * (reward + ahead - value)
    carry = discount * _at_most(ratio, c_clip)
    if lambda_ != 1:
        carry = carry * lambda_
    if valid is not None:
        delta, carry = torch.where(valid, delta, 0.0), torch.where(valid, carry, 0.0)
    correction = _backward_sums(delta, carry)  # v_t - V_t
    later = torch.cat((correction[:, 1:], torch.zeros_like(correction[:, :1])), 1)
    targets = value + correction
    advantages = _at_most(ratio, pg_rho_clip) * (reward + ahead + discount * later - value)
    if valid is not None:
        targets, advantages = torch.where(valid, targets, 0.0), torch.where(valid, advantages, 0.0)
    return VTrace(targets, advantages)


def _backward_sums(delta: Tensor, carry: Tensor) -> Tensor:
    """Return u ``[b, t]`` with ``u_t = delta_t + carry_t u_{t+1}`` and 0 after the end."""
    steps, reach = delta.shape[1], 1
    sums = delta
    while reach < steps:
        # sums_t covers t .. t + reach - 1, and carry_t is the factor from t + reach back to t.
        near = torch.addcmul(sums[:, :-reach], carry[:, : steps - reach], sums[:, reach:])
        sums = torch.cat((near, sums[:, -reach:]), 1)
        carry = carry[:, :-reach] * carry[:, reach:]
        reach *= 2
    return sums


def _discounted(discount: Tensor, value: Tensor) -> Tensor:
    # Selected, not multiplied: the value after a true end may be NaN.
    return torch.where(discount == 0, 0.0, discount * value)


def _at_most(ratio: Tensor, clip: float | None) -> Tensor:
    return ratio if clip is None else ratio.clamp(max=clip)


def _check(log_ratio: Tensor, others: tuple[Tensor, Tensor, Tensor], bootstrap: Tensor, valid: Tensor | None) -> None:
    shape = log_ratio.shape
    if log_ratio.ndim != 2 or 0 in shape:
        raise ValueError(f"log_ratio has shape {list(shape)}: give [b, t], with at least one transition")
    for name, tensor in zip(("reward", "discount", "value"), others, strict=True):
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}; log_ratio has {list(shape)}")
    if bootstrap.shape != shape[:1]:
        raise ValueError(f"bootstrap has shape {list(bootstrap.shape)}: give one value per row, [{shape[0]}]")
    if valid is not None and (valid.dtype != torch.bool or valid.shape != shape):
        raise ValueError(f"valid is {valid.dtype} {list(valid.shape)}: give bool {list(shape)}")
