"""A block of steps is those steps one by one: for every core, beyond its window, and where episodes begin inside."""

import re

import numpy as np
import pytest
import torch

from recollect.certify.loading import from_config, small_config
from recollect.cores import CORES
from recollect.cores.stream import LONGEST_BLOCK
from recollect.layers.tap import listen
from recollect.state import leaves

BEYOND = [
    CORES["causal-transformer"](dim=8, num_layers=2, num_heads=2, memory_len=4, positions=positions)
    for positions in ("rotary", "bias", "none")
]
BEYOND += [
    CORES["transformer-xl"](dim=8, num_layers=2, num_heads=2, memory_len=4, gate="gru"),
    CORES["transformer-xl"](dim=8, num_layers=1, num_heads=2, memory_len=5, top_k=2),
    CORES["tlb"](dim=8, num_layers=2, num_heads=2, chunk_len=5, num_slots=2, self_per_cross=1),
]


def made(config, dtype=torch.float64):
    torch.manual_seed(0)
    return from_config(config, name="core").core.eval().to(dtype)


def compare(core, lengths, first, rows=3):
    """Blocks of these lengths against single steps, with ``first [b, t]``; both streams, afterwards."""
    inputs = torch.randn(rows, first.shape[1], *core.input_shape, dtype=next(core.parameters()).dtype)
    singly, blocks = core.stream(rows), core.stream(rows)
    want = torch.stack([singly.step(x, f) for x, f in zip(inputs.unbind(1), first.unbind(1), strict=True)], 1)
    parts, flags = inputs.split(lengths, 1), first.split(lengths, 1)
    got = torch.cat([blocks.unroll(x, f) for x, f in zip(parts, flags, strict=True)], 1)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)
    for one, other in zip(leaves(singly.state), leaves(blocks.state), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-10)
    return singly, blocks


def starts(rows, steps, *places):
    first = torch.zeros(rows, steps, dtype=torch.bool)
    for row, step in places:
        first[row, step] = True
    return first


@pytest.mark.parametrize("config", BEYOND, ids=lambda config: type(config).__name__)
@pytest.mark.parametrize("lengths", [[3] * 7, [1, 2, 6, 1, 11], [21]])
def test_windows_and_chunks_that_end_inside_a_block(config, lengths):
    core = made(config)
    compare(core, lengths, starts(3, 21))
    compare(core, lengths, starts(3, 21, (0, 1), (1, 7), (2, 7), (0, 16)))
    compare(core, lengths, starts(3, 21, (0, 13), (1, 13), (2, 13)))  # all rows forget


@pytest.mark.parametrize("key", CORES)
def test_every_core(key):
    core = made(small_config(CORES[key]))
    first = starts(2, 8, (1, 4))
    singly, blocks = compare(core, [3, 3, 2], first, rows=2)
    x = torch.randn(2, 2, *core.input_shape, dtype=torch.float64)
    want = torch.stack([singly.step(x[:, 0]), singly.step(x[:, 1])], 1)
    torch.testing.assert_close(blocks.unroll(x), want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("config", BEYOND[:5], ids=lambda config: type(config).__name__)
def test_listeners_hear_the_window_of_every_step(config):
    core, inputs = made(config), torch.randn(2, 9, 10, dtype=torch.float64)
    heard: tuple[list[torch.Tensor], ...] = ([], [])
    for weights, lengths in zip(heard, (1, 3), strict=True):
        stream = core.stream(2)
        with listen(core, lambda name, found, to=weights: to.append(found) if name == "layers.0.tap" else None):
            for part in inputs.split(lengths, 1):
                stream.unroll(part)
    singly, blocks = (torch.cat(weights, 2) for weights in heard)
    torch.testing.assert_close(blocks, singly, rtol=1e-9, atol=1e-10)


def test_longer_calls_than_a_block():
    compare(made(BEYOND[0]), [2 * LONGEST_BLOCK + 3], starts(1, 2 * LONGEST_BLOCK + 3), rows=1)


@pytest.mark.parametrize("key", ["gru", "tlb", "causal-transformer"])
def test_a_broken_step_is_seen_at_its_place_and_forgotten(key):
    core = made(small_config(CORES[key]))
    inputs = torch.randn(2, 4, *core.input_shape, dtype=torch.float64)
    inputs[1, 2, 0] = torch.nan
    singly, blocks = core.stream(2), core.stream(2)
    want = torch.stack([singly.step(x) for x in inputs.unbind(1)], 1)
    got = blocks.unroll(inputs)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert got[1, 2].isnan().all() and got.isnan().flatten(2).any(-1).sum() == 1


def test_numpy_in_numpy_out():
    core = made(BEYOND[0], torch.float32)
    inputs, first = np.random.default_rng(0).normal(size=(2, 3, *core.input_shape)), np.zeros((2, 3), bool)
    first[0, 1] = True
    got = core.stream(2).unroll(inputs, first)
    want = core.stream(2).unroll(torch.tensor(inputs, dtype=torch.float32), torch.tensor(first))
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "first", "message"),
    [
        (torch.zeros(2, 10), None, "inputs have shape [2, 10]; 10 steps of this stream are [2, 10, 10]"),
        (torch.zeros(2, 0, 10), None, "inputs have shape [2, 0, 10]: give at least one step"),
        (torch.zeros(2, 3, 10).double(), None, "inputs are torch.float64; this stream computes in torch.float32"),
        (torch.zeros(2, 3, 10), torch.zeros(2, dtype=torch.bool), "is_first has shape [2]; this stream takes [2, 3]"),
    ],
)
def test_mistakes_are_named(inputs, first, message):
    core = from_config(small_config(CORES["gru"]), name="gru").core.eval()
    with pytest.raises(ValueError, match=re.escape(message)):
        core.stream(2).unroll(inputs, first)
