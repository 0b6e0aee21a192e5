import pytest
import torch

from recollect.ops import short_softmax as module
from recollect.ops.short_softmax import MIN_ROWS, softmax


@pytest.fixture(autouse=True, params=[64, 32, 0])
def register(request, monkeypatch):
    """Every path on every machine: the choice is a matter of speed."""
    monkeypatch.setattr(module, "REGISTER", request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(MIN_ROWS, 1), (MIN_ROWS, 3), (4, MIN_ROWS, 8), (2, MIN_ROWS, 15), (MIN_ROWS, 16)])
def test_equals_torch_where_scores_are_far_apart(shape, dtype):
    scores = (50 * torch.randn(shape, dtype=dtype)).requires_grad_()
    cotangent = torch.randn(shape, dtype=dtype)
    results = []
    for fn in (softmax, module.plain_softmax):
        weights = fn(scores)
        results.append((weights, torch.autograd.grad((weights * cotangent).sum(), scores)[0]))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_hidden_entries_are_exactly_0_and_rows_never_mix():
    scores = torch.randn(MIN_ROWS, 6)
    scores[:, 2] = torch.finfo(torch.float32).min
    scores[3], scores[5, 0], scores[7, 1] = torch.finfo(torch.float32).min, float("nan"), float("inf")
    found, plain = softmax(scores), scores.softmax(-1)
    assert (found[:3, 2] == 0).all()
    torch.testing.assert_close(found[3], torch.full((6,), 1 / 6))
    torch.testing.assert_close(found, plain, equal_nan=True)
    assert found.isnan().any(-1).nonzero().flatten().tolist() == [5, 7]


def test_can_be_differentiated_twice():
    scores = torch.randn(MIN_ROWS, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(softmax, scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(softmax, scores[:, :2].detach().requires_grad_(), fast_mode=True)


def test_the_scores_are_not_changed():
    scores = torch.randn(MIN_ROWS, 8)
    before = scores.clone()
    softmax(scores)
    assert torch.equal(scores, before)


def test_few_rows_long_axes_and_other_dtypes_use_torch(register):
    wide = max(1, register // 4)  # numbers of float32 in a register
    for scores in (
        torch.zeros(MIN_ROWS, wide),
        torch.zeros(MIN_ROWS - 1, 2),
        torch.zeros(MIN_ROWS, 2, dtype=torch.bfloat16),
        torch.zeros(()),
        torch.zeros(MIN_ROWS, 0),
    ):
        assert not module._is_short(scores)
    assert module._is_short(torch.zeros(MIN_ROWS, max(1, wide - 1))) == (register > 0)
    assert module._is_short(torch.zeros(MIN_ROWS, max(1, wide // 2 - 1), dtype=torch.float64)) == (register > 0)


def test_exported_programs_take_any_number_of_rows():
    class Softmax(torch.nn.Module):
        def forward(self, scores):
            return softmax(scores)

    rows = {"scores": {0: torch.export.Dim("rows", min=1)}}
    program = torch.export.export(Softmax(), (torch.randn(2 * MIN_ROWS, 6),), dynamic_shapes=rows)
    assert program.module()(torch.randn(3, 6)).shape == (3, 6)


def test_compiles_as_a_whole():
    scores = torch.randn(MIN_ROWS, 6)
    compiled = torch.compile(softmax, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores), scores.softmax(-1))
    torch.compiler.reset()  # its caches would run callbacks in later tests, when tensors are freed
