import math
from types import SimpleNamespace

import pytest
import torch
from samples import gru, lstm
from torch import nn

from recollect.cores.recurrent import GRUConfig, LSTMConfig
from recollect.ops import recurrent_scans
from recollect.state import detach

CONFIGS = [c for c in (*lstm.CONFIGS, *gru.CONFIGS) if not c.dropout and not c.state_noise and not c.gate_stretch]
BOTH = [LSTMConfig, GRUConfig]


def prepared(config, b=3, t=8, input_dim=5):
    core = config.build(input_dim).double()
    for parameter in core.parameters():
        nn.init.normal_(parameter, std=0.6)
    inputs = torch.randn(b, t, input_dim, dtype=torch.double, requires_grad=True)
    state = core.state_type._make(torch.randn_like(leaf).requires_grad_() for leaf in core.initial_state(b))
    return core, inputs, state, torch.rand(b, t) < 0.25


def literal(core, inputs, state, is_first):
    """torch's own cells, one row, step and layer at a time, from a fresh state where an episode begins."""
    cell_of = torch.lstm_cell if len(state) == 2 else torch.gru_cell
    fresh = core.initial_state(1)
    rows, ends = [], []
    for row, firsts in enumerate(is_first.tolist()):
        memory = [[leaf[row : row + 1, layer] for leaf in state] for layer in range(core.config.num_layers)]
        outputs = []
        for x, first in zip(inputs[row, :, None], firsts, strict=True):
            if first:
                memory = [[leaf[:, layer] for leaf in fresh] for layer in range(core.config.num_layers)]
            for layer in range(core.config.num_layers):
                weights = core.cells.layer(layer)
                found = memory[layer] if len(state) == 2 else memory[layer][0]
                made = cell_of(x, found, *weights)
                memory[layer] = list(made) if len(state) == 2 else [made]
                x = memory[layer][0]
            outputs.append(x)
        rows.append(torch.cat(outputs))
        ends.append([torch.cat(leaf) for leaf in zip(*memory, strict=True)])
    return torch.stack(rows), core.state_type._make(torch.stack(leaf) for leaf in zip(*ends, strict=True))


