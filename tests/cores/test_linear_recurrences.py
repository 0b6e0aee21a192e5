"""Linear recurrences: what is particular to each, beside the contract."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recollect.cores import CORES
from recollect.cores.linear import stack
from recollect.cores.linear.mlstm import stabilizers
from recollect.state import leaves, map_state, named_leaves

KEYS = ("min-gru", "rg-lru", "mamba2", "mlstm", "gated-deltanet", "rwkv7")


@pytest.mark.parametrize("key", KEYS)
def test_long_calls_with_resets_equal_single_steps(key):
    """Several chunks of every kind, and resets in the middle of them."""
    torch.manual_seed(0)
    core = CORES[key](dim=8, num_layers=1, hidden_dim=0).build(8).double()
    for parameter in core.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x, first = torch.randn(2, 110, 8, dtype=torch.float64), torch.zeros(2, 110, dtype=torch.bool)
    first[0, 37] = first[1, 64] = first[1, 65] = True
    outputs, state = core(x, core.initial_state(2), first)
    stream = core.stream(2)
    steps = [stream.step(x[:, t], first[:, t]) for t in range(110)]
    torch.testing.assert_close(torch.stack(steps, 1), outputs)
    for (name, leaf), own in zip(named_leaves(state), leaves(stream.state), strict=True):
        torch.testing.assert_close(own, leaf, msg=lambda text, name=name: f"{name}: {text}")


OPTIONS = {
    "min-gru": {"state_dim": 5},
    "rg-lru": {"num_heads": 2, "conv_len": 3},
    "mamba2": {"hidden_dim": 9, "num_groups": 2, "state_dim": 3},
    "mlstm": {"gate_cap": 2.0},
    "gated-deltanet": {"num_heads": 2, "value_dim": 3},
    "rwkv7": {"num_heads": 2},
}


@pytest.mark.parametrize("key", KEYS)
def test_steps_equal_calls_with_weights_far_from_their_initial_values(key):
    """A stream folds scales of norms and biases into products; at first most of them are ones or zeros."""
    torch.manual_seed(0)
    core = CORES[key](dim=8, num_layers=3, **OPTIONS[key]).build(6).double()
    for parameter in core.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x, first = torch.randn(3, 12, 6, dtype=torch.float64), torch.rand(3, 12) < 0.2
    x[0, 5:9] = 0.0  # where the epsilons of norms count
    outputs, state = core(x, core.initial_state(3), first)
    stream = core.stream(3)
    steps = [stream.step(x[:, t], first[:, t]) for t in range(6)]
    steps.append(stream.step_rows(x[[2, 0, 1], 6], [2, 0, 1], first[[2, 0, 1], 6])[[1, 2, 0]])
    steps += [stream.step(x[:, t], first[:, t]) for t in range(7, 12)]
    torch.testing.assert_close(torch.stack(steps, 1), outputs, rtol=1e-10, atol=1e-10)
    for own, leaf in zip(leaves(stream.state), leaves(state), strict=True):
        torch.testing.assert_close(own, leaf, rtol=1e-10, atol=1e-10)


class Operations(TorchDispatchMode):
    """Counts the operations that torch starts."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += 1
        return function(*args, **(kwargs or {}))


MOST = {"min-gru": 26, "rg-lru": 46, "mamba2": 48, "mlstm": 56, "gated-deltanet": 58, "rwkv7": 68}
"""Operations of a step of one layer; a call of one step takes twice as many."""


@pytest.mark.parametrize("key", KEYS)
def test_a_step_of_a_layer_takes_few_operations(key):
    counts = []
    for layers in (1, 2):
        stream = CORES[key](dim=16, num_layers=layers).build(16).stream(1)
        with Operations() as counted:
            stream.step(torch.randn(1, 16))
        counts.append(counted.number)
    assert counts[1] - counts[0] <= MOST[key], counts


@pytest.mark.parametrize("key", KEYS)
def test_blocks_of_a_long_call_change_neither_values_nor_gradients(key, monkeypatch):
    torch.manual_seed(0)
    core = CORES[key](dim=8, num_layers=2).build(8).double()
    x, first = torch.randn(2, 50, 8, dtype=torch.float64), torch.rand(2, 50) < 0.1
    found, lengths = [], []
    core.layers[0].register_forward_pre_hook(lambda layer, args: lengths.append(args[0].shape[1]))
    for block in (50, 16):
        monkeypatch.setattr(stack, "BLOCK", block)
        outputs, state = core(x, core.initial_state(2), first)
        results = [outputs, *leaves(state)]
        total = sum((result.sin() * (1 + place)).sum() for place, result in enumerate(results))
        found.append([*results, *torch.autograd.grad(total, [*core.parameters()])])
    torch.testing.assert_close(*found)
    assert lengths == [50, 16, 16, 16, 2]


