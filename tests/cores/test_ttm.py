import dataclasses
import random
from contextlib import nullcontext

import pytest
import torch
from samples import ttm as samples
from torch.utils.flop_counter import FlopCounterMode
from ttm_problems import assert_equals_plain_form, problem

from recollect.cores.ttm import TokenTuringMachineConfig, reference
from recollect.cores.ttm import core as ttm_core
from recollect.cores.ttm.core import TokenTuringMachineState
from recollect.cores.ttm.erase_add import EraseAdd
from recollect.layers.tap import listen
from recollect.ops import fused_pooling

TINY = TokenTuringMachineConfig(dim=8, num_tokens=3, num_slots=5, num_reads=2, num_heads=2, hidden_dim=12)


def options():
    for summarizer in ("mlp", "latent_query", "mha", "pooling"):
        for positions in ("paper", "released", "none"):
            yield dataclasses.replace(TINY, summarizer=summarizer, positions=positions)
    for processor in ("transformer", "mixer", "mlp"):
        for memory in ("token_summary", "erase_add", "erase_add_released", "concatenate", "sample", "none"):
            slots = 6 if memory in ("concatenate", "sample") else 5
            yield dataclasses.replace(
                TINY,
                processor=processor,
                memory=memory,
                num_slots=slots,
                learned_initial_state=processor == "mixer",
                num_layers=2,
            )
        for memory in ("concatenate", "sample", "none"):
            yield dataclasses.replace(
                TINY, processor=processor, memory=memory, summarizer="none", num_slots=6, num_reads=3
            )
    rng = random.Random(0)
    yield from (samples.sample(rng) for _ in range(4))


def use(path, core, monkeypatch):
    """Take one of the three ways to the same numbers, whatever the sizes ask for."""
    core.hoists = path != "loop" and not core.reads_all
    monkeypatch.setattr(fused_pooling, "MIN_SIZE", 0 if path == "fused" else 1 << 60)
    monkeypatch.setattr(fused_pooling, "_blocks", lambda tokens: [range(0, 2), range(2, 3)][: tokens.shape[1] - 1])


@pytest.mark.parametrize(
    "config", list(options()), ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}-{c.positions}"
)
@pytest.mark.parametrize(("path", "input_dim"), [("loop", 4), ("hoisted", 8)])
def test_fast_path_equals_the_plain_form_in_values_and_gradients(config, path, input_dim, monkeypatch):
    core, inputs, state, is_first = problem(config, input_dim)
    use(path, core, monkeypatch)
    assert_equals_plain_form(core, inputs, state, is_first)


@pytest.mark.parametrize("positions", ["paper", "released", "none"])
@pytest.mark.parametrize("memory", ["token_summary", "erase_add", "none"])
@pytest.mark.parametrize(("input_dim", "frozen"), [(4, False), (8, False), (8, True)])
def test_fused_path_equals_the_plain_form_in_values_and_gradients(positions, memory, input_dim, frozen, monkeypatch):
    core, inputs, state, is_first = problem(dataclasses.replace(TINY, positions=positions, memory=memory), input_dim)
    inputs.requires_grad_(not frozen)
    use("fused", core, monkeypatch)
    assert core.step_weights(inputs).fused is not None
    assert_equals_plain_form(core, inputs, state, is_first)


@pytest.mark.parametrize("path", ["loop", "hoisted", "fused"])
@pytest.mark.parametrize("config", samples.CONFIGS, ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}")
def test_flops_are_those_that_a_stream_spends(config, path, monkeypatch):
    core = config.build(4).double()
    use(path, core, monkeypatch)
    if config.num_tokens != 3 and path == "fused":
        monkeypatch.setattr(fused_pooling, "_blocks", lambda tokens: [range(tokens.shape[1])])
    stream = core.stream(1)
    inputs = torch.randn(1, *core.input_shape, dtype=torch.float64)
    counter = FlopCounterMode(display=False)
    with listen(core.process, lambda *_: None) if config.processor == "transformer" else nullcontext(), counter:
        stream.step(inputs)
    assert core.flops_per_step() == counter.get_total_flops()