def loss(outputs, state):
    return outputs.sin().sum() + sum(leaf.square().sum() for leaf in state)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_equals_a_loop_of_torchs_cells_in_values_and_gradients(config):
    core, inputs, state, is_first = prepared(config)
    is_first[0] = True
    want, end = literal(core, inputs, state, is_first)
    wrt = [inputs, *state, *core.parameters()]
    expected = torch.autograd.grad(loss(want, end), wrt, materialize_grads=True)
    outputs, new = core(inputs, state, is_first)
    torch.testing.assert_close(outputs, want, rtol=1e-10, atol=1e-12)
    got = torch.autograd.grad(loss(outputs, new), wrt, materialize_grads=True)
    for a, b in zip((*new, *got), (*end, *expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("config", "theirs"), [(LSTMConfig, nn.LSTM), (GRUConfig, nn.GRU)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_with_its_weights_where_nothing_resets(config, theirs, dtype):
    module = theirs(5, 16, 2, batch_first=True).to(dtype)
    core = config(dim=16, num_layers=2).build(5).to(dtype)
    core.cells.load_state_dict(module.state_dict())
    inputs = torch.randn(3, 20, 5, dtype=dtype)
    outputs, state = core(inputs, core.initial_state(3), torch.zeros(3, 20).bool())
    want, end = module(inputs)
    torch.testing.assert_close(outputs, want)
    for leaf, theirs_leaf in zip(state, end if isinstance(end, tuple) else (end,), strict=True):
        torch.testing.assert_close(leaf.transpose(0, 1), theirs_leaf)
    loss(outputs, state).backward()
    loss(want, end if isinstance(end, tuple) else (end,)).backward()
    for ours, parameter in zip(core.cells.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, parameter.grad, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("config", BOTH)
def test_the_hand_written_gradient_passes_gradcheck(config):
    core, inputs, state, is_first = prepared(config(dim=3, num_layers=1, learned_initial_state=True), t=4)

    def call(inputs, *leaves):
        outputs, new = core(inputs, core.state_type._make(leaves), is_first)
        return outputs, *new

    assert torch.autograd.gradcheck(call, (inputs, *state))


@pytest.mark.parametrize("config", BOTH)
def test_second_derivatives_are_those_of_the_plain_form(config, monkeypatch):
    core, inputs, state, is_first = prepared(config(dim=3))

    def second():
        (gradient,) = torch.autograd.grad(core(inputs, state, is_first)[0].sin().sum(), inputs, create_graph=True)
        return torch.autograd.grad(gradient.sin().sum(), [inputs, *core.parameters()])

    found = second()
    monkeypatch.setattr(recurrent_scans, "is_available", lambda: False)
    for ours, plain in zip(found, second(), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("config", BOTH)
def test_only_a_call_that_records_gradients_keeps_what_they_need(config, monkeypatch):
    core, inputs, state, is_first = prepared(config(dim=4, num_layers=1), t=20)
    scan = recurrent_scans._LSTMScan if config is LSTMConfig else recurrent_scans._GRUScan
    forward, kept = scan.forward, []

    def watched(ctx, *args):
        save = SimpleNamespace(
            needs_input_grad=ctx.needs_input_grad, save_for_backward=lambda *tensors: kept.append(len(tensors))
        )
        return forward(save, *args)

    monkeypatch.setattr(scan, "forward", staticmethod(watched))
    core(inputs, state, is_first)
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            core(inputs, state, is_first)
    assert kept[0] >= 3 * 20 and kept[1] == kept[2] < 10


@pytest.mark.parametrize("config", BOTH)
def test_float32_and_bfloat16_stay_close_to_float64(config):
    core, inputs, state, is_first = prepared(config(dim=32, num_layers=2), t=40)
    for parameter in core.parameters():
        nn.init.uniform_(parameter, -0.18, 0.18)
    want, end = core(inputs, state, is_first)
    exact = torch.autograd.grad(loss(want, end), list(core.parameters()))
    core = core.float()
    inputs, state = inputs.detach().float(), core.state_type._make(leaf.detach().float() for leaf in state)
    for bfloat16, tolerance in ((False, 1e-5), (True, 0.04)):
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            outputs, new = core(inputs, state, is_first)
        assert outputs.dtype == (torch.bfloat16 if bfloat16 else torch.float32)
        assert all(leaf.dtype == torch.float32 for leaf in new)
        torch.testing.assert_close(outputs.double(), want, rtol=0, atol=tolerance)
        rough = torch.autograd.grad(loss(outputs.float(), new), list(core.parameters()))
        for a, b in zip(rough, exact, strict=True):
            assert (a.double() - b).norm() < tolerance * b.norm()


@pytest.mark.parametrize("config", BOTH)
def test_the_form_for_compilers_gives_the_same_numbers(config, monkeypatch):
    core, inputs, state, is_first = prepared(config(dim=6, learned_initial_state=True))
    wrt = [inputs, *state, *core.parameters()]
    outputs, new = core(inputs, state, is_first)
    want = (outputs, *new, *torch.autograd.grad(loss(outputs, new), wrt))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    outputs, new = core(inputs, state, is_first)
    got = (outputs, *new, *torch.autograd.grad(loss(outputs, new), wrt))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("config", BOTH)
def test_vmap_gives_the_same_numbers(config):
    core, inputs, state, is_first = prepared(config(dim=6))
    many = torch.stack((inputs, 2 * inputs))
    found = torch.vmap(lambda part: core(part, state, is_first)[0])(many)
    torch.testing.assert_close(found, torch.stack([core(part, state, is_first)[0] for part in many]))


@pytest.mark.parametrize("config", [LSTMConfig, GRUConfig])
def test_weights_may_be_given_from_outside(config):
    core = config(dim=5, learned_initial_state=True).build(4).double()
    inputs, is_first = torch.randn(2, 6, 4).double(), torch.rand(2, 6) < 0.3
    state = detach(core.initial_state(2))
    weights = {name: weight.detach().clone() for name, weight in core.named_parameters()}

    def loss(given):
        return torch.func.functional_call(core, given, (inputs, state, is_first))[0].square().sum()

    core(inputs, state, is_first)[0].square().sum().backward()
    wanted = {name: weight.grad for name, weight in core.named_parameters()}
    torch.testing.assert_close(torch.func.grad(loss)(weights), wanted)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("b", [1, 3])
def test_stream_equals_sequence(config, b):
    core, inputs, state, is_first = prepared(config, b=b)
    inputs, state = inputs.detach(), detach(state)
    stream = core.stream(b)
    stream.load_state(state)
    want, end = core(inputs, state, is_first)
    for step in range(8):
        first = is_first[:, step]
        torch.testing.assert_close(stream.step(inputs[:, step], first if first.any() else None), want[:, step])
    for leaf, other in zip(stream.state, end, strict=True):
        torch.testing.assert_close(leaf, other)


def test_a_learned_initial_state_gets_the_gradient_of_every_reset():
    core, inputs, state, _ = prepared(LSTMConfig(dim=4, num_layers=1, learned_initial_state=True), b=1, t=6)
    for firsts in ([False] * 6, [False, False, True, False, False, False]):
        core.zero_grad()
        core(inputs, state, torch.tensor([firsts]))[0].sum().backward()
        touched = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in core.initial.values()]
        assert touched == [any(firsts)] * 2


def test_dropout_falls_between_layers_and_only_in_training():
    core, inputs, state, is_first = prepared(GRUConfig(dim=4, num_layers=2, dropout=0.5))
    assert not torch.equal(core(inputs, state, is_first)[0], core(inputs, state, is_first)[0])
    core.eval()
    assert torch.equal(core(inputs, state, is_first)[0], core(inputs, state, is_first)[0])
    single, inputs, state, is_first = prepared(GRUConfig(dim=4, num_layers=1, dropout=0.5))
    assert torch.equal(single(inputs, state, is_first)[0], single(inputs, state, is_first)[0])


@pytest.mark.parametrize("config", BOTH)
def test_noise_comes_every_four_steps_in_training_and_a_reset_is_free_of_it(config):
    """Weights of zero halve h of a GRU and c of an LSTM at every step, whatever the inputs."""
    core = config(dim=64, num_layers=2, state_noise=0.5).build(3).double()
    for parameter in core.parameters():
        nn.init.zeros_(parameter)
    inputs, never = torch.randn(100, 8, 3).double(), torch.zeros(100, 8, dtype=torch.bool)
    state = core.initial_state(100)
    memory = "c" if config is LSTMConfig else "h"
    for steps, variance in ((1, 1 / 2**2), (4, 1 / 2**8), (5, 1 / 2**2 + 1 / 2**10), (8, 1 / 2**8 + 1 / 2**16)):
        found = getattr(core(inputs[:, :steps], state, never[:, :steps])[1], memory)
        torch.testing.assert_close(found.square().mean(), torch.tensor(0.5**2 * variance).double(), rtol=0.05, atol=0)
    first = never.clone()
    first[:, 4] = True
    assert getattr(core(inputs, state, first)[1], memory).eq(0).all(), "the memory of the new episode has had none"
    first[:, 4], first[:, 3] = False, True
    assert not getattr(core(inputs, state, first)[1], memory).eq(0).any()


@pytest.mark.parametrize("config", BOTH)
def test_noise_is_not_for_acting_and_the_plain_form_refuses_it(config):
    core, inputs, state, is_first = prepared(config(dim=4, state_noise=0.5))
    silent = config(dim=4).build(5).double()
    silent.load_state_dict(core.state_dict())
    with pytest.raises(ValueError, match=r"state_noise=0\.5: the plain form has none, call core\.eval\(\) first"):
        core.reference_unroll(inputs, state, is_first)
    assert not torch.equal(core(inputs, state, is_first)[0], core(inputs, state, is_first)[0])
    core.eval()
    assert torch.equal(core(inputs, state, is_first)[0], silent(inputs, state, is_first)[0])
    streams = [made.stream(3) for made in (core.train(), silent)]
    for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
        assert torch.equal(*(stream.step(x, first) for stream in streams))


@pytest.mark.parametrize("config", BOTH)
@pytest.mark.parametrize("stretch", [0.1, 1.0])
def test_stretched_gates_equal_their_plain_form_in_values_and_gradients(config, stretch):
    core, inputs, state, is_first = prepared(config(dim=6, gate_stretch=stretch), t=9)
    gates = inputs @ core.cells.layer(0)[0].t()
    assert (gates.sigmoid() * (1 + 2 * stretch) - stretch).ge(1).any(), "some gates must be shut for this to say much"
    wrt = [inputs, *state, *core.parameters()]
    both = [unroll(inputs, state, is_first) for unroll in (core, core.reference_unroll)]
    grads = [torch.autograd.grad(loss(*one), wrt, materialize_grads=True) for one in both]
    for got, want in zip((both[0][0], *both[0][1], *grads[0]), (both[1][0], *both[1][1], *grads[1]), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("config", BOTH)
def test_only_a_stretched_gate_keeps_a_memory_bit_for_bit(config):
    """Gates that are told to keep: 5 in front of the sigmoid, where a plain one leaks 0.7 % a step."""
    for stretch, keeps in ((0.1, True), (0.0, False)):
        core = config(dim=16, num_layers=1, gate_stretch=stretch).build(3)
        _, _, _, e = core.cells.layer(0)
        with torch.no_grad():
            for weight in core.cells.parameters():
                weight.mul_(0.01)
            gates = e.unflatten(0, (-1, 16))  # i f g o, or r z n
            if config is LSTMConfig:
                gates[0] = -5.0
            gates[1] = 5.0
        stream = core.eval().stream(4)
        stream.load_state(core.state_type._make(torch.randn_like(leaf) for leaf in core.initial_state(4)))
        before = stream.state[-1]
        for _ in range(1000):
            stream.step(torch.randn(4, 3))
        _, state = core(torch.randn(4, 1000, 3), stream.state, torch.zeros(4, 1000, dtype=torch.bool))
        assert torch.equal(stream.state[-1], before) == keeps
        assert torch.equal(state[-1], before) == keeps


@pytest.mark.parametrize("config", BOTH)
@pytest.mark.parametrize("more", [{"forget_bias": 1.0}, {"chrono_steps": 50}], ids=str)
def test_only_the_biases_of_gates_that_keep_begin_elsewhere(config, more):
    def made(**fields):
        torch.manual_seed(3)
        return dict(config(dim=400, num_layers=1, **fields).build(5).cells.named_parameters())

    plain, other = made(), made(**more)
    moved = (other["bias_ih_l0"] - plain["bias_ih_l0"]).unflatten(0, (-1, 400))  # i f g o, or r z n
    assert all(torch.equal(other[name], plain[name]) for name in plain if name != "bias_ih_l0")
    kept = moved[1]
    if "forget_bias" in more:
        torch.testing.assert_close(kept, torch.ones(400))
        assert moved[[0, *range(2, len(moved))]].eq(0).all()
        return
    lags = kept.exp()
    assert 1 - 1e-5 <= lags.min() < 2
    assert 48 < lags.max() <= 49 + 1e-3
    assert abs(lags.mean() - 25) < 4 * 48 / 12**0.5 / 20, "they are spread evenly between 1 and 49"
    torch.testing.assert_close(moved[0], -kept if config is LSTMConfig else torch.zeros(400), rtol=0, atol=1e-6)
    assert moved[2:].eq(0).all()


@pytest.mark.parametrize(
    ("more", "shortest", "longest"),
    [
        ({}, 1.0, 1.0),
        ({"forget_bias": 1.0}, 2.21, 2.21),
        ({"forget_bias": 3.0}, 14.26, 14.26),
        ({"chrono_steps": 100}, 1.0, 69.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("config", BOTH)
def test_half_lives_at_first_are_those_of_the_docstring(config, more, shortest, longest):
    cores = []
    for fields in ({}, more):
        torch.manual_seed(3)
        cores.append(config(dim=500, num_layers=1, **fields).build(3))
    plain, core = cores
    moved = (core.cells.bias_ih_l0 - plain.cells.bias_ih_l0).detach()
    with torch.no_grad():
        for weight in core.cells.parameters():
            weight.zero_()
        core.cells.bias_ih_l0.copy_(moved)
    state = core.state_type._make(torch.ones_like(leaf) for leaf in core.initial_state(1))
    _, state = core(torch.zeros(1, 20, 3), state, torch.zeros(1, 20, dtype=torch.bool))
    lives = 20 * math.log(0.5) / state[-1].log()
    torch.testing.assert_close(lives.min(), torch.tensor(shortest), rtol=0.02, atol=0.3)
    torch.testing.assert_close(lives.max(), torch.tensor(longest), rtol=0.02, atol=0.3)


def test_flops_are_those_of_the_products():
    assert LSTMConfig(dim=8, num_layers=2).build(5).flops_per_step() == 2 * 4 * 8 * (5 + 8) + 2 * 4 * 8 * 16
    assert GRUConfig(dim=8, num_layers=1).build(5).flops_per_step() == 2 * 3 * 8 * (5 + 8)
