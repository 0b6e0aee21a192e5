"""Chunked scans where they could go wrong: memories that are not finite, strong decays, gradients at a reset."""

import pytest
import torch
import torch.nn.functional as F

from recollect.ops.diagonal_scan import diagonal_scan, plain_diagonal_scan
from recollect.ops.matrix_scan import delta_rule, linear_attention, plain_delta_rule, plain_linear_attention
from recollect.ops.short_convolution import plain_short_convolution, short_convolution

STEPS, RESET = 90, 40  # the reset is inside the second chunk of 32 and of 16


def inputs(strength=1.0, by_rows=False):
    torch.manual_seed(0)
    keys = F.normalize(torch.randn(2, STEPS, 2, 4), dim=-1)
    queries, values = torch.randn(2, STEPS, 2, 4), torch.randn(2, STEPS, 2, 4)
    decay = -strength * torch.rand(2, STEPS, 2, 4) if by_rows else -strength * torch.rand(2, STEPS, 2)
    first = torch.zeros(2, STEPS, dtype=torch.bool)
    first[:, RESET] = True
    return queries, keys, values, decay, torch.randn(2, 2, 4, 4), first


def attended(queries, keys, values, decay, memory, first):
    return linear_attention(queries, keys, values, decay, memory, first)


def ruled(queries, keys, values, decay, memory, first):
    return delta_rule(queries, keys, values, -0.9 * keys, decay, memory, first)


SCANS = {
    "linear attention": (attended, inputs),
    "delta rule": (ruled, inputs),
    "delta rule, rows": (ruled, lambda: inputs(by_rows=True)),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_memory_ends_at_a_reset(name, broken):
    scan, make = SCANS[name]
    *given, memory, first = make()
    want, last = scan(*given, memory, first)
    got, after = scan(*given, torch.full_like(memory, broken), first)
    assert torch.equal(got[:, RESET:], want[:, RESET:]) and torch.equal(after, last)
    assert not got[:, :RESET].isfinite().any()


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_broken_inputs_end_at_a_reset(name, broken):
    scan, make = SCANS[name]
    *given, memory, first = make()
    want, last = scan(*given, memory, first)
    for place in range(len(given)):
        dirty = [tensor.clone() for tensor in given]
        dirty[place][0, RESET - 1] = broken if place < 3 else -broken
        got, after = scan(*dirty, memory, first)
        for one, other in ((got[:, RESET:], want[:, RESET:]), (after, last)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCANS)
def test_no_gradient_passes_a_reset(name):
    scan, make = SCANS[name]
    *given, memory, first = make()
    sources = [tensor.requires_grad_() for tensor in (*given, memory)]
    outputs, last = scan(*sources, first)
    for grad in torch.autograd.grad(outputs[:, RESET:].square().sum() + last.sum(), sources):
        earlier = grad[:, :RESET] if grad.shape[1] == STEPS else grad
        assert not earlier.any(), "not even a rounding error"


def test_diagonal_scan_and_convolution_end_at_a_reset():
    first = torch.zeros(1, STEPS, dtype=torch.bool)
    first[:, RESET] = True
    x, decay = torch.randn(1, STEPS, 3), torch.rand(1, STEPS, 3)
    broken = x.clone()
    broken[:, : RESET - 1] = torch.inf
    for scan in (diagonal_scan, plain_diagonal_scan):
        got = scan(decay, broken, torch.full((1, 3), torch.nan), first)
        assert torch.equal(got[:, RESET:], scan(decay, x, torch.zeros(1, 3), first)[:, RESET:])
    weight = torch.randn(3, 4)
    got, _ = short_convolution(broken, weight, None, torch.full((1, 3, 3), torch.nan), first)
    want, _ = short_convolution(x, weight, None, torch.zeros(1, 3, 3), first)
    assert torch.equal(got[:, RESET:], want[:, RESET:])


@pytest.mark.parametrize("strength", [1e-4, 30.0, 3000.0])
def test_strong_and_weak_decays_keep_the_precision_of_float32(strength):
    queries, keys, values, decay, memory, first = inputs(strength)
    for scan, plain in ((linear_attention, plain_linear_attention), (delta_rule, plain_delta_rule)):
        reads = () if scan is linear_attention else (-0.9 * keys,)
        given = (queries, keys, values, *reads, decay, memory)
        want, _ = plain(*(tensor.double() for tensor in given), first)
        got, _ = scan(*given, first)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5 * want.abs().max().item())


@pytest.mark.parametrize("resets", [False, True])
def test_short_convolution_equals_its_twin_in_values_and_two_derivatives(resets):
    torch.manual_seed(0)
    x, weight, bias, memory = (torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                               for shape in ((2, 9, 3), (3, 4), (3,), (2, 3, 3)))  # fmt: skip
    first = torch.zeros(2, 9, dtype=torch.bool)
    first[0, 4] = first[1, 0] = resets
    found = []
    for form in (short_convolution, plain_short_convolution):
        outputs, kept = form(x, weight, bias, memory, first)
        grads = torch.autograd.grad(
            (outputs.sin().sum() + kept.cos().sum()), (x, weight, bias, memory), create_graph=True
        )
        again = torch.autograd.grad(sum(grad.square().sum() for grad in grads), (x, weight, memory))
        found.append((outputs, kept, *grads, *again))
    torch.testing.assert_close(*found)


COMPILED = {
    **{name: (scan, make) for name, (scan, make) in SCANS.items()},
    "diagonal scan": (diagonal_scan, lambda: _vectors(torch.rand(2, STEPS, 3), torch.randn(2, 3))),
    "convolution": (short_convolution, lambda: _vectors(torch.randn(3, 4), None, torch.randn(2, 3, 3))),
}


def _vectors(*others):
    return torch.randn(2, STEPS, 3), *others, inputs()[-1]


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiler_gets_chunks_and_not_single_steps(name):
    """A loop over steps has hundreds of operations to compile, which takes minutes."""
    scan, make = COMPILED[name]
    given, sizes = make(), []

    def count(module, _):
        sizes.append(sum(len(m.graph.nodes) for m in module.modules() if isinstance(m, torch.fx.GraphModule)))
        return module.forward

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(scan, backend=count, fullgraph=True)(*given), scan(*given))
    assert sum(sizes) < 2 * STEPS
