import pytest
import torch
import torch.nn.functional as F

from recollect.ops import linear as module
from recollect.ops import packed_linear as products
from recollect.ops.linear import MIN_ROWS, Linear, linear


@pytest.fixture(autouse=True, params=["amd", "intel", "other"])
def maker(request, monkeypatch):
    """Every path on every machine: the choice is a matter of speed."""
    monkeypatch.setattr(products, "MAKER", request.param)
    return request.param


def gradients(fn, x, weight, bias, cotangent):
    variables = [leaf for leaf in (x, weight, bias) if leaf is not None]
    out = fn(x, weight, bias)
    return [out, *torch.autograd.grad((out * cotangent).sum(), variables)]


@pytest.mark.parametrize("shape", [(MIN_ROWS,), (4, MIN_ROWS), (3,), (2, 0)])
@pytest.mark.parametrize("biased", [False, True])
def test_equals_torch_in_value_and_gradient(shape, biased):
    x = torch.randn(*shape, 24, requires_grad=True)
    weight = torch.randn(17, 24, requires_grad=True)
    bias = torch.randn(17, requires_grad=True) if biased else None
    cotangent = torch.randn(*shape, 17)
    for one, other in zip(
        gradients(linear, x, weight, bias, cotangent), gradients(F.linear, x, weight, bias, cotangent), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_reads_views_and_skips_unneeded_gradients():
    x = torch.randn(24, 2 * MIN_ROWS)[:, ::2].t()
    weight = torch.randn(24, 17, requires_grad=True)
    out = linear(x, weight.t())
    torch.testing.assert_close(out, x @ weight, rtol=1e-5, atol=1e-4)
    (grad,) = torch.autograd.grad(out.sum(), weight)
    torch.testing.assert_close(grad, x.sum(0)[:, None].expand_as(weight), rtol=1e-5, atol=1e-4)


def test_can_be_differentiated_twice():
    x = torch.randn(MIN_ROWS, 5, requires_grad=True)
    weight = torch.randn(4, 5, requires_grad=True)
    results = []
    for fn in (linear, F.linear):
        (grad,) = torch.autograd.grad(fn(x, weight).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(grad.square().sum(), weight)[0])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-2)


def test_many_rows_take_the_fast_path_where_there_is_one(maker):
    weight = torch.randn(4, 8)
    there = maker == "amd" and torch.backends.mkldnn.is_available()
    assert module._prefers_onednn(torch.randn(MIN_ROWS, 8), weight) == there
    assert not module._prefers_onednn(torch.randn(MIN_ROWS - 1, 8), weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert not module._prefers_onednn(torch.randn(MIN_ROWS, 8), weight)
    assert not module._prefers_onednn(torch.randn(MIN_ROWS, 8, dtype=torch.float64), weight.double())


def test_exported_programs_take_any_number_of_rows():
    program = torch.export.export(
        Linear(8, 5), (torch.randn(2 * MIN_ROWS, 8),), dynamic_shapes={"input": {0: torch.export.Dim("rows", min=1)}}
    )
    assert program.module()(torch.randn(3, 8)).shape == (3, 5)


@pytest.mark.parametrize("rows", [1, 16, 300])
@pytest.mark.parametrize("uses", [1, 99])
def test_products_equal_torch_by_every_path(rows, uses):
    x, weight, bias, z = torch.randn(rows, 24), torch.randn(17, 24), torch.randn(17), torch.randn(rows, 17)
    product = products.PackedLinear(weight, bias, rows=rows, uses=uses)
    torch.testing.assert_close(product(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(product.plus(x, z), F.linear(x, weight) + z, rtol=1e-5, atol=1e-4)


def test_a_stream_of_few_rows_takes_more_rows_too():
    weight, bias = torch.randn(64, 128), torch.randn(64)
    product = products.PackedLinear(weight, bias, rows=1, uses=1000)
    for rows in (1, 3, 32, 33, 100):
        x, z = torch.randn(rows, 128), torch.randn(rows, 64)
        torch.testing.assert_close(product(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(product.plus(x, z), F.linear(x, weight) + z, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_keep_their_dtype_under_autocast(dtype):
    x, weight, bias, z = (torch.randn(*shape, dtype=dtype) for shape in ((3, 24), (17, 24), (17,), (3, 17)))
    with torch.autocast("cpu", torch.bfloat16):
        for uses in (1, 99):
            product = products.PackedLinear(weight, bias, rows=3, uses=uses)
            assert product(x).dtype == product.plus(x, z).dtype == dtype