@pytest.mark.parametrize("key", KEYS)
def test_chrono_steps_set_how_long_a_memory_lasts(key):
    """The matrix or vector of the memory, without inputs, falls to about exp(-t / tau) in t steps."""
    longest, found = 1000, []
    for steps in (None, longest):
        torch.manual_seed(0)
        core = CORES[key](dim=16, num_layers=1, hidden_dim=0, chrono_steps=steps).build(16)
        state = map_state(torch.ones_like, core.initial_state(1))
        zeros, first = torch.zeros(1, 200, 16), torch.zeros(1, 200, dtype=torch.bool)
        with torch.no_grad():
            _, after = core(zeros, state, first)
        found.append(leaves(after)[0].abs().max().item())
    kept = found[1]
    assert math.exp(-200 / 500) / 2 < kept <= 1.5, f"{key}: {kept} of the memory after 200 steps; before: {found[0]}"


def test_the_cap_of_mlstm_does_not_shorten_its_time_constants():
    """The cap of 15 would make 638 of 1 000 steps."""
    layer = CORES["mlstm"](dim=16, num_layers=1, num_heads=4, chrono_steps=1000).build(16).layers[0]
    forget = layer.cap * torch.tanh(layer.gates.bias[4:].double() / layer.cap)
    taus = -1 / torch.nn.functional.logsigmoid(forget)
    torch.testing.assert_close(taus, torch.logspace(math.log10(2), 3, 4, dtype=torch.float64), rtol=1e-4, atol=0.0)
    layer = CORES["mlstm"](dim=16, num_layers=1, num_heads=4, chrono_steps=1000, gate_cap=5.0).build(16).layers[0]
    longest = (layer.cap * torch.tanh(layer.gates.bias[-1] / layer.cap)).item()
    assert longest == pytest.approx(0.99 * 5.0)  # the longest that the cap allows: a gate at its edge would not learn


def test_a_closed_gate_of_rg_lru_writes_in_a_call_what_it_writes_in_a_stream():
    """1 - a^2 is below the least square with a gradient."""
    core = CORES["rg-lru"](dim=4, num_layers=1, num_heads=2).build(4).double()
    with torch.no_grad():
        core.layers[0].gates.bias[:, :2] = -40.0
    inputs, never = torch.randn(2, 30, 4, dtype=torch.float64), torch.zeros(2, 30, dtype=torch.bool)
    _, state = core(inputs, core.initial_state(2), never)
    stream = core.stream(2)
    for x in inputs.unbind(1):
        stream.step(x)
    torch.testing.assert_close(state.h, stream.state.h, rtol=1e-9, atol=0.0)
    gradients = torch.autograd.grad(state.h.sum(), [*core.parameters()], materialize_grads=True)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("key", KEYS)
def test_a_memory_so_large_that_products_overflow_ends_at_a_reset(key):
    """It is finite, so the contract does not replace it; the layers above get infinities from it."""
    torch.manual_seed(0)
    core = CORES[key](dim=8, num_layers=3).build(8)
    for parameter in core.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x, first = torch.randn(2, 70, 8), torch.zeros(2, 70, dtype=torch.bool)
    first[:, 40] = True
    fresh = core.initial_state(2)
    want, last = core(x, fresh, first)
    got, after = core(x, map_state(lambda leaf: torch.full_like(leaf, 1e38), fresh), first)
    torch.testing.assert_close([got[:, 40:], *leaves(after)], [want[:, 40:], *leaves(last)], rtol=1e-4, atol=1e-4)


def _drawn_gates(steps=70):
    torch.manual_seed(0)
    f, i, m = (torch.rand(3, *shape, 2, dtype=torch.float64) for shape in ([steps], [steps], []))
    return [x.requires_grad_() for x in (f * -5, (i * 2 - 1) * 15, m * 80 - 40)], torch.rand(3, steps) < 0.1


def test_the_stabilizer_is_its_own_loop():
    (f, i, m), first = _drawn_gates()
    peaks, peak = [], m
    for t in range(70):
        peak = torch.maximum(f[:, t] + torch.where(first[:, t, None], 0.0, peak), i[:, t])
        peaks.append(peak)
    found, weights = stabilizers(f, i, m, first, 15.0), torch.randn(3, 70, 2, dtype=torch.float64)
    torch.testing.assert_close(found, torch.stack(peaks, 1))
    sums = [(result * weights).sum() for result in (found, torch.stack(peaks, 1))]
    torch.testing.assert_close(*(torch.autograd.grad(total, (f, i, m)) for total in sums), rtol=1e-12, atol=1e-12)


def test_nothing_of_the_stabilizer_gets_a_gradient_across_a_reset():
    """Not even what is left where terms cancel."""
    (f, i, m), first = _drawn_gates()
    first[:, 40] = True
    total = (stabilizers(f, i, m, first, 15.0)[:, 40:] * torch.randn(3, 30, 2, dtype=torch.float64)).sum()
    of_f, of_i, of_m = torch.autograd.grad(total, (f, i, m))
    assert not of_f[:, :40].any() and not of_i[:, :40].any() and not of_m.any()
    assert of_i[:, 40:].any()


def test_keys_and_values_of_one_number_are_refused():
    with pytest.raises(ValueError, match="value_dim=1: give values of 2 or more numbers"):
        CORES["gated-deltanet"](dim=8, value_dim=1)
    for fields in ({"key_dim": 1}, {"num_heads": 8}):
        name = next(iter(fields))
        with pytest.raises(ValueError, match=f"{name}={fields[name]}: give keys of 2 or more numbers"):
            CORES["gated-deltanet"](dim=8, **fields)
