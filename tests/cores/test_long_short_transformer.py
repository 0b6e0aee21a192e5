import re

import pytest
import torch
from samples.long_short_transformer import CONFIGS

from recollect.cores.long_short import core as module
from recollect.cores.long_short.config import LongShortTransformerConfig
from recollect.cores.long_short.reference import reference_encode
from recollect.layers.tap import listen


def make(config, input_dim=8):
    """A float64 core whose every parameter matters (norms and biases moved off their initial values)."""
    core = config.build(input_dim).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return core.eval()


def gradients(core, inputs, outputs):
    torch.manual_seed(1)
    (outputs * torch.randn(outputs.shape, dtype=outputs.dtype)).sum().backward()
    found = [inputs.grad, *(p.grad for p in core.parameters())]
    inputs.grad = None
    core.zero_grad()
    return found


def assert_same(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


def plain(core, inputs, is_first):
    """Outputs of the plain form from an empty memory."""
    return core.reference_unroll(inputs, core.initial_state(len(inputs)), is_first)[0]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ages_differ_in_half_precision(dtype):
    config = LongShortTransformerConfig(dim=32, num_heads=2, num_layers=1, memory_len=512, num_segments=256)
    attention = config.build(32).to(dtype).layers[0].attention
    for got, want in zip(attention.position_keys(), attention.float().position_keys(), strict=True):
        assert (got.float() - want).abs().mean() < 0.01 * want.abs().mean()


def test_blocks_of_a_long_call_equal_the_plain_form(monkeypatch):
    core = make(LongShortTransformerConfig(dim=8, num_layers=1, num_heads=2, memory_len=6, chunk_len=5))
    monkeypatch.setattr(module, "BLOCK", 9)
    steps = 2 * 9 + 5
    inputs = torch.randn(1, steps, 8, dtype=torch.float64, requires_grad=True)
    is_first = torch.zeros(1, steps, dtype=torch.bool)
    is_first[0, 6] = True
    want = plain(core, inputs, is_first)
    expected = gradients(core, inputs, want)
    outputs, _ = core(inputs, core.initial_state(1), is_first)
    assert_same([outputs], [want])
    assert_same(gradients(core, inputs, outputs), expected)


def test_landmarks_carry_what_has_left_the_window_and_eviction_forgets_it():
    config = LongShortTransformerConfig(dim=8, num_layers=1, num_heads=2, memory_len=3, chunk_len=4, num_segments=2)
    core = make(config)
    inputs = torch.randn(1, 24, 8, dtype=torch.float64, requires_grad=True)
    outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 24, dtype=torch.bool))
    reach = torch.stack(
        [torch.autograd.grad(y.sum(), inputs, retain_graph=True)[0][0].abs().sum(-1) for y in outputs[0]]
    )
    for t in range(24):
        segment = t // 4
        kept = range(max(0, segment - 2) * 4, segment * 4)
        assert set(reach[t].nonzero().flatten().tolist()) == {*kept, *range(max(0, t - 3), t + 1)}, t


def test_taps_record_weights_that_sum_to_one_and_change_nothing():
    core = make(CONFIGS[3])  # without position scores: the fused path
    inputs, is_first = torch.randn(2, 9, 8).double(), torch.rand(2, 9) < 0.2
    recorded = {}
    want, _ = core(inputs, core.initial_state(2), is_first)
    with listen(core, recorded.__setitem__):
        got, _ = core(inputs, core.initial_state(2), is_first)
    assert_same([got], [want])
    assert len(recorded) == 2
    for weights in recorded.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize("normalise_first", [False, True])
@pytest.mark.parametrize(("width", "slots", "steps"), [(4, 3, 13), (1, 2, 5), (8, 4, 8), (3, 1, 11)])
def test_the_two_way_form_equals_its_plain_loop(width, slots, steps, normalise_first):
    core = make(
        LongShortTransformerConfig(
            dim=8, num_heads=2, memory_len=width, num_landmarks=slots, normalise_first=normalise_first, causal=False
        )
    )
    inputs = torch.randn(3, steps, 8, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(steps) >= torch.tensor([[steps], [steps - 2], [1]])
    want = reference_encode(core, inputs, padding)
    expected = gradients(core, inputs, want)
    outputs = core.encode(inputs, padding)
    assert_same([outputs], [want])
    assert_same(gradients(core, inputs, outputs), expected)
    assert_same([core.encode(inputs[:1])], [want[:1]])


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_step_of_the_two_way_form_that_is_not_finite_is_nan_and_is_read_as_zeros(value):
    core = make(LongShortTransformerConfig(dim=8, num_heads=2, memory_len=4, num_landmarks=3, causal=False))
    there = (torch.arange(9) == 2)[:, None]
    inputs = torch.randn(2, 9, 8).double()
    want = core.encode(torch.where(there, 0.0, inputs))
    got = core.encode(torch.where(there, value, inputs))
    assert got[:, 2].isnan().all()
    assert_same([got[:, 3:], got[:, :2]], [want[:, 3:], want[:, :2]])


def test_each_form_refuses_the_other():
    two_way = LongShortTransformerConfig(dim=8, num_heads=2, causal=False).build(8)
    is_first = torch.zeros(1, 2, dtype=torch.bool)
    for call in (
        lambda: two_way.initial_state(1),
        lambda: two_way.stream(1),
        two_way.flops_per_step,
        lambda: two_way(torch.zeros(1, 2, 8), (), is_first),
    ):
        with pytest.raises(ValueError, match=re.escape("causal=False") + ".*core.encode"):
            call()
    with pytest.raises(ValueError, match=r"causal=True.*causal=False"):
        LongShortTransformerConfig(dim=8, num_heads=2).build(8).encode(torch.zeros(1, 2, 8))
    with pytest.raises(ValueError, match=r"padding is torch\.float32"):
        two_way.encode(torch.zeros(1, 2, 8), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"encode takes \[b, t, 8\]"):
        two_way.encode(torch.zeros(1, 2, 7))
    with pytest.raises(ValueError, match=r"encode takes \[b, t, 8\]"):
        two_way.encode(torch.zeros(8))
    with pytest.raises(ValueError, match=r"shape \[1, 0, 8\].*at least one step"):
        two_way.encode(torch.zeros(1, 0, 8))
    for dtype in (torch.float64, torch.int64):
        with pytest.raises(ValueError, match=rf"inputs are {dtype}; .* give inputs\.to\(torch\.float32\)"):
            two_way.encode(torch.zeros(1, 2, 8, dtype=dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert two_way.encode(torch.zeros(1, 2, 8, dtype=torch.bfloat16)).shape == (1, 2, 8)
