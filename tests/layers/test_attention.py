import pytest
import torch

from recollect.layers.attention import MultiHeadAttention, attend, masked_softmax
from recollect.layers.tap import listen


def literal(queries, keys, values, mask, scale):
    out = torch.zeros(*queries.shape[:-1], values.shape[-1], dtype=queries.dtype)
    for index in torch.cartesian_prod(*[torch.arange(n) for n in queries.shape[:-1]]).tolist():
        *lead, t = index
        seen = [s for s in range(keys.shape[-2]) if mask is None or mask[(*lead, t, s)]]
        if not seen:
            continue
        scores = torch.stack([scale * queries[tuple(index)] @ keys[(*lead, s)] for s in seen])
        weights = (scores - scores.max()).exp()
        weights = weights / weights.sum()
        out[tuple(index)] = sum(w * values[(*lead, s)] for w, s in zip(weights, seen, strict=True))
    return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_equals_the_literal_loop_and_empty_rows_are_zero(masked, explicit):
    queries, keys, values = (torch.randn(2, 3, n, 4, dtype=torch.float64) for n in (5, 6, 6))
    mask = torch.rand(2, 3, 5, 6) < 0.4 if masked else None
    if masked:
        mask[0, :, 2] = False
    bias = torch.zeros(1, dtype=torch.float64) if explicit else None
    out = attend(queries, keys, values, mask=mask, bias=bias, scale=0.7)
    torch.testing.assert_close(out, literal(queries, keys, values, mask, 0.7))
    if masked:
        assert (out[0, :, 2] == 0).all()


def test_fused_and_explicit_agree_in_value_and_gradient():
    leaves = [torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 6, 6)]
    mask = torch.rand(2, 1, 5, 6) < 0.5
    mask[0, 0, 0] = False
    weight = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    results = []
    for bias in (None, torch.zeros(1, dtype=torch.float64)):
        out = attend(*leaves, mask=mask, bias=bias)
        results.append((out, *torch.autograd.grad((out * weight).sum(), leaves)))
    for fused, explicit in zip(*results, strict=True):
        torch.testing.assert_close(fused, explicit)
        assert fused.isfinite().all()


def test_masked_softmax_of_nothing_is_zero_with_finite_gradient():
    scores = torch.randn(3, 4, requires_grad=True)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 2] = True
    weights = masked_softmax(scores, mask)
    assert weights[0].eq(0).all() and weights[1, 2] == 1
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()


def test_masked_softmax_ignores_nan_behind_the_mask():
    scores = torch.tensor([[1.0, torch.nan, 2.0]])
    weights = masked_softmax(scores, torch.tensor([[True, False, True]]))
    assert weights.isfinite().all() and weights[0, 1] == 0


def test_a_listening_tap_records_weights_and_changes_nothing():
    attention = MultiHeadAttention(8, 2, bias=True)
    x, mask = torch.randn(3, 5, 8), torch.ones(5, 5, dtype=torch.bool).tril()
    quiet = attention(x, x, mask=mask)
    recorded = {}
    with listen(attention, lambda name, weights: recorded.setdefault(name, weights)) as names:
        loud = attention(x, x, mask=mask)
    assert names == ["tap"] and recorded["tap"].shape == (3, 2, 5, 5)
    torch.testing.assert_close(recorded["tap"].sum(-1), torch.ones(3, 2, 5))
    assert recorded["tap"].triu(1).eq(0).all()
    torch.testing.assert_close(quiet, loud)
    assert not attention.tap.has_listeners


def test_listening_where_nothing_can_be_heard_is_an_error():
    with pytest.raises(ValueError, match="Linear has no Tap"), listen(torch.nn.Linear(1, 1), print):
        pass


def test_projected_context_can_be_reused():
    attention = MultiHeadAttention(8, 2, kv_dim=6, head_dim=3)
    x, context = torch.randn(2, 4, 8), torch.randn(2, 7, 6)
    torch.testing.assert_close(attention(x, context), attention(x, attention.project(context)))


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match="num_heads=3 does not divide dim=8"):
        MultiHeadAttention(8, 3)
