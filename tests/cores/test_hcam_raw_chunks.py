"""Chunks of a stream that are read raw: the same numbers as from keys and values, in any rows, and half the bytes."""

import pytest
import torch
from samples import hcam as samples
from test_hcam import data, make

from recollect.certify import certify, from_config
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.hcam.raw_chunks import MANY_ROWS, RawChunks, prefers_raw
from recollect.layers.tap import listen
from recollect.state import leaves
from tiers import first

CONFIGS = [config for config in samples.CONFIGS if not config.stream_gathers]
ROWS = 6
LINES = ["stream", "state-bytes", "row-subset", "copies", "save-load", "weights", "bfloat16"]


@pytest.fixture
def force(monkeypatch):
    """Let streams that are made from here on read raw steps, or keys and values."""
    return lambda is_raw: monkeypatch.setattr("recollect.cores.hcam.stream.prefers_raw", lambda *_: is_raw)


def streams_of(core, force, rows=ROWS, **formats):
    found = []
    for is_raw in (False, True):
        force(is_raw)
        found.append(core.stream(rows, **formats))
    assert [isinstance(stream._caches[0], RawChunks) for stream in found] == [False, True]
    return found


@pytest.mark.parametrize(("number", "config"), first(1, list(enumerate(CONFIGS))), ids=str)
def test_certificate(number, config, force):
    force(True)
    card = certify(from_config(config, name="hcam", input_dim=7), lines=LINES, seed=number, quick=True)
    assert card.passed, str(card)


@pytest.mark.parametrize("config", first(9, CONFIGS), ids=str)
def test_numbers_are_those_from_keys_and_values(config, force):
    core = make(config)
    inputs, _ = data(ROWS, 60)
    draws = torch.Generator().manual_seed(5)
    streams = streams_of(core, force)
    for t in range(60):
        some = torch.randperm(ROWS, generator=draws)[: 1 + t % ROWS]
        begins = torch.rand(len(some), generator=draws) < 0.04
        if t % 10 == 9:
            calls = [lambda s, x=inputs[:, t]: s.step(x)]
        else:
            calls = [lambda s, x=inputs[some, t], r=some, f=begins: s.step_rows(x, r, f)]
        if t % 13 == 12:  # a fork has its chunks at other places
            streams = [stream.fork() for stream in streams]
        for call in calls:
            torch.testing.assert_close(*map(call, streams), rtol=1e-9, atol=1e-9)
    for one, other in zip(*(leaves(stream.state) for stream in streams), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", first(3, CONFIGS), ids=str)
def test_recorded_weights_are_those_from_keys_and_values(config, force):
    core = make(config)
    inputs, _ = data(ROWS, 30)
    seen = []
    for stream in streams_of(core, force):
        for t in range(29):
            stream.step(inputs[:, t])
        heard = {}
        with listen(core, heard.setdefault):
            stream.step_rows(inputs[[3, 1], 29], [3, 1])
        for name in [name for name in heard if name.endswith("memory.tap")]:  # b h t n c; of chunks that are read
            relevance = heard[name.removesuffix("tap") + "relevance_tap"]
            relevance = relevance if config.reading.relevance_heads else relevance.unsqueeze(1)  # b (1 or h) t n
            heard[name] = heard[name] * (relevance > 0).unsqueeze(-1)
        seen.append(heard)
    assert seen[0].keys() == seen[1].keys()
    assert any(name.endswith("memory.tap") for name in seen[0])
    for name, record in seen[0].items():
        torch.testing.assert_close(record, seen[1][name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cache", ["float32", "bfloat16"])
def test_a_broken_step_changes_no_bit_of_other_rows(cache, force):
    core = make(CONFIGS[1]).float()
    inputs = data(ROWS, 40)[0].float()
    force(True)
    ends = []
    for value in (0.0, torch.nan, torch.inf):
        stream = core.stream(ROWS, **({} if cache == "float32" else {"cache": cache}))
        given, outputs = inputs.clone(), []
        given[2, 5::7] = value
        outputs = [stream.step_rows(given[[4, 2, 0, 5], t], [4, 2, 0, 5]) for t in range(40)]
        ends.append([torch.stack(outputs)[:, [0, 2, 3]], *leaves(stream.state)])
    for other in ends[1:]:
        assert all(map(torch.equal, ends[0], other))


@pytest.mark.parametrize("is_raw", [False, True])
def test_rows_are_read_in_groups_without_another_number(is_raw, force, monkeypatch):
    core = HierarchicalChunkMemoryConfig(
        dim=8, num_layers=2, num_heads=2, memory_len=3, chunk_len=2, num_chunks=3, top_k=3, carry_across_episodes=True
    ).build(4)
    force(is_raw)
    inputs, begins = torch.randn(20, 5, 4), torch.rand(20, 5) < 0.1
    answers = []
    for size in (1 << 24, 1):
        monkeypatch.setattr("recollect.cores.hcam.chunk_cache.COPY", size)
        stream = core.eval().stream(7)
        answers.append(
            torch.stack([stream.step_rows(x, [6, 0, 3, 1, 4], f) for x, f in zip(inputs, begins, strict=True)])
        )
    assert torch.equal(*answers)


@pytest.mark.parametrize("is_raw", [False, True])
def test_states_of_any_filling_are_given_back_and_go_on_as_in_a_call(is_raw, force):
    config = HierarchicalChunkMemoryConfig(**samples.TINY | {"num_chunks": 5, "top_k": 5})
    core = make(config)
    force(is_raw)
    for steps in (1, 4, 9, 40):
        inputs, is_first = data(ROWS, steps + 25, rate=0.0)
        is_first[1, steps // 2] = True  # rows with different numbers of chunks
        state = core(inputs[:, :steps], core.initial_state(ROWS), is_first[:, :steps])[1]
        if steps == 40:  # a chunk that was removed
            lengths = state.lengths.clone()
            lengths[0, 2] = 0
            state = state._replace(lengths=lengths)
            layers = [
                layer._replace(contents=layer.contents.clone(), keys=layer.keys.clone()) for layer in state.layers
            ]
            for layer in layers:
                layer.contents[0, 2], layer.keys[0, 2] = 0.0, 0.0
            state = state._replace(layers=tuple(layers))
        stream = core.stream(ROWS)
        stream.load_state(state)
        for kept, given in zip(leaves(stream.state), leaves(state), strict=True):
            assert torch.equal(kept, given)
        expected = core(inputs[:, steps:], state, is_first[:, steps:])[0]
        for t in range(25):
            out = stream.step_rows(inputs[:, steps + t], range(ROWS), is_first[:, steps + t])
            torch.testing.assert_close(out, expected[:, t].detach())


def test_raw_steps_are_chosen_for_many_rows_that_read_all_chunks():
    config = HierarchicalChunkMemoryConfig(
        dim=64, num_heads=4, memory_len=8, chunk_len=8, num_chunks=33, top_k=33, num_layers=1
    )
    assert prefers_raw(config, MANY_ROWS)
    assert not prefers_raw(config, MANY_ROWS - 1)
    core = config.build(64).eval()
    many, few = core.stream(MANY_ROWS), core.stream(1)
    assert many.nbytes / MANY_ROWS < few.nbytes / 2
    with torch.autocast("cpu", torch.bfloat16):  # would have to be converted in every step
        assert not isinstance(core.stream(MANY_ROWS)._caches[0], RawChunks)
