import pytest
import torch
from samples.memoryless import CONFIGS
from torch import nn

from recollect.cores.memoryless import MemorylessConfig
from recollect.state import nbytes


@pytest.mark.parametrize("config", [c for c in CONFIGS if not c.dropout], ids=str)
@pytest.mark.parametrize("input_dim", [5, 8])
def test_equals_the_plain_form_in_values_and_gradients(config, input_dim):
    core = config.build(input_dim).double()
    for parameter in core.parameters():
        nn.init.normal_(parameter)
    inputs = torch.randn(2, 4, input_dim, dtype=torch.double, requires_grad=True)
    outputs, _ = core(inputs, core.initial_state(2), torch.rand(2, 4) < 0.3)
    want, _ = core.reference_unroll(inputs, core.initial_state(2), torch.zeros(2, 4).bool())
    torch.testing.assert_close(outputs, want, rtol=1e-10, atol=1e-11)
    wrt = [inputs, *core.parameters()]
    got, expected = (torch.autograd.grad(y.sin().sum(), wrt) for y in (outputs, want))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_the_plain_form_refuses_dropout():
    core = MemorylessConfig(dim=8, dropout=0.1).build(5)
    arguments = torch.randn(2, 4, 5), core.initial_state(2), torch.zeros(2, 4).bool()
    with pytest.raises(ValueError, match=r"dropout=0\.1.*core\.eval"):
        core.reference_unroll(*arguments)
    core.eval().reference_unroll(*arguments)


def test_an_output_depends_on_its_own_step_only():
    core = MemorylessConfig(dim=8).build(5).double()
    inputs = torch.randn(2, 4, 5, dtype=torch.double, requires_grad=True)
    outputs, state = core(inputs, core.initial_state(2), torch.zeros(2, 4).bool())
    gradient = torch.autograd.grad(outputs[:, 2].sin().sum(), inputs)[0]
    assert gradient[:, 2].abs().sum() > 0
    assert gradient[:, [0, 1, 3]].eq(0).all()
    assert nbytes(state) == 0


def test_the_stream_gives_the_same_numbers_and_holds_no_bytes(tmp_path):
    core = MemorylessConfig(dim=8).build(5).double()
    inputs = torch.randn(2, 4, 5, dtype=torch.double)
    want = core(inputs, core.initial_state(2), torch.zeros(2, 4).bool())[0]
    stream = core.stream(2)
    for step in range(4):
        torch.testing.assert_close(stream.step(inputs[:, step]), want[:, step])
    assert stream.nbytes == 0
    stream.save(tmp_path / "memory.safetensors")
    stream.load(tmp_path / "memory.safetensors")


def test_flops_are_those_of_the_products():
    # 2 * 5 * 8 for the input, and 2 * 2 * 8 * 32 for each of two layers.
    assert MemorylessConfig(dim=8).build(5).flops_per_step() == 80 + 2 * 1024


@pytest.mark.parametrize(
    ("wrong", "field", "remedy"),
    [
        ({"dim": -1}, "dim=-1", "positive"),
        ({"num_layers": 0}, "num_layers=0", "at least one"),
        ({"hidden_dim": 0}, "hidden_dim=0", "at least 1"),
        ({"dropout": -0.1}, "dropout=-0.1", "probability"),
    ],
)
def test_bad_configs_name_field_value_and_remedy(wrong, field, remedy):
    with pytest.raises(ValueError, match=remedy) as error:
        MemorylessConfig(**wrong)
    assert field in str(error.value)
