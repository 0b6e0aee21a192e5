import math

import pytest
import torch

from recollect.layers.feedforward import FeedForward, input_projection
from recollect.layers.gates import GRUGate, ResidualGate, make_gate
from recollect.layers.positions import LearnedPositions, sinusoid


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("dim", [6, 7])
def test_sinusoid_equals_its_formula(layout, dim):
    table = sinusoid(torch.tensor([0.0, 3.0, 250.0], dtype=torch.float64), dim, layout)
    waves = math.ceil(dim / 2)
    for row, position in enumerate([0.0, 3.0, 250.0]):
        for j in range(waves):
            angle = position * 10000.0 ** (-2 * j / dim)
            sine, cosine = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, waves + j)
            assert table[row, sine].item() == pytest.approx(math.sin(angle))
            if cosine < dim:
                assert table[row, cosine].item() == pytest.approx(math.cos(angle))


def test_gru_gate_follows_its_equations():
    gate = GRUGate(4).double()
    torch.nn.init.normal_(gate.bias)
    x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    w_r, w_z, w_h = gate.from_update.weight.chunk(3)
    u_r, u_z = gate.from_stream.weight.chunk(2)
    reset = torch.sigmoid(y @ w_r.T + x @ u_r.T)
    z = torch.sigmoid(y @ w_z.T + x @ u_z.T - gate.bias)
    candidate = torch.tanh(y @ w_h.T + (reset * x) @ gate.from_reset.weight.T)
    torch.testing.assert_close(gate(x, y), (1 - z) * x + z * candidate)


def test_a_fresh_gru_gate_is_close_to_the_identity():
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    assert (make_gate("gru", 16)(x, y) - x).abs().mean() < 0.25
    torch.testing.assert_close(make_gate("residual", 16)(x, y), x + y)
    assert isinstance(make_gate("residual", 16), ResidualGate)


def test_feedforward_and_projection():
    block = FeedForward(4, 8, activation="relu", out_dim=3)
    x = torch.randn(2, 4)
    expected = (x @ block.expand.weight.T + block.expand.bias).relu() @ block.contract.weight.T + block.contract.bias
    torch.testing.assert_close(block(x), expected)
    assert isinstance(input_projection(4, 4), torch.nn.Identity)
    assert input_projection(4, 5)(x).shape == (2, 5)


def test_learned_positions_are_rows_of_a_trained_table():
    positions = LearnedPositions(5, 3)
    out = positions(torch.tensor([[0, 4], [4, 4]]))
    assert out.shape == (2, 2, 3) and torch.equal(out[0, 1], positions.table[4])
    out.sum().backward()
    assert positions.table.grad[4].tolist() == [3.0, 3.0, 3.0]
