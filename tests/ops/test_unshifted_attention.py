"""Attention without subtracting the largest score: blocks, what is hidden, large scores and second derivatives."""

import pytest
import torch

from recollect.ops import examples, unshifted_attention
from recollect.ops.unshifted_attention import attention, plain_attention


def drawn():
    torch.manual_seed(0)
    *floats, visible = examples.heads(9, 4, torch.float64)
    return [tensor.requires_grad_() for tensor in floats], visible


@pytest.mark.parametrize("block", [1, 100, 9 * 90, 3 * 9 * 90, 2**18])
@pytest.mark.parametrize("hides", [True, False])
def test_blocks_of_any_size_give_the_same_numbers(block, hides, monkeypatch):
    monkeypatch.setattr(unshifted_attention, "BLOCK", block)
    (q, k, v), visible = drawn()
    results = [form(q, k, v, visible if hides else None) for form in (attention, plain_attention)]
    torch.testing.assert_close(*results)
    factor = torch.randn_like(results[0])
    grads = [torch.autograd.grad((out * factor).sum(), (q, k, v)) for out in results]
    torch.testing.assert_close(*grads)


def test_what_is_hidden_has_no_gradient_and_large_scores_are_borne():
    (q, k, v), visible = drawn()
    hidden = ~visible[:, None, None].expand_as(k)
    grads = torch.autograd.grad(attention(q, k, v, visible).sum(), (k, v))
    assert all(grad[hidden].eq(0).all() for grad in grads)
    large = 200 * q.detach()
    torch.testing.assert_close(attention(large, k, v, visible), plain_attention(large, k, v, visible))
    assert not unshifted_attention._is_mild(large, k)
    assert not unshifted_attention._is_mild(q, k.detach().where(visible[:, None, None], torch.nan))


def test_it_can_be_differentiated_again():
    (q, k, v), visible = drawn()
    small = [tensor.detach()[:1, :1, ..., :3].requires_grad_() for tensor in (q, k, v)]
    small[0] = q.detach()[:1, :1, :2].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda *parts: attention(*parts, visible[:1, :3]), small)
