import pytest
import torch
from largest_tensor import LargestTensor
from torch import nn

from recollect.cores.feedback import FeedbackTransformerConfig
from recollect.cores.feedback.attention import LoopLayer
from recollect.layers.tap import listen


def prepared(config, b=3, t=9, input_dim=5):
    core = config.build(input_dim).double()
    for parameter in core.parameters():
        nn.init.normal_(parameter, std=0.7)
    inputs = torch.randn(b, t, input_dim, dtype=torch.double, requires_grad=True)
    count = torch.randint(0, config.memory_len + 1, (b,))
    valid = torch.arange(config.memory_len, 0, -1) <= count[:, None]
    memory = torch.where(valid[..., None], torch.randn(b, config.memory_len, config.dim, dtype=torch.double), 0.0)
    state = core.initial_state(b)._replace(memory=memory.requires_grad_(), count=count)
    return core, inputs, state, torch.rand(b, t) < 0.2


@pytest.mark.parametrize("memory_len", [20, 40])
def test_blocks_of_a_long_call_change_nothing(memory_len):
    config = FeedbackTransformerConfig(dim=8, num_heads=2, num_layers=2, memory_len=memory_len)
    core, inputs, state, is_first = prepared(config, b=2, t=50)
    is_first = is_first & (torch.rand(2, 50) < 0.2)
    outputs, new = core(inputs, state, is_first)
    want, (memory, count) = core.reference_unroll(inputs, state, is_first)
    torch.testing.assert_close(outputs, want, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(new.memory, memory, rtol=1e-9, atol=1e-10)
    assert torch.equal(new.count, count)


@torch.no_grad()
def test_the_largest_tensor_of_a_call_grows_with_its_steps_and_not_with_their_square():
    config = FeedbackTransformerConfig(dim=8, num_heads=2, num_layers=1, memory_len=4)
    sizes = []
    for t in (50, 200):
        core, inputs, state, is_first = prepared(config, b=1, t=t)
        with LargestTensor() as largest:
            core(inputs, state, is_first)
        sizes.append(largest.numbers)
    assert sizes[1] <= 4 * sizes[0]


def test_a_listening_tap_changes_nothing_and_records_which_memories_were_read():
    config = FeedbackTransformerConfig(dim=8, num_heads=2, memory_len=4)
    core, inputs, state, is_first = prepared(config, t=9)
    recorded = {}
    quiet = core(inputs, state, is_first)[0]
    with listen(core, recorded.__setitem__) as names:
        assert torch.equal(core(inputs, state, is_first)[0], quiet)
    assert sorted(recorded) == sorted(names) == ["layers.0.tap", "layers.1.tap"]
    for weights in recorded.values():
        assert weights.shape == (3, 2, 9, 4 + 9)
        for row in range(3):
            past = [True] * int(state.count[row])
            for step in range(9):
                past = [] if is_first[row, step] else past
                seen = min(len(past), 4)
                read = weights[row, :, step].gt(0).any(0).nonzero().flatten().tolist()
                assert read == list(range(4 + step - seen, 4 + step))
                past = [*past, True]


def test_the_first_step_of_an_episode_reads_exactly_nothing():
    config = FeedbackTransformerConfig(dim=8, num_heads=2, num_layers=1, norm="pre", dropout=0.0)
    core, inputs, _, _ = prepared(config, t=1)
    x = core.project(inputs)
    layer = core.layers[0]
    want = core.norm(x + layer.feedforward(layer.feedforward_norm(x)))
    torch.testing.assert_close(core(inputs, core.initial_state(3), torch.ones(3, 1).bool())[0], want)


def test_every_layer_reads_the_top_of_the_past(monkeypatch):
    # The feedback: what the first layer reads at step 1 moves with the last layer's weights.
    config = FeedbackTransformerConfig(dim=8, num_heads=2, num_layers=3)
    core, inputs, _, _ = prepared(config, t=2)
    read = []
    finish = LoopLayer.finish

    def record(self, x, heads):
        if self.layer is core.layers[0]:
            read.append(heads)
        return finish(self, x, heads)

    monkeypatch.setattr(LoopLayer, "finish", record)
    core(inputs, core.initial_state(3), torch.zeros(3, 2).bool())
    last = core.layers[-1].feedforward.contract.weight
    assert len(read) == 2 and read[0].eq(0).all()
    assert torch.autograd.grad(read[1].sum(), last)[0].abs().sum() > 0
