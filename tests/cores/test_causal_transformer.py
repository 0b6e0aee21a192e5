import pytest
import torch

from recollect.cores.causal_transformer.config import CausalTransformerConfig


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
