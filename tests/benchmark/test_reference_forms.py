from pathlib import Path

import pytest
import torch
from torch import nn

from recollect.cores import CORES
from recollect.cores.hcam.attention import HierarchicalAttention

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def gradients(module, output):
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    module.zero_grad()
    (output * weight).sum().backward()
    return [p.grad for p in module.parameters() if p.grad is not None]


def assert_same_computation(module, ours, other):
    torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-9)
    for a, b in zip(gradients(module, ours), gradients(module, other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("chunk", [3, 6])
def test_the_chunk_loop_computes_what_the_bottleneck_computes(chunk):
    from reference_forms import chunk_loop

    core = CORES["tlb"](dim=8, num_layers=2, num_heads=2, chunk_len=chunk, num_slots=3, causal=False).build(8).double()
    inputs = torch.randn(2, 12, 8).double()
    outputs, slots = chunk_loop(core, inputs)
    ours, state = core.encode(inputs)
    torch.testing.assert_close(ours, outputs, rtol=1e-9, atol=1e-9)
    assert_same_computation(core, state.slots[:, 0], slots)


def test_the_turing_loop_computes_what_the_token_turing_machine_computes():
    from reference_forms import turing_loop

    core = CORES["ttm"](dim=8, num_tokens=7, num_slots=5, num_reads=3, num_heads=2).build(8).double()
    inputs, never = torch.randn(2, 4, 7, 8).double(), torch.zeros(2, 4, dtype=torch.bool)
    state = core.initial_state(2)
    assert_same_computation(core, core(inputs, state, never)[0], turing_loop(core, inputs, state.memory)[0])


def test_gathering_computes_what_hierarchical_attention_computes():
    from reference_forms import gather_and_project

    attention = HierarchicalAttention(8, 2, 3).double()
    queries, contents = torch.randn(2, 5, 8).double(), torch.randn(2, 6, 4, 8).double()
    keys = contents.mean(2)
    assert_same_computation(
        attention, attention(queries, keys, contents), gather_and_project(attention, queries, keys, contents)
    )


def test_cells_and_the_loop_compute_what_nn_lstm_computes():
    from reference_forms import CellStream, lstm_loop

    lstm, inputs = nn.LSTM(4, 6, 2), torch.randn(5, 2, 4)
    want = lstm(inputs)[0]
    stream = CellStream(lstm, 2)
    torch.testing.assert_close(torch.stack([stream.step(step) for step in inputs]), want)
    is_first = torch.zeros(2, 5, dtype=torch.bool)
    torch.testing.assert_close(lstm_loop(lstm, inputs, is_first), want)
    is_first[:, 2] = True
    torch.testing.assert_close(lstm_loop(lstm, inputs, is_first)[2:], lstm(inputs[2:])[0])


@pytest.mark.long
def test_every_pair_of_our_own_runs_in_small():
    from pairs import Shape, measure_pair
    from ratios import OWN

    class Options:
        repeats, seconds = 2, 0.1

    for pair in OWN:
        row = measure_pair(pair, Shape().quick(), "f32", Options)
        assert row["lowest"] <= row["ratio"] <= row["highest"] and len(row["ours_us"]) == len(row["other_us"])
