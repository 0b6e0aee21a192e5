"""A core whose state is one array of bytes per row, against a literal loop, whatever happens between its steps."""

import copy

import pytest
import torch

from recollect import GRUConfig, HierarchicalChunkMemoryConfig, LSTMConfig, TokenTuringMachineConfig
from recollect.adapters.packed_core import PackedCore
from recollect.state import take_rows

CORES = {
    "hcam": HierarchicalChunkMemoryConfig(
        dim=16, num_layers=1, num_heads=2, memory_len=4, chunk_len=4, num_chunks=4, top_k=2
    ),
    "lstm": LSTMConfig(dim=16, num_layers=1, learned_initial_state=True),
}
ROWS, STEPS = 3, 23


@pytest.mark.parametrize("between", ["nothing", "other rows", "new weights", "other module", "zeros", "swapped rows"])
@pytest.mark.parametrize("key", CORES)
@torch.no_grad()
def test_steps_are_a_loop_over_the_core(key, between):
    packed = PackedCore(CORES[key].build(4))
    core, loads = packed.core, []
    original = type(core).stream
    object.__setattr__(core, "stream", lambda rows: loads.append(rows) or original(core, rows))
    inputs, is_first = torch.randn(ROWS, STEPS, 4), torch.rand(ROWS, STEPS) < 0.2
    state, content = core.initial_state(ROWS), torch.zeros(ROWS, packed.width, dtype=torch.uint8)
    for t in range(STEPS):
        step = (inputs[:, t : t + 1], is_first[:, t : t + 1])
        given = step[1]
        if t % 5 == 4:
            if between == "other rows":
                packed(torch.randn(1, 1, 4), content[:1], step[1][:1])
                packed(torch.randn(ROWS, 1, 4), content, step[1])
            elif between == "new weights":
                next(core.parameters()).add_(0.1)
            elif between == "other module":
                packed = copy.deepcopy(packed)
                core = packed.core
            elif between == "zeros":
                content = content.clone()
                content[1] = 0
                given = step[1].clone()
                given[1], step[1][1] = False, True
            elif between == "swapped rows":
                order = torch.tensor([2, 0, 1])
                content, state = content[order], take_rows(state, order)
        expected, state = core(step[0], state, step[1])
        outputs, content = packed(step[0], content, given)
        torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    if between in ("nothing", "zeros"):
        assert len(loads) == 1, "one stream goes on"


def test_rows_have_gradients_and_continue_from_steps():
    packed = PackedCore(GRUConfig(dim=8, num_layers=1).build(4))
    inputs, never = torch.randn(ROWS, STEPS, 4), torch.zeros(ROWS, STEPS, dtype=torch.bool)
    content = torch.zeros(ROWS, packed.width, dtype=torch.uint8)
    expected, _ = packed.core(inputs, packed.core.initial_state(ROWS), never)
    with torch.no_grad():
        for t in range(5):
            _, content = packed(inputs[:, t : t + 1], content, never[:, :1])
    outputs, after = packed(inputs[:, 5:], content, never[:, 5:])
    torch.testing.assert_close(outputs, expected[:, 5:], atol=1e-5, rtol=1e-5)
    outputs.sum().backward()
    assert all(weight.grad is not None for weight in packed.core.parameters())
    assert after.shape == content.shape and after.dtype == torch.uint8


def test_a_core_of_several_tokens_is_named():
    with pytest.raises(ValueError, match="core='TokenTuringMachine': use a core that reads and gives one vector"):
        PackedCore(TokenTuringMachineConfig(num_tokens=4).build(4))
