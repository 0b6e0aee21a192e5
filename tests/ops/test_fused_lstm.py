"""An LSTM layer in calls of oneDNN between resets, against the loop in float64: values and derivatives."""

import pytest
import torch

from recollect.ops import fused_lstm, recurrent_scans

STEPS, ROWS, INPUTS, UNITS = 24, 5, 3, 8


@pytest.fixture
def calls(monkeypatch):
    """Lengths of the pieces that ran in one call."""
    if not fused_lstm.is_available():
        pytest.skip("this torch has no oneDNN")
    original, lengths = fused_lstm.fused_lstm, []
    monkeypatch.setattr(fused_lstm, "fused_lstm", lambda x, *rest: lengths.append(len(x)) or original(x, *rest))
    return lengths


def arguments(resets: dict[int, list[int]], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return x, W, U, b, e, h, c, the initial h and c, and first, of which ``resets[step]`` rows are True."""
    shapes = [
        (STEPS, ROWS, INPUTS),
        (4 * UNITS, INPUTS),
        (4 * UNITS, UNITS),
        *[(4 * UNITS,)] * 2,
        *[(ROWS, UNITS)] * 4,
    ]
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).mul_(0.5).to(dtype) for shape in shapes]
    first = torch.zeros(STEPS, ROWS, 1, dtype=torch.bool)
    for step, rows in resets.items():
        first[step, rows] = True
    return [*(tensor.requires_grad_() for tensor in tensors), first]


def run(function, tensors):
    """Return all results of a recurrence, and the gradients of their weighted sum by all tensors."""
    x, w, u, b, e, h, c, fresh_h, fresh_c, first = tensors
    results = function(x, [w, u, b, e], [h, c], [fresh_h, fresh_c], first)
    total = sum((result.double() * torch.linspace(-1, 1, result.numel()).view_as(result)).sum() for result in results)
    return results, torch.autograd.grad(total, tensors[:-1], allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(
    ("resets", "pieces"),
    [
        ({}, [24]),
        ({0: [1, 3]}, [24]),
        ({0: [0, 1, 2, 3, 4]}, [24]),
        ({7: [2]}, [7, 17]),
        ({0: [4], 3: [0, 1], 20: [4], 23: [0, 1, 2, 3, 4]}, [3, 17, 3, 1]),
    ],
)
def test_values_and_gradients_are_those_of_the_loop(calls, resets, pieces):
    found, grads = run(recurrent_scans.lstm, arguments(resets))
    assert calls == pieces
    expected, expected_grads = run(recurrent_scans.plain_lstm, arguments(resets, torch.float64))
    for one, other in zip((*found, *grads), (*expected, *expected_grads), strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=2e-5)


def test_many_resets_stay_in_the_loop(calls):
    run(recurrent_scans.lstm, arguments({step: [step % ROWS] for step in range(0, STEPS, 3)}))
    assert not calls


def test_double_precision_stays_in_the_loop(calls):
    run(recurrent_scans.lstm, arguments({}, torch.float64))
    assert not calls


def test_nothing_is_kept_without_gradients(calls):
    tensors = arguments({5: [0]})
    with torch.no_grad():
        results = recurrent_scans.lstm(tensors[0], tensors[1:5], tensors[5:7], tensors[7:9], tensors[9])
    assert calls == [5, 19] and not any(result.requires_grad for result in results)


def test_second_derivatives_are_those_of_the_loop(calls):
    def curvature(function, dtype):
        tensors = arguments({9: [1]}, dtype)
        x, w, u, b, e, h, c, fresh_h, fresh_c, first = tensors
        outputs = function(x, [w, u, b, e], [h, c], [fresh_h, fresh_c], first)[0]
        (by_u,) = torch.autograd.grad(outputs.square().sum(), u, create_graph=True)
        return torch.autograd.grad(by_u.square().sum(), [x, u, fresh_c])

    for one, other in zip(
        curvature(recurrent_scans.lstm, torch.float32),
        curvature(recurrent_scans.plain_lstm, torch.float64),
        strict=True,
    ):
        torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-3)
    assert calls == [9, 15]
