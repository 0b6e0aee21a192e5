import random
import re

import pytest
import torch
from tests.cores.samples import causal_transformer as samples

from recollect.cores.causal_transformer.config import CausalTransformerConfig
from recollect.layers.tap import listen
from recollect.state import detach, leaves

CONFIGS = samples.CONFIGS + [samples.sample(random.Random(seed)) for seed in range(4)]


def make(config, input_dim=5):
    """A core in float64 whose norms and biases are not at their special start values."""
    core = config.build(input_dim).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return core


def data(batch, steps, input_dim=5, rate=0.2):
    inputs = torch.randn(batch, steps, input_dim, dtype=torch.float64, requires_grad=True)
    return inputs, torch.rand(batch, steps) < rate


def test_the_plain_form_refuses_dropout():
    core = CausalTransformerConfig(**samples.TINY, dropout=0.1).build(5)
    with pytest.raises(ValueError, match=r"dropout=0\.1: the plain form has none, call core\.eval\(\) first"):
        core.reference_unroll(torch.zeros(1, 1, 5), core.initial_state(1), torch.zeros(1, 1, dtype=torch.bool))


@pytest.mark.parametrize("positions", ["rotary", "bias", "none"])
def test_blocks_of_a_long_sequence_equal_steps(positions):
    core = make(CausalTransformerConfig(**samples.TINY, positions=positions))
    inputs, is_first = data(2, 150, rate=0.05)
    together, end = core(inputs, core.initial_state(2), is_first)
    state, steps = core.initial_state(2), []
    for t in range(150):
        out, state = core(inputs[:, t : t + 1], state, is_first[:, t : t + 1])
        steps.append(out)
    torch.testing.assert_close(together, torch.cat(steps, 1))
    for one, other in zip(leaves(end), leaves(state), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_stream_equals_sequence_with_random_resets(config):
    core = make(config)
    inputs, is_first = data(3, 40, rate=0.1)
    expected, end = core(inputs, core.initial_state(3), is_first)
    stream = core.stream(3)
    for t in range(40):
        if t == 17:
            stream = stream.fork()
        out = stream.step(inputs[:, t].detach(), is_first[:, t] if is_first[:, t].any() else None)
        torch.testing.assert_close(out, expected[:, t].detach())
    for one, other in zip(leaves(stream.state), leaves(detach(end)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("position", [10**7, 10**12])
def test_numbers_do_not_degrade_far_into_a_stream(position):
    core = CausalTransformerConfig(dim=32, num_heads=2, memory_len=16).build(8).eval()
    inputs = torch.randn(60, 1, 8)
    near, far = core.stream(1), core.stream(1)
    far._position = position  # as if that many steps had passed; the window is empty in both
    for step in inputs:
        torch.testing.assert_close(far.step(step), near.step(step), rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(far.state.keys, near.state.keys, rtol=1e-5, atol=2e-6)


def test_float32_phases_of_a_long_call_agree_with_short_calls():
    core = CausalTransformerConfig(dim=32, num_heads=2, memory_len=16).build(8).eval()
    inputs, is_first = torch.randn(1, 6000, 8), torch.zeros(1, 6000, dtype=torch.bool)
    with torch.no_grad():
        together, _ = core(inputs, core.initial_state(1), is_first)
        _, state = core(inputs[:, :5900], core.initial_state(1), is_first[:, :5900])
        tail, _ = core(inputs[:, 5900:], state, is_first[:, 5900:])
    torch.testing.assert_close(together[:, 5900:], tail, rtol=1e-5, atol=5e-6)


def test_bias_starts_as_the_line_of_alibi():
    core = CausalTransformerConfig(dim=8, num_heads=4, memory_len=2, positions="bias").build(8)
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625])
    torch.testing.assert_close(core.layers[0].bias.detach(), -slopes[:, None] * torch.tensor([2.0, 1.0, 0.0]))


def test_a_broken_frame_is_seen_once_and_not_remembered():
    core = make(CausalTransformerConfig(**samples.TINY))
    inputs, is_first = data(2, 8, rate=0.0)
    broken = inputs.detach().clone()
    broken[0, 2, 1] = torch.nan
    out, state = core(broken, core.initial_state(2), is_first)
    assert out[0, 2].isnan().all() and out[0, 3:].isfinite().all() and state.keys.isfinite().all()
    stream = core.stream(2)
    for t in range(8):
        torch.testing.assert_close(stream.step(broken[:, t]), out[:, t].detach(), equal_nan=True)


@pytest.mark.parametrize("steps", [6, 140])
@pytest.mark.parametrize("positions", ["rotary", "bias"])
def test_taps_hear_windows_and_change_nothing(positions, steps):
    core = make(CausalTransformerConfig(**samples.TINY, positions=positions))
    inputs, is_first = data(2, steps)
    quiet, _ = core(inputs, core.initial_state(2), is_first)
    heard, live = {}, {}
    with listen(core, lambda name, weights: heard.setdefault(name, weights)):
        loud, _ = core(inputs, core.initial_state(2), is_first)
    torch.testing.assert_close(quiet, loud)
    stream = core.stream(2)
    with listen(core, lambda name, weights: live.setdefault(name, []).append(weights)):
        for t in range(6):
            stream.step(inputs[:, t].detach(), is_first[:, t])
    assert list(heard) == ["layers.0.tap", "layers.1.tap"]
    for name, weights in heard.items():
        assert weights.shape == (2, 2, steps, 4)  # b h t s, the query itself last
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert weights.transpose(1, 2)[is_first][..., :-1].eq(0).all()
        torch.testing.assert_close(torch.cat(live[name], 2), weights[:, :, :6])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 10, "num_heads": 3}, "num_heads=3: must divide dim=10"),
        ({"dim": 9, "num_heads": 3}, "num_heads=3: rotary positions need heads of even width, these have 3"),
        ({"memory_len": 0}, "memory_len=0: give at least 1"),
        ({"hidden_dim": 0}, "hidden_dim=0: give at least 1"),
        ({"positions": "relative"}, "positions='relative': choose one of 'rotary', 'bias', 'none'"),
        ({"activation": "tanh"}, "activation='tanh': choose one of 'relu', 'gelu', 'gelu_tanh'"),
        ({"dropout": -0.1}, "dropout=-0.1: give a probability below 1"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CausalTransformerConfig(**settings)
