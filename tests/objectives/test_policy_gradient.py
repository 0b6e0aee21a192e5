import math

import pytest
import torch

from recollect.objectives.policy_gradient import (
    baseline_loss,
    clipped_surrogate_loss,
    entropy_loss,
    policy_gradient_loss,
)

VALID = torch.tensor([[True, True, False, True], [False, True, True, True], [True, True, True, False]])
LOSSES = {
    "policy": lambda a, b, **options: policy_gradient_loss(a, b, **options),
    "surrogate": lambda a, b, **options: clipped_surrogate_loss(a, b, **options),
    "baseline": lambda a, b, **options: baseline_loss(a, b, **options),
    "entropy": lambda a, b, **options: entropy_loss(a, **options),
}
LITERAL = {
    "policy": lambda a, b: -a * b,
    "surrogate": lambda a, b: -min(math.exp(a) * b, min(max(math.exp(a), 0.8), 1.2) * b),
    "baseline": lambda a, b: 0.5 * (b - a) ** 2,
    "entropy": lambda a, b: -a,
}


def two():
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(3, 4, dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("valid", [None, VALID])
def test_every_loss_is_the_sum_or_mean_of_its_formula_over_the_valid_steps(name, reduction, valid):
    a, b = two()
    chosen = torch.ones(3, 4, dtype=torch.bool) if valid is None else valid
    terms = [LITERAL[name](x, y) for x, y in zip(a[chosen].tolist(), b[chosen].tolist(), strict=True)]
    expected = sum(terms) / (len(terms) if reduction == "mean" else 1)
    loss = LOSSES[name](a, b, valid=valid, reduction=reduction)
    torch.testing.assert_close(loss.item(), expected)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_nan_in_a_step_that_is_not_valid_reaches_neither_loss_nor_gradient(name, reduction):
    a, b = two()
    loss = LOSSES[name](a, b, valid=VALID, reduction=reduction)
    (expected,) = torch.autograd.grad(loss, a)
    dirty_a = torch.where(VALID, a.detach(), torch.nan).requires_grad_()
    dirty_b = torch.where(VALID, b, torch.inf)
    dirty = LOSSES[name](dirty_a, dirty_b, valid=VALID, reduction=reduction)
    (got,) = torch.autograd.grad(dirty, dirty_a)
    assert torch.equal(dirty, loss)
    assert torch.equal(got, expected)
    assert not got[~VALID].any()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_no_valid_step_is_no_loss(name, reduction):
    a, b = two()
    loss = LOSSES[name](a, b, valid=torch.zeros(3, 4, dtype=torch.bool), reduction=reduction)
    loss.backward()
    assert loss.item() == 0
    assert not a.grad.any()


@pytest.mark.parametrize("name", ["policy", "surrogate", "baseline"])
def test_advantages_and_targets_are_constants(name):
    a, b = two()
    b.requires_grad_()
    LOSSES[name](a, b).backward()
    assert b.grad is None
    assert a.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_float32_under_autocast(name):
    a, b = (tensor.detach().bfloat16() for tensor in two())
    with torch.autocast("cpu", torch.bfloat16):
        narrow = LOSSES[name](a, b)
    assert narrow.dtype == torch.float32
    assert torch.equal(narrow, LOSSES[name](a.float(), b.float()))


def test_on_fresh_data_the_surrogate_is_the_policy_gradient():
    log_prob, advantages = two()
    (expected,) = torch.autograd.grad(policy_gradient_loss(log_prob, advantages), log_prob)
    surrogate = clipped_surrogate_loss(log_prob - log_prob.detach(), advantages)
    (got,) = torch.autograd.grad(surrogate, log_prob)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(surrogate.detach(), -advantages.sum())


def test_the_surrogate_pays_nothing_beyond_the_clip_but_takes_back_what_went_wrong():
    log_ratio = torch.tensor([[1.5, 1.5, 0.5, 0.5]]).log().requires_grad_()
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    clipped_surrogate_loss(log_ratio, advantages, clip=0.2).backward()
    assert (log_ratio.grad != 0).tolist() == [[False, True, True, False]]


def test_mistakes_are_named():
    a, b = two()
    with pytest.raises(ValueError, match=r"advantages has shape \[3, 3\]; log_prob has \[3, 4\]"):
        policy_gradient_loss(a, b[:, :3])
    with pytest.raises(ValueError, match=r"reduction='max': choose 'sum' or 'mean'"):
        entropy_loss(a, reduction="max")
    with pytest.raises(ValueError, match=r"valid is torch.int64 \[3, 4\]: give bool"):
        baseline_loss(a, b, valid=VALID.long())
    with pytest.raises(ValueError, match=r"clip=0"):
        clipped_surrogate_loss(a, b, clip=0)
