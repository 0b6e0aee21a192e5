"""Stacks of several cores: what a layer can be, and that every layer keeps its own memory."""

import pytest
import torch

from recollect.cores.hybrid import HybridConfig
from recollect.state import named_leaves


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layers": ()}, "layers=.*name at least one core"),
        ({"layers": ("gru", "gated-deltnet")}, r"core in layers\[1\] 'gated-deltnet': did you mean 'gated-deltanet'"),
        ({"layers": ("gru", "hybrid")}, r"layers\[1\]='hybrid': a layer cannot be a hybrid"),
        ({"layers": ("ttm",)}, r"layers\[0\]='ttm': it reads several tokens"),
        ({"dim": 6}, r"layers\[0\]='gated-deltanet' of width dim=6: num_heads=4: must divide dim=6"),
        ({"layers": ("gru", "hcam"), "memory_len": 3}, r"layers\[1\]='hcam' .*: memory_len=3: give at least"),
    ],
)
def test_bad_layers_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        HybridConfig(**fields)


def test_states_are_side_by_side_and_layers_are_one_layer_each():
    core = HybridConfig(dim=8, layers=("gru", "transformer-xl", "gru"), num_heads=2, memory_len=5).build(3)
    state = core.initial_state(2)
    shapes = {name: list(leaf.shape) for name, leaf in named_leaves(state)}
    assert shapes == {
        "layers.0.h": [2, 1, 8],
        "layers.1.window": [2, 1, 5, 8],
        "layers.1.count": [2],
        "layers.2.h": [2, 1, 8],
    }
    assert core.largest_counters() == {"layers.1.count": 5}
    clock = torch.arange(4)[None]
    assert list(core.recalled_steps(clock)) == ["layers.1.layers.0.tap"]


def test_every_layer_adds_to_the_stream_of_those_before():
    torch.manual_seed(0)
    core = HybridConfig(dim=8, layers=("gru", "memoryless"), num_heads=2).build(8)
    inputs, first = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    x, state = inputs, core.initial_state(2)
    for norm, layer, own in zip(core.norms, core.layers, state.layers, strict=True):
        x = x + layer(norm(x), own, first)[0]
    torch.testing.assert_close(core(inputs, state, first)[0], core.norm(x))
