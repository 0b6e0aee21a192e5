import pytest
import torch

from recollect.ops import short_softmax
from recollect.ops.weighted_softmax import plain_weighted_softmax, prefers_chunks_last, weighted_softmax


@pytest.mark.parametrize("dim", [-2, -1])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_equals_its_twin_where_scores_are_far_apart(heads, steps, dim):
    scores = (50 * torch.randn(2, 3, 4, steps, 7)).transpose(-2, dim).requires_grad_()
    weights = torch.randn(2, heads, 4, 7, requires_grad=True)
    cotangent = torch.randn_like(scores)
    results = []
    for fn in (weighted_softmax, plain_weighted_softmax):
        found = fn(scores, weights, dim)
        results.append((found, *torch.autograd.grad((found * cotangent).sum(), (scores, weights))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [-2, -1])
def test_can_be_differentiated_twice(dim):
    scores = torch.randn(2, 3, 2, 3, 4, dtype=torch.float64).transpose(-2, dim).requires_grad_()
    weights = torch.randn(2, 1, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(weighted_softmax, (scores, weights, dim))
    assert torch.autograd.gradgradcheck(weighted_softmax, (scores, weights, dim))
    assert torch.autograd.gradgradcheck(weighted_softmax, (scores, weights.detach(), dim))


def test_only_weights_may_learn():
    scores, weights = torch.randn(1, 2, 3, 2, 4), torch.randn(1, 1, 3, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(weighted_softmax(scores, weights)[:, :, :, 0].sum(), weights)
    torch.testing.assert_close(grad, scores.softmax(-2)[:, :, :, 0].sum(1, keepdim=True))


def test_scores_and_weights_are_not_changed():
    scores, weights = torch.randn(2, 3, 4), torch.randn(2, 4)
    before = scores.clone(), weights.clone()
    weighted_softmax(scores, weights)
    assert torch.equal(scores, before[0]) and torch.equal(weights, before[1])


def test_chunks_are_last_where_steps_are_few(monkeypatch):
    monkeypatch.setattr(short_softmax, "REGISTER", 64)
    assert prefers_chunks_last(torch.zeros(1, 16, 15, 4))
    assert not prefers_chunks_last(torch.zeros(1, 16, 16, 4))  # as many as a register holds
    assert not prefers_chunks_last(torch.zeros(1, 16, 8, 4, dtype=torch.float64))
    assert not prefers_chunks_last(torch.zeros(1, 3, 4, 4))  # more steps than chunks
    assert not prefers_chunks_last(torch.zeros(1, 16, 2, 4, device="meta"))
    monkeypatch.setattr(short_softmax, "REGISTER", 0)
    assert not prefers_chunks_last(torch.zeros(1, 16, 2, 4))


def test_compiles_as_a_whole():
    scores, weights = torch.randn(2, 3, 5, 4), torch.rand(2, 3, 4)
    compiled = torch.compile(weighted_softmax, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores, weights), plain_weighted_softmax(scores, weights))
    torch.compiler.reset()  # its caches would run callbacks in later tests, when tensors are freed
