import math

import pytest
import torch
from samples import transformer_xl as samples

from recollect.cores.transformer_xl import core as module
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.layers.tap import edit_taps, listen
from recollect.layers.window_attention import NarrowedPlan, plan_window
from recollect.state import detach


def make(config, input_dim=5):
    """A core in float64 whose norms, biases and gates are not at their special initial values."""
    core = config.build(input_dim).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return core


def data(batch, steps, input_dim=5, rate=0.2):
    inputs = torch.randn(batch, steps, input_dim, dtype=torch.float64, requires_grad=True)
    return inputs, torch.rand(batch, steps) < rate


def test_what_reaches_a_step_is_its_window_times_its_layers():
    config = TransformerXLConfig(**samples.TINY)
    core = make(config)
    inputs, _ = data(1, 20)
    out, _ = core(inputs, core.initial_state(1), torch.zeros(1, 20, dtype=torch.bool))
    (grad,) = torch.autograd.grad(out[0, -1].sum(), inputs)
    reach = config.memory_len * config.num_layers
    touched = grad[0].abs().sum(-1) > 0
    assert touched.tolist() == [t >= 19 - reach for t in range(20)]


def test_sparse_attention_has_k_entries_and_equals_dense_when_k_is_large():
    recorded = []
    for top_k in (None, 2, 50):
        torch.manual_seed(1)
        core = make(TransformerXLConfig(**samples.TINY, num_layers=1, top_k=top_k))
        assert core.discrete == (top_k is not None)
        inputs, is_first = data(2, 9)
        with listen(core, lambda name, weights: recorded.append(weights)):
            core(inputs, core.initial_state(2), is_first)
    dense, sparse, all_of_them = recorded
    torch.testing.assert_close(dense, all_of_them)
    assert ((sparse > 0).sum(-1) <= 2).all() and (sparse > 0).sum() < (dense > 0).sum()
    torch.testing.assert_close(sparse.sum(-1), torch.ones_like(sparse[..., 0]))


@pytest.mark.parametrize("gate", ["residual", "gru"])
@pytest.mark.parametrize("made_inside", [False, True])
def test_a_stream_keeps_the_precision_that_it_was_made_with(made_inside, gate):
    core = TransformerXLConfig(**samples.TINY, gate=gate).build(5).eval()
    inputs = torch.randn(2, 9, 5)
    with torch.no_grad():
        expected, _ = core(inputs, core.initial_state(2), torch.zeros(2, 9, dtype=torch.bool))
    with torch.autocast("cpu", torch.bfloat16, enabled=made_inside):
        stream = core.stream(2)
    with torch.autocast("cpu", torch.bfloat16, enabled=not made_inside):
        out = torch.stack([stream.step(x) for x in inputs.unbind(1)], 1)
    assert out.dtype == stream.state.window.dtype == torch.float32
    drift = (out - expected).norm() / expected.norm()
    assert (1e-4 < drift < 0.05) if made_inside else drift < 1e-6


def test_learned_positions_start_as_the_sinusoid_of_george_2021():
    core = TransformerXLConfig(**samples.TINY, positions="learned").build(8)
    assert core.table.shape == (4, 8)
    torch.testing.assert_close(core.table[-1], torch.tensor([0.0, 1.0] * 4))  # offset 0: sin 0, cos 0
    assert core.table[0, 0].item() == pytest.approx(math.sin(3.0))
    assert core.table[0, 3].item() == pytest.approx(math.cos(3.0 / 10000 ** (2 / 8)))


@pytest.mark.parametrize(("layers", "reported"), [(1, 1_920_240), (2, 2_776_048), (3, 3_631_856)])
def test_parameters_of_the_adaptive_agent_of_george_2021(layers, reported):
    core = TransformerXLConfig(
        dim=256, num_layers=layers, num_heads=4, hidden_dim=1024, memory_len=100, relu_outputs=True, activation="relu"
    ).build(256)
    ours = sum(p.numel() for p in core.parameters())
    unused_norms = 3 * 2 * 256 * layers
    assert ours + unused_norms == 855_808 * layers + 512
    resnet, encode, heads = 97_744, 3872 * 249 + 249, 256 * 6 + 6 + 256 + 1
    assert resnet + encode + ours + unused_norms + heads == reported


def test_detached_memory_gets_no_gradient_and_attached_memory_does():
    core = make(TransformerXLConfig(**samples.TINY))
    first, is_first = data(2, 4, rate=0.0)
    _, state = core(first, core.initial_state(2), is_first)
    out, _ = core(data(2, 2)[0], state, torch.zeros(2, 2, dtype=torch.bool))
    (grad,) = torch.autograd.grad(out.sum(), first)
    assert grad.abs().sum() > 0
    out, _ = core(data(2, 2)[0], detach(state), torch.zeros(2, 2, dtype=torch.bool))
    assert torch.autograd.grad(out.sum(), first, allow_unused=True) == (None,)


@pytest.mark.parametrize("positions", ["relative", "learned", "none"])
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("held", [0, 3, 40])
def test_a_long_window_of_a_young_episode_is_computed_as_far_as_it_is_visible(positions, top_k, held, monkeypatch):
    """Outputs, gradients, state and tapped weights, against a call that computes with the whole window."""
    torch.manual_seed(0)
    config = TransformerXLConfig(dim=16, num_layers=2, num_heads=2, memory_len=30, positions=positions, top_k=top_k)
    core = config.build(5).double()
    state = core.initial_state(3)
    if held:
        state = core(torch.randn(3, held, 5, dtype=torch.float64), state, torch.zeros(3, held, dtype=torch.bool))[1]
        state = detach(state)
    inputs, is_first = torch.randn(3, 8, 5, dtype=torch.float64), torch.zeros(3, 8, dtype=torch.bool)
    is_first[0, 0] = is_first[1, 4] = True
    widths, runs = [], []
    sees = module.narrow_plan

    def whole(plan, *taps):
        return NarrowedPlan(30, plan.visible, plan.held)

    def watched(plan, *taps):
        widths.append(sees(plan, *taps).places)
        return sees(plan, *taps)

    for narrow in (watched, whole):
        monkeypatch.setattr(module, "narrow_plan", narrow)
        recorded = {}
        with listen(core, recorded.__setitem__):
            core(inputs, state, is_first)
        core.zero_grad()
        outputs, after = core(inputs, state, is_first)
        outputs.square().sum().backward()
        runs.append([outputs, *after, *recorded.values(), *(p.grad for p in core.parameters())])
    assert set(widths) == {min(30, held + 7)}
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_editors_get_whole_windows_and_acting_computes_whole_windows():
    core = TransformerXLConfig(dim=16, num_heads=2, memory_len=30).build(5)
    inputs, is_first = torch.randn(2, 8, 5), torch.zeros(2, 8, dtype=torch.bool)
    shapes = []

    def edit(weights):
        shapes.append(weights.shape[-1])
        return weights

    with edit_taps({"0": core.layers[0].tap}, {"0": edit}):
        core(inputs, core.initial_state(2), is_first)
    assert shapes == [31]
    plan = plan_window(is_first, torch.zeros(2, dtype=torch.long), 30)
    assert module.narrow_plan(plan).places == 7
    with torch.no_grad():
        assert module.narrow_plan(plan).places == 30
