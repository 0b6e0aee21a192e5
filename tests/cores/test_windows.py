"""Long calls and Taps of the cores that attend to a sliding window."""

import pytest
import torch

from recollect.cores import CORES
from recollect.layers.tap import listen
from recollect.layers.window_attention import MIN_BLOCK
from recollect.state import leaves

TINY = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "memory_len": 3}
CASES = [
    ("causal-transformer", {"positions": "rotary"}),
    ("causal-transformer", {"positions": "bias"}),
    ("causal-transformer", {"positions": "none"}),
    ("transformer-xl", {"positions": "relative"}),
    ("transformer-xl", {"positions": "learned", "top_k": 2}),
    ("transformer-xl", {"positions": "none", "gate": "gru"}),
]


def make(key, settings):
    """A core in float64 whose norms and biases are not at their special initial values."""
    core = CORES[key](**TINY, **settings).build(5).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return core


@torch.no_grad()
@pytest.mark.parametrize(("key", "settings"), CASES)
def test_blocks_of_a_long_call_equal_steps(key, settings):
    core, t = make(key, settings), MIN_BLOCK + 6
    inputs, is_first = torch.randn(2, t, 5, dtype=torch.float64), torch.rand(2, t) < 0.05
    together, end = core(inputs, core.initial_state(2), is_first)
    state, steps = core.initial_state(2), []
    for x, first in zip(inputs.split(1, 1), is_first.split(1, 1), strict=True):
        out, state = core(x, state, first)
        steps.append(out)
    torch.testing.assert_close(together, torch.cat(steps, 1))
    for one, other in zip(leaves(end), leaves(state), strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
@pytest.mark.parametrize("steps", [6, MIN_BLOCK + 6])
@pytest.mark.parametrize(("key", "settings"), CASES)
def test_taps_record_the_same_windows_in_calls_and_streams_and_change_nothing(key, settings, steps):
    core = make(key, settings)
    inputs, is_first = torch.randn(2, steps, 5, dtype=torch.float64), torch.rand(2, steps) < 0.2
    quiet, _ = core(inputs, core.initial_state(2), is_first)
    called, live = {}, {}
    with listen(core, called.__setitem__):
        loud, _ = core(inputs, core.initial_state(2), is_first)
    torch.testing.assert_close(quiet, loud)
    stream = core.stream(2)
    with listen(core, lambda name, weights: live.setdefault(name, []).append(weights)):
        for t in range(6):
            stream.step(inputs[:, t], is_first[:, t])
    assert list(called) == ["layers.0.tap", "layers.1.tap"]
    for name, weights in called.items():
        assert weights.shape == (2, 2, steps, 4)  # b h t s, the query itself last
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert weights[:, :, 0, :-1].eq(0).all() and weights[..., 0, -1].eq(1).all()
        assert weights.transpose(1, 2)[is_first][..., :-1].eq(0).all()
        torch.testing.assert_close(torch.cat(live[name], 2), weights[:, :, :6])
