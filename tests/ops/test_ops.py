"""Every row of the table: the kernel equals its plain twin, and calls it where it has to."""

from types import SimpleNamespace

import pytest
import torch

from recollect.ops import OPS, copying, fused_pooling, packed_linear, recurrent_scans, torch_internals

CACHED = (fused_pooling.is_available, packed_linear.is_available, recurrent_scans.is_available)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.06}


@pytest.fixture
def bare_torch(monkeypatch):
    """A torch without private interfaces."""
    bare = SimpleNamespace(mkldnn=SimpleNamespace(), aten=SimpleNamespace())
    monkeypatch.setattr(torch, "ops", bare)
    monkeypatch.delattr(torch, "_foreach_copy_")
    monkeypatch.delattr(torch._C, "_are_functorch_transforms_active")
    monkeypatch.setattr(packed_linear, "_ops", bare.mkldnn)
    monkeypatch.setattr(recurrent_scans, "aten", bare.aten)
    for cached in CACHED:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in CACHED:
        cached.cache_clear()


def outcome(op, implementation, tensors):
    """Results, and gradients of a fixed sum of them."""
    if not op.differentiable:
        with torch.no_grad():
            return list(op.use(implementation, *tensors))
    sources = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    results = op.use(implementation, *sources)
    factors = [torch.linspace(-1, 1, result.numel()).view_as(result) for result in results]
    loss = sum((result * factor).sum() for result, factor in zip(results, factors, strict=True))
    floats = [source for source in sources if source.requires_grad]
    return [*results, *torch.autograd.grad(loss, floats, materialize_grads=True)]


def assert_equal(op, tensors, dtype):
    ours, plain = (outcome(op, implementation, tensors) for implementation in (op.kernel, op.twin))
    for one, other in zip(ours, plain, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        largest = max(1.0, other.abs().max().item()) if other.numel() else 1.0
        torch.testing.assert_close(one / largest, other / largest, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("maker", ["amd", "intel"])
def test_kernel_equals_twin(name, dtype, maker, monkeypatch):
    """On the path of either processor, which is a choice of speed; only large float32 matrices depend on their size."""
    monkeypatch.setattr(packed_linear, "MAKER", maker)
    torch.manual_seed(0)
    for rows, width in [(1, 6), (5, 24), (130, 24), *([(9, 520)] if dtype == torch.float32 else [])]:
        assert_equal(OPS[name], OPS[name].example(rows, width, dtype), dtype)


@pytest.mark.parametrize("name", OPS)
def test_a_torch_without_private_interfaces_runs_the_twin(name, bare_torch):
    op = OPS[name]
    assert not op.is_available()
    tensors = op.example(130, 24, torch.float32)
    for one, other in zip(outcome(op, op.kernel, tensors), outcome(op, op.twin, tensors), strict=True):
        if op.differentiable:
            assert torch.equal(one, other)  # the twin itself
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OPS)
def test_this_torch_has_what_every_kernel_needs(name):
    assert OPS[name].is_available()


# torch has no second derivative of the twin of table-sums; test_table_sums.py differentiates the kernel twice.
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.differentiable and name != "table-sums"])
def test_second_derivatives_equal_those_of_the_twin(name):
    op = OPS[name]
    tensors = op.example(130, 6, torch.float64)
    found = []
    for implementation in (op.kernel, op.twin):
        sources = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
        floats = [source for source in sources if source.requires_grad]
        loss = sum(result.sin().sum() for result in op.use(implementation, *sources))
        grads = torch.autograd.grad(loss, floats, create_graph=True, materialize_grads=True)
        size = sum(grad.square().sum() for grad in grads)
        found.append([*grads, *torch.autograd.grad(size, floats, materialize_grads=True)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.differentiable])
def test_function_transforms_see_the_twin(name):
    op = OPS[name]
    tensors = op.example(130, 6, torch.float64)
    floats = [index for index, tensor in enumerate(tensors) if tensor.is_floating_point()]

    def total(*changed):
        given = list(tensors)
        for index, tensor in zip(floats, changed, strict=True):
            given[index] = tensor
        return sum(result.square().sum() for result in op.use(op.kernel, *given))

    values = [tensors[index] for index in floats]
    transformed = torch.func.grad(total, argnums=tuple(range(len(values))))(*values)
    sources = [value.clone().requires_grad_() for value in values]
    for one, other in zip(transformed, torch.autograd.grad(total(*sources), sources), strict=True):
        torch.testing.assert_close(one, other)
    stacked = [torch.stack((value, 2 * value)) for value in values]
    rows = [total(*row) for row in zip(*stacked, strict=True)]
    torch.testing.assert_close(torch.vmap(total)(*stacked), torch.stack(rows))


def test_tracing_is_detected(monkeypatch):
    assert torch_internals.can_detect_transforms() and not torch_internals.is_traced()
    seen = []
    torch.vmap(lambda x: seen.append(torch_internals.is_traced()) or x)(torch.zeros(2))
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        seen.append(torch_internals.is_traced())
    with monkeypatch.context() as patch:
        patch.delattr(torch._C, "_are_functorch_transforms_active")
        seen.append(torch_internals.is_traced())
        assert not torch_internals.can_detect_transforms()
    assert seen == [True, True, True]


def test_copies_reach_tensors_of_other_dtypes():
    targets = [torch.zeros(3), torch.zeros(2, dtype=torch.float64)]
    copying.copy_each(targets, [torch.ones(3, dtype=torch.float64), torch.ones(2)])
    assert all(target.eq(1).all() for target in targets)
