import pytest
import torch

from recollect.ops import fused_pooling as op
from recollect.ops.fused_pooling import PoolingWeights, extra_flops, fuse, fused_pooling, plain_pooling, prefers_fused


def poolings(sizes, num_tokens, dim, *, rows=True, hidden=6, dtype=torch.float64):
    def draw(*shape, scale=1.0):
        return (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()

    return [
        PoolingWeights(
            gain=draw(dim),
            shift=draw(dim),
            expand=draw(hidden, dim, scale=dim**-0.5),
            expand_bias=draw(hidden),
            contract=draw(k, hidden),
            contract_bias=draw(k),
            rows=draw(num_tokens, dim) if rows else None,
            eps=1e-6,
        )
        for k in sizes
    ]


def run(pool, tokens, parts):
    """Logits and means of every pooling, and the gradients of a fixed random sum of them."""
    results = [tensor for pooled in pool(tokens, fuse(parts)) for tensor in pooled]
    generator = torch.Generator().manual_seed(0)
    loss = sum((result * torch.randn(result.shape, generator=generator)).sum() for result in results)
    weights = [leaf for part in parts for leaf in part if isinstance(leaf, torch.Tensor)]
    sources = [tokens, *weights] if tokens.requires_grad else weights
    return results, torch.autograd.grad(loss, sources)


@pytest.fixture(params=["one block", "blocks of four"])
def blocks(request, monkeypatch):
    def four(tokens):
        p = tokens.shape[1]
        return [range(start, min(start + 4, p)) for start in range(0, p, 4)]

    if request.param == "blocks of four":
        monkeypatch.setattr(op, "_blocks", four)


@pytest.mark.parametrize("sizes", [(3,), (2, 5)])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("shape", [(9, 8), (3, 9, 8), (2, 3, 5, 16), (2, 1, 4)])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_equals_its_plain_twin_in_values_and_gradients(sizes, rows, shape, frozen, dtype, error, blocks):
    parts = poolings(sizes, *shape[-2:], rows=rows, dtype=dtype)
    tokens = torch.randn(*shape, dtype=dtype).requires_grad_(not frozen)
    fused, fused_grads = run(fused_pooling, tokens, parts)
    plain, plain_grads = run(plain_pooling, tokens, parts)
    for k, logits, means in zip(sizes, fused[::2], fused[1::2], strict=True):
        assert logits.shape == (*shape[:-2], k) and means.shape == (*shape[:-2], k, shape[-1])
    for got, want in zip(fused, plain, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got, want, atol=error, rtol=error)
    largest = max(1.0, *(grad.abs().max().item() for grad in plain_grads))
    for got, want in zip(fused_grads, plain_grads, strict=True):
        torch.testing.assert_close(got, want, atol=error * largest, rtol=error)


def test_without_gradients_the_numbers_are_the_same():
    parts, tokens = poolings((2, 5), 9, 8), torch.randn(3, 9, 8, dtype=torch.float64)
    with torch.no_grad():
        quiet = fused_pooling(tokens, fuse(parts))
    for got, want in zip(quiet, fused_pooling(tokens, fuse(parts)), strict=True):
        assert all(map(torch.equal, got, want))


def test_keeps_precision_far_from_zero():
    parts = poolings((2, 5), 9, 8, dtype=torch.float32)
    tokens = torch.randn(2, 9, 8) + 100.0
    for (logits, means), (plain_logits, plain_means) in zip(
        fused_pooling(tokens, fuse(parts)), plain_pooling(tokens, fuse(parts)), strict=True
    ):
        torch.testing.assert_close(logits, plain_logits, atol=1e-3, rtol=1e-5)
        torch.testing.assert_close(means, plain_means, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(3,), (2, 5)])
def test_follows_autocast(sizes):
    parts = poolings(sizes, 9, 16, hidden=64, dtype=torch.float32)
    tokens = torch.randn(2, 3, 9, 16, requires_grad=True)
    exact, exact_grads = run(plain_pooling, tokens, parts)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, rounded_grads = run(fused_pooling, tokens, parts)
    assert all(got.dtype == torch.float32 for got in (*rounded, *rounded_grads))
    for got, want in zip((*rounded, rounded_grads[0]), (*exact, exact_grads[0]), strict=True):
        assert not torch.equal(got, want)
        assert (got - want).norm() < 0.03 * want.norm()


def test_in_bfloat16_it_is_no_further_from_the_truth_than_its_twin():
    def rounded(part, dtype):
        made = {k: v.detach().bfloat16().to(dtype).requires_grad_() for k, v in part._asdict().items() if k != "eps"}
        return part._replace(**made)

    parts, tokens = poolings((2, 5), 64, 32), torch.randn(128, 64, 32).bfloat16()
    exact, exact_grads = run(
        plain_pooling, tokens.double().requires_grad_(), [rounded(part, torch.float64) for part in parts]
    )
    errors = {}
    for pool in (fused_pooling, plain_pooling):
        low = [rounded(part, torch.bfloat16) for part in parts]
        values, grads = run(pool, tokens.clone().requires_grad_(), low)
        pairs = zip((*values, *grads), (*exact, *exact_grads), strict=True)
        errors[pool] = max(((got.double() - want).norm() / want.norm()).item() for got, want in pairs)
    # Both sum in bfloat16, in different orders: each is a few hundredths off, and the two differ by up to a tenth.
    assert errors[fused_pooling] < max(0.05, errors[plain_pooling])


def test_pays_for_many_tokens_where_nothing_traces(monkeypatch):
    tokens = torch.zeros(2, op.MIN_SIZE // 64, 64)
    assert prefers_fused(tokens)
    assert not prefers_fused(tokens[:, 1:])
    seen = []
    torch.vmap(lambda row: seen.append(prefers_fused(row)) or row)(tokens)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert seen == [False] and not prefers_fused(tokens)


def test_flops_beyond_the_twin_are_those_counted():
    from torch.utils.flop_counter import FlopCounterMode

    for sizes, rows in (((3,), True), ((2, 5), True), ((2, 5), False)):
        weights, tokens = fuse(poolings(sizes, 9, 8, rows=rows)), torch.randn(1, 9, 8, dtype=torch.float64)
        totals = []
        for pool in (fused_pooling, plain_pooling):
            counter = FlopCounterMode(display=False)
            with counter, torch.no_grad():
                pool(tokens, weights)
            totals.append(counter.get_total_flops())
        assert totals[0] - totals[1] == extra_flops(weights, 9)


def test_poolings_that_cannot_be_fused_are_refused():
    with_rows, without = poolings((2, 5), 9, 8), poolings((2, 5), 9, 8, rows=False)
    wider = poolings((2,), 9, 8, hidden=7)
    for parts in ([with_rows[0], without[1]], [with_rows[0], wider[0]], [*with_rows, with_rows[0]], []):
        with pytest.raises(ValueError, match="one or two"):
            fuse(parts)
