import pytest
import torch

from recollect.ops import weight_grads
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


def shared_turns(first, second, x, memory):
    with accumulate_weight_grads({first: 10, second: 10}, len(x)) as leave:
        return leave(*turns(first, second, x, memory))


@pytest.mark.parametrize("block", [1, 25, 1024])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_the_plain_loop(monkeypatch, dtype, bias, block):
    monkeypatch.setattr(weight_grads, "BLOCK_ROWS", block)
    parameters = [*weights(dtype, bias), *weights(dtype)]
    x, memory = torch.randn(9, 2, 5, 6, dtype=dtype, requires_grad=True), torch.randn(2, 5, 6, dtype=dtype)
    targets = [x, *(p for p in parameters if p is not None)]
    results = []
    for loop in (turns, shared_turns):
        outputs, last = loop(Affine(*parameters[:2]), Affine(*parameters[2:]), x, memory)
        loss = outputs.square().sum() + last.sum()
        for _ in range(2):  # the graph can be used again
            found = torch.autograd.grad(loss, targets, retain_graph=True)
        results.append((outputs, last, *found))
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, **tolerance)


def test_maps_of_single_rows_equal_the_plain_loop_in_two_derivatives():
    """As keys that queries of the same row meet in every turn."""
    keys = torch.randn(4, 7, 3, dtype=torch.float64, requires_grad=True)
    start = torch.randn(4, 1, 3, dtype=torch.float64, requires_grad=True)

    def walk(scores, answers):
        x = start
        for _ in range(6):
            x = x + answers(scores(x).softmax(-1))
        return x

    results = []
    for shares in (False, True):
        scores, answers = Affine(keys, None), Affine(keys.mT, None)
        if shares:
            with accumulate_weight_grads({scores: 1, answers: 1}, 6) as leave:
                (x,) = leave(walk(scores, answers))
        else:
            x = walk(scores, answers)
        found = torch.autograd.grad(x.sin().sum(), (keys, start), retain_graph=True)
        once = torch.autograd.grad(x.sin().sum(), (keys, start), create_graph=True)
        again = torch.autograd.grad(sum(grad.square().sum() for grad in once), (keys, start))
        results.append((x, *found, *once, *again))
    torch.testing.assert_close(*results)


def test_constants_get_no_gradient_and_unreached_outputs_cost_nothing():
    weight, bias = weights(torch.float64)
    first, second = Affine(weight, bias), Affine(weight.detach(), None)
    x, memory = torch.randn(5, 2, 3, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    _, last = shared_turns(first, second, x, memory)
    (gradient,) = torch.autograd.grad(last.sum(), [weight])
    _, last = turns(first, second, x, memory)
    torch.testing.assert_close(gradient, torch.autograd.grad(last.sum(), [weight])[0])
    with torch.no_grad():
        assert not shared_turns(first, second, x, memory)[0].requires_grad
    assert first.shared is None


def test_a_backward_pass_that_does_not_reach_the_weights_leaves_nothing_behind():
    parameters = weights(torch.float64)
    x = torch.randn(5, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    outputs, last = shared_turns(Affine(*parameters), Affine(*parameters), x, torch.zeros(2, 3, 6, dtype=torch.float64))
    loss = outputs.square().sum()
    torch.autograd.grad(loss, [x], retain_graph=True)
    got = torch.autograd.grad(loss, parameters, retain_graph=True)
    outputs, _ = turns(Affine(*parameters), Affine(*parameters), x, torch.zeros(2, 3, 6, dtype=torch.float64))
    torch.testing.assert_close(got, torch.autograd.grad(outputs.square().sum(), parameters))
    torch.autograd.grad(loss, [x], retain_graph=True)
    with torch.no_grad():
        parameters[0].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(last.sum(), [x])


def test_a_penalty_on_the_gradient_of_the_inputs_has_the_gradient_of_the_plain_loop():
    """The first pass stores pairs that no weight takes, and a loss that is linear in the results reaches no _Leave."""
    parameters, results = [*weights(torch.float64), *weights(torch.float64)], []
    x = torch.randn(5, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    for loop in (turns, shared_turns):
        maps = Affine(*parameters[:2]), Affine(*parameters[2:])
        outputs, last = loop(*maps, x, torch.zeros(2, 3, 6, dtype=torch.float64))
        (gradient,) = torch.autograd.grad(outputs.sum() + last.sum(), [x], create_graph=True)
        results.append(torch.autograd.grad(gradient.square().sum(), parameters, materialize_grads=True))
    torch.testing.assert_close(*results)


def test_turns_that_no_loss_depends_on_leave_no_gradient():
    parameters, unused = weights(torch.float64), weights(torch.float64)
    x = torch.randn(5, 2, 6, dtype=torch.float64)
    first, second = Affine(*parameters), Affine(*unused)
    with accumulate_weight_grads({first: 2, second: 2}, 5) as leave:
        kept, lost = leave(torch.stack([first(step) for step in x]), torch.stack([second(step) for step in x]))
    found = torch.autograd.grad(kept.sum() + 0.0 * lost.detach().sum(), [*parameters, *unused], allow_unused=True)
    assert [grad is None for grad in found] == [False, False, True, True]


def test_a_failing_loop_leaves_the_maps_as_they_were():
    first = Affine(*weights(torch.float32))
    with pytest.raises(RuntimeError, match="no"), accumulate_weight_grads({first: 1}, 9):
        assert first.shared is not None
        raise RuntimeError("no")
    assert first.shared is None
