"""Attention without subtracting the largest score: blocks, hidden keys, large scores and second derivatives."""

import pytest
import torch

from recollect.ops import examples, packed_linear, unshifted_attention
from recollect.ops.unshifted_attention import attention, plain_attention


def drawn(dtype=torch.float64):
    torch.manual_seed(0)
    *floats, visible = examples.heads(9, 4, dtype)
    return [tensor.requires_grad_() for tensor in floats], visible


@pytest.mark.parametrize(("block", "large"), [
    (2, 2), (100, 200), (9 * 90, 4 * 90), (3 * 9 * 90, 2), (2**18, 2**21), (9, 2 * 9 * 90)
])  # fmt: skip
@pytest.mark.parametrize("maker", ["amd", "somebody"])
@pytest.mark.parametrize("hides", [True, False])
def test_blocks_of_any_size_give_the_same_numbers(block, large, maker, hides, monkeypatch):
    """Also by either library."""
    monkeypatch.setattr(unshifted_attention, "BLOCK", block)
    monkeypatch.setattr(unshifted_attention, "LARGE_BLOCK", large)
    monkeypatch.setattr(packed_linear, "MAKER", maker)
    (q, k, v), visible = drawn(torch.float32 if maker == "amd" else torch.float64)  # oneDNN has no float64
    results = [form(q, k, v, visible if hides else None) for form in (attention, plain_attention)]
    torch.testing.assert_close(*results)
    factor = torch.randn_like(results[0])
    grads = [torch.autograd.grad((out * factor).sum(), (q, k, v)) for out in results]
    torch.testing.assert_close(*grads)


def test_hidden_keys_have_no_gradient():
    (q, k, v), visible = drawn()
    hidden = ~visible[:, None, None].expand_as(k)
    grads = torch.autograd.grad(attention(q, k, v, visible).sum(), (k, v))
    assert all(grad[hidden].eq(0).all() for grad in grads)


@pytest.mark.parametrize("form", ["large", "negative", "nan"])
def test_sums_that_are_not_mild_use_the_fused_kernel(form, monkeypatch):
    """Exponentials that overflow or all vanish, and NaN."""
    (q, k, v), visible = drawn()
    q, k, v = (part.detach().float() for part in (q, k, v))
    shifted, seen = unshifted_attention._shifted, []
    monkeypatch.setattr(unshifted_attention, "_shifted", lambda *parts: seen.append(True) or shifted(*parts))
    if form == "large":
        q = 200 * q
    elif form == "negative":
        q, k = torch.ones_like(q), -20.0 + 0.1 * k
    else:
        k[..., 0] = torch.nan
    got, want = attention(q, k, v, visible), plain_attention(q, k, v, visible)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert want.isnan().any() == (form == "nan")
    assert seen


def test_it_can_be_differentiated_again():
    (q, k, v), visible = drawn()
    small = [tensor.detach()[:1, :1, ..., :3].requires_grad_() for tensor in (q, k, v)]
    small[0] = q.detach()[:1, :1, :2].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda *parts: attention(*parts, visible[:1, :3]), small)


@pytest.mark.parametrize("frozen", [False, True])
def test_values_that_are_made_of_keys_get_each_gradient_once(frozen):
    torch.manual_seed(0)
    queries = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=not frozen)
    keys, results = torch.randn(2, 2, 4, 7, dtype=torch.float64, requires_grad=True), []
    for form in (attention, plain_attention):
        out = form(queries, keys, keys.sin())
        (first,) = torch.autograd.grad(out.square().sum(), [keys], create_graph=True)
        results.append([out, first, *torch.autograd.grad(first.square().sum(), [keys])])
    torch.testing.assert_close(*results)