@pytest.mark.parametrize("path", ["hoisted", "fused"])
@pytest.mark.parametrize("config", samples.CONFIGS[:8], ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}")
def test_stream_equals_sequence(config, path, monkeypatch):
    core, inputs, state, is_first = problem(config, steps=12)
    use(path, core, monkeypatch)
    monkeypatch.setattr(fused_pooling, "_blocks", lambda tokens: [range(tokens.shape[1])])
    outputs, new = core(inputs, state, is_first)
    stream = core.stream(2)
    stream.load_state(TokenTuringMachineState(state.memory.detach()))
    for t in range(12):
        first = is_first[:, t] if is_first[:, t].any() else None
        torch.testing.assert_close(stream.step(inputs[:, t].detach(), first), outputs[:, t], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(stream.state.memory, new.memory, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha", "pooling"])
@pytest.mark.parametrize("positions", ["paper", "released", "none"])
@pytest.mark.parametrize("path", ["loop", "hoisted", "fused"])
def test_taps_record_weights_that_sum_to_one_and_change_nothing(summarizer, positions, path, monkeypatch):
    config = dataclasses.replace(TINY, summarizer=summarizer, positions=positions)
    core, inputs, state, is_first = problem(config, steps=3)
    use(path, core, monkeypatch)
    outputs, new = core(inputs, state, is_first)
    recorded = {}
    with listen(core, lambda name, weights: recorded.setdefault(name, []).append(weights)):
        tapped, tapped_new = core(inputs, state, is_first)
    torch.testing.assert_close(tapped, outputs)
    torch.testing.assert_close(tapped_new, new)
    for name, offered in (("read.tap", 5 + 3), ("write.tap", 5 + 2 + 3)):
        assert len(recorded[name]) == 3
        for weights in recorded[name]:
            assert weights.shape[-1] == offered
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert len(recorded["process.blocks.0.attention.tap"]) == 3


@torch.no_grad()
def test_taps_record_a_fused_stream_only_while_they_listen(monkeypatch):
    core, inputs, state, is_first = problem(TINY, steps=3)
    use("fused", core, monkeypatch)
    want, _ = core(inputs, state, is_first)
    fused = []
    monkeypatch.setattr(ttm_core, "fused_pooling", lambda *args: fused.append(1) or fused_pooling.fused_pooling(*args))
    recorded = []
    with listen(core, lambda name, weights: recorded.append(name)):
        streams = [core.stream(2)]  # made while somebody listens
    streams.append(core.stream(2))
    for stream in streams:
        stream.load_state(state)
        stream.step(inputs[:, 0], is_first[:, 0])
        assert fused and not recorded
        fused.clear()
        with listen(core, lambda name, weights: recorded.append(name)):
            output = stream.step(inputs[:, 1], is_first[:, 1])
        assert {"read.tap", "write.tap"} <= set(recorded) and not fused
        recorded.clear()
        torch.testing.assert_close(output, want[:, 1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("path", ["loop", "hoisted"])
def test_the_weights_that_a_tap_records_are_those_of_the_equations(path, monkeypatch):
    core, inputs, state, _ = problem(TINY, batch=1, steps=1)
    use(path, core, monkeypatch)
    recorded = {}
    with listen(core, lambda name, weights: recorded.update({name: weights})):
        _, new = core(inputs, state, torch.zeros(1, 1, dtype=torch.bool))
    tokens = reference.project(core.project, inputs[0, 0])
    seen = torch.cat((state.memory[0], tokens)) + core.read_table
    weights = reference.mlp(core.read.net, core.read.norm(seen)).T.softmax(-1)
    torch.testing.assert_close(recorded["read.tap"][0], weights)
    outputs, _ = core.reference_unroll(inputs, state, torch.zeros(1, 1, dtype=torch.bool))
    offered = torch.cat((state.memory[0], outputs[0, 0], tokens)) + core.write_table
    torch.testing.assert_close(recorded["write.tap"][0] @ offered, new.memory[0])


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha"])
@pytest.mark.parametrize("processor", ["transformer", "mixer", "mlp"])
def test_the_order_of_input_tokens_matters_only_through_the_tables(summarizer, processor):
    for positions, same in (("none", True), ("paper", False), ("released", False)):
        config = dataclasses.replace(TINY, summarizer=summarizer, processor=processor, positions=positions)
        core, inputs, state, is_first = problem(config)
        outputs, _ = core(inputs, state, is_first)
        shuffled, _ = core(inputs[:, :, [2, 0, 1]], state, is_first)
        assert torch.allclose(outputs, shuffled, atol=1e-10) is same


@pytest.mark.parametrize("memory", ["none", "erase_add", "erase_add_released", "concatenate"])
def test_all_memories_agree_at_the_first_step_and_not_later(memory):
    plain, inputs, _, _ = problem(dataclasses.replace(TINY, num_slots=6))
    other = dataclasses.replace(plain.config, memory=memory).build(4).double()
    shared = {name: value for name, value in plain.state_dict().items() if not name.startswith("write")}
    missing = other.load_state_dict(shared, strict=False).missing_keys
    assert all(name.startswith("erase_add.") for name in missing)
    never = torch.zeros(2, 5, dtype=torch.bool)
    want, _ = plain(inputs, plain.initial_state(2), never)
    got, state = other(inputs, other.initial_state(2), never)
    torch.testing.assert_close(got[:, 0], want[:, 0])
    assert not torch.allclose(got[:, 1], want[:, 1], atol=1e-4)
    if memory == "none":
        assert not state.memory.any()
        alone, _ = other(inputs, other.initial_state(2), torch.ones_like(never))
        torch.testing.assert_close(alone, got)
    if memory == "concatenate":
        torch.testing.assert_close(state.memory, reference.project(other.project, inputs[:, -2:]).flatten(1, 2))


def test_erase_and_add_needs_a_power_of_two_of_heads():
    """Their factors are multiplied in pairs."""
    with pytest.raises(ValueError, match="num_heads=6: give a power of two"):
        EraseAdd(8, 2, num_heads=6)
