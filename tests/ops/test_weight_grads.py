import pytest
import torch

from recollect.ops.weight_grads import Affine, accumulate_weight_grads


def weights(dtype, bias=True):
    weight = (torch.randn(6, 6, dtype=dtype) * 0.3).requires_grad_()
    return weight, torch.randn(6, dtype=dtype, requires_grad=True) if bias else None


def turns(first, second, x, memory):
    """A loop whose memory goes through both maps at every turn; the second map also sees other numbers of rows."""
    outputs = []
    for step in x.unbind(0):
        memory = torch.tanh(first(memory) + second(step))
        outputs.append(second(memory[:, :2]).sum(1))
    return torch.stack(outputs), memory


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_the_plain_loop(dtype, bias):
    parameters = [*weights(dtype, bias), *weights(dtype)]
    x, memory = torch.randn(9, 2, 5, 6, dtype=dtype, requires_grad=True), torch.randn(2, 5, 6, dtype=dtype)
    targets = [x, *(p for p in parameters if p is not None)]
    results = []
    for shared in (False, True):
        first, second = Affine(*parameters[:2]), Affine(*parameters[2:])

        def run(*tensors, maps=(first, second)):
            return turns(*maps, *tensors)

        outputs, last = (
            accumulate_weight_grads(run, {first: 10, second: 10}, 9, (x, memory)) if shared else run(x, memory)
        )
        loss = outputs.square().sum() + last.sum()
        for _ in range(2):  # the graph can be used again
            found = torch.autograd.grad(loss, targets, retain_graph=True)
        results.append((outputs, last, *found))
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, **tolerance)


def test_what_needs_no_gradient_gets_none_and_unreached_outputs_cost_nothing():
    weight, bias = weights(torch.float64)
    first, second = Affine(weight, bias), Affine(weight.detach(), None)
    x, memory = torch.randn(5, 2, 3, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    _, last = accumulate_weight_grads(
        lambda *tensors: turns(first, second, *tensors), {first: 6, second: 6}, 5, (x, memory)
    )
    (gradient,) = torch.autograd.grad(last.sum(), [weight])
    _, last = turns(first, second, x, memory)
    torch.testing.assert_close(gradient, torch.autograd.grad(last.sum(), [weight])[0])
    with torch.no_grad():
        assert not accumulate_weight_grads(lambda *t: turns(first, second, *t), {first: 6, second: 6}, 5, (x, memory))[
            0
        ].requires_grad
    assert first.shared is None


def test_a_failing_loop_leaves_the_maps_as_they_were():
    first = Affine(*weights(torch.float32))

    def run(x):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        accumulate_weight_grads(run, {first: 1}, 9, (torch.randn(1, 6),))
    assert first.shared is None
