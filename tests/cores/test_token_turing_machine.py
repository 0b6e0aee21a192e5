import dataclasses
import random
from contextlib import nullcontext

import pytest
import torch
import ttm_literal as literal
from samples import ttm as samples
from torch.utils.flop_counter import FlopCounterMode
from ttm_golden import CASES, golden

from recollect.cores.ttm.core import TokenTuringMachineConfig, TokenTuringMachineState
from recollect.layers.tap import listen
from recollect.ops import fused_pooling as folding

TINY = TokenTuringMachineConfig(dim=8, num_tokens=3, num_slots=5, num_reads=2, num_heads=2, hidden_dim=12)


def problem(config, input_dim=4, batch=2, steps=5, resets=0.3):
    core = literal.scramble(config.build(input_dim).double())
    inputs = torch.randn(batch, steps, config.num_tokens, input_dim, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(batch, config.num_slots, config.dim, dtype=torch.float64, requires_grad=True)
    is_first = torch.rand(batch, steps) < resets
    return core, inputs, TokenTuringMachineState(memory), is_first


def options():
    for summarizer in ("mlp", "latent_query", "mha", "pooling"):
        for positions in ("paper", "official", "none"):
            yield dataclasses.replace(TINY, summarizer=summarizer, positions=positions)
    for processor in ("transformer", "mixer", "mlp"):
        for memory in ("token_summary", "erase_add", "erase_add_official", "concatenate", "none"):
            slots = 6 if memory == "concatenate" else 5
            yield dataclasses.replace(
                TINY,
                processor=processor,
                memory=memory,
                num_slots=slots,
                learned_start=processor == "mixer",
                num_layers=2,
            )
    rng = random.Random(0)
    yield from (samples.sample(rng) for _ in range(12))


def use(path, core, monkeypatch):
    """Take one of the three ways to the same numbers, whatever the sizes ask for."""
    core.hoists = path != "loop"
    monkeypatch.setattr(folding, "MIN_SIZE", 0 if path == "folded" else 1 << 60)
    monkeypatch.setattr(folding, "_blocks", lambda tokens: [range(0, 2), range(2, 3)][: tokens.shape[1] - 1])


@pytest.mark.parametrize(
    "config", list(options()), ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}-{c.positions}"
)
@pytest.mark.parametrize(("path", "input_dim"), [("loop", 4), ("hoisted", 8)])
def test_fast_path_equals_the_literal_loop_in_values_and_gradients(config, path, input_dim, monkeypatch):
    core, inputs, state, is_first = problem(config, input_dim)
    use(path, core, monkeypatch)
    outputs, new = core(inputs, state, is_first)
    want = literal.unroll(literal.ttm_step, core, inputs, state.memory, is_first)
    leaves = {"inputs": inputs, "memory": state.memory, **dict(core.named_parameters())}
    worst = literal.differences((outputs, new.memory), want, leaves)
    assert max(worst.values()) < 1e-9, worst


@pytest.mark.parametrize("positions", ["paper", "official", "none"])
@pytest.mark.parametrize("memory", ["token_summary", "erase_add", "none"])
@pytest.mark.parametrize(("input_dim", "frozen"), [(4, False), (8, False), (8, True)])
def test_folding_equals_the_literal_loop_in_values_and_gradients(positions, memory, input_dim, frozen, monkeypatch):
    core, inputs, state, is_first = problem(dataclasses.replace(TINY, positions=positions, memory=memory), input_dim)
    inputs.requires_grad_(not frozen)
    use("folded", core, monkeypatch)
    assert core.constants(inputs).folded is not None
    outputs, new = core(inputs, state, is_first)
    want = literal.unroll(literal.ttm_step, core, inputs, state.memory, is_first)
    leaves = {**({} if frozen else {"inputs": inputs}), "memory": state.memory, **dict(core.named_parameters())}
    worst = literal.differences((outputs, new.memory), want, leaves)
    assert max(worst.values()) < 1e-9, worst


def test_folding_keeps_precision_far_from_zero(monkeypatch):
    core = TINY.build(8)
    state, never = core.initial_state(2), torch.zeros(2, 3, dtype=torch.bool)
    inputs = torch.randn(2, 3, 3, 8) + 100.0
    results = []
    for path in ("loop", "folded"):
        use(path, core, monkeypatch)
        results.append(core(inputs, state, never)[1].memory)
    torch.testing.assert_close(*results, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("input_dim", [4, 8])
def test_folding_follows_autocast(input_dim, monkeypatch):
    core = dataclasses.replace(TINY, dim=16).build(input_dim)
    inputs = torch.randn(2, 3, 3, input_dim, requires_grad=True)
    never = torch.zeros(2, 3, dtype=torch.bool)
    results = []
    for path, half in (("loop", False), ("folded", True)):
        use(path, core, monkeypatch)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs, state = core(inputs, core.initial_state(2), never)
        gradients = torch.autograd.grad(outputs.square().sum() + state.memory.sum(), [inputs, *core.parameters()])
        results.append([outputs, state.memory, *gradients])
    for number, (exact, rounded) in enumerate(zip(*results, strict=True)):
        assert rounded.dtype == torch.float32
        if number < 3:
            assert not torch.equal(exact, rounded)
            assert (exact - rounded).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("path", ["loop", "hoisted", "folded"])
@pytest.mark.parametrize("config", samples.CONFIGS, ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}")
def test_flops_are_those_that_a_stream_spends(config, path, monkeypatch):
    core = config.build(4).double()
    use(path, core, monkeypatch)
    if config.num_tokens != 3 and path == "folded":
        monkeypatch.setattr(folding, "_blocks", lambda tokens: [range(tokens.shape[1])])
    stream = core.stream(1)
    inputs = torch.randn(1, *core.input_shape, dtype=torch.float64)
    counter = FlopCounterMode(display=False)
    with listen(core.process, lambda *_: None) if config.processor == "transformer" else nullcontext(), counter:
        stream.step(inputs)
    assert core.flops_per_step() == counter.get_total_flops()


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("simple")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_official_numbers(case, dtype):
    core, tokens, memory, want = golden(case, dtype)
    never = torch.zeros(tokens.shape[:2], dtype=torch.bool)
    outputs, state = core(tokens, TokenTuringMachineState(memory), never)
    torch.testing.assert_close(outputs, want["output"], atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(state.memory, want["memory"][:, -1], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("path", ["loop", "hoisted", "folded"])
@pytest.mark.parametrize("config", samples.CONFIGS, ids=lambda c: f"{c.memory}-{c.summarizer}-{c.processor}")
def test_stream_equals_sequence(config, path, monkeypatch):
    core, inputs, state, is_first = problem(config, steps=12)
    use(path, core, monkeypatch)
    monkeypatch.setattr(folding, "_blocks", lambda tokens: [range(tokens.shape[1])])
    outputs, new = core(inputs, state, is_first)
    stream = core.stream(2)
    stream.load_state(TokenTuringMachineState(state.memory.detach()))
    for t in range(12):
        first = is_first[:, t] if is_first[:, t].any() else None
        torch.testing.assert_close(stream.step(inputs[:, t].detach(), first), outputs[:, t], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(stream.state.memory, new.memory, atol=1e-10, rtol=1e-10)


def test_a_broken_step_is_seen_at_once_and_not_remembered():
    core, inputs, state, is_first = problem(TINY, steps=4)
    clean = inputs.detach().clone()
    clean[0, 1] = 0.0
    broken = clean.clone()
    broken[0, 1, 2, 3] = torch.inf
    want, _ = core(clean, state, is_first)
    stream, got = core.stream(2), []
    stream.load_state(TokenTuringMachineState(state.memory.detach()))
    for t in range(4):
        got.append(stream.step(broken[:, t], is_first[:, t]))
    outputs, _ = core(broken, state, is_first)
    for result in (outputs, torch.stack(got, 1)):
        assert result[0, 1].isnan().all()
        result = result.detach().clone()
        result[0, 1] = want[0, 1].detach()
        torch.testing.assert_close(result, want.detach())


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha", "pooling"])
@pytest.mark.parametrize("positions", ["paper", "official", "none"])
@pytest.mark.parametrize("path", ["loop", "hoisted", "folded"])
def test_taps_hear_weights_that_sum_to_one_and_change_nothing(summarizer, positions, path, monkeypatch):
    config = dataclasses.replace(TINY, summarizer=summarizer, positions=positions)
    core, inputs, state, is_first = problem(config, steps=3)
    use(path, core, monkeypatch)
    outputs, new = core(inputs, state, is_first)
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, []).append(weights)):
        tapped, tapped_new = core(inputs, state, is_first)
    torch.testing.assert_close(tapped, outputs)
    torch.testing.assert_close(tapped_new, new)
    for name, offered in (("read.tap", 5 + 3), ("write.tap", 5 + 2 + 3)):
        assert len(heard[name]) == 3
        for weights in heard[name]:
            assert weights.shape[-1] == offered
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert len(heard["process.blocks.0.attention.tap"]) == 3


@pytest.mark.parametrize("path", ["loop", "hoisted"])
def test_the_weights_that_a_tap_hears_are_those_of_the_equations(path, monkeypatch):
    core, inputs, state, _ = problem(TINY, batch=1, steps=1)
    use(path, core, monkeypatch)
    heard = {}
    with listen(core, lambda name, weights: heard.update({name: weights})):
        _, new = core(inputs, state, torch.zeros(1, 1, dtype=torch.bool))
    tokens = literal.linear(core.project, inputs[0, 0])
    seen = torch.cat((state.memory[0], tokens)) + core.read_table
    weights = literal.net(core.read.net, literal.norm(core.read.norm, seen)).T.softmax(-1)
    torch.testing.assert_close(heard["read.tap"][0], weights)
    outputs, _ = literal.ttm_step(core, state.memory[0], inputs[0, 0])
    offered = torch.cat((state.memory[0], outputs, tokens)) + core.write_table
    torch.testing.assert_close(heard["write.tap"][0] @ offered, new.memory[0])


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha"])
@pytest.mark.parametrize("processor", ["transformer", "mixer", "mlp"])
def test_the_order_of_input_tokens_matters_only_through_the_tables(summarizer, processor):
    for positions, same in (("none", True), ("paper", False), ("official", False)):
        config = dataclasses.replace(TINY, summarizer=summarizer, processor=processor, positions=positions)
        core, inputs, state, is_first = problem(config)
        outputs, _ = core(inputs, state, is_first)
        shuffled, _ = core(inputs[:, :, [2, 0, 1]], state, is_first)
        assert torch.allclose(outputs, shuffled, atol=1e-10) is same


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "pooling"])
def test_new_memory_lies_in_the_hull_of_what_is_offered(summarizer):
    config = dataclasses.replace(TINY, summarizer=summarizer, positions="none")
    core, inputs, state, _ = problem(config, input_dim=8, steps=1, resets=0.0)
    outputs, new = core(inputs, state, torch.zeros(2, 1, dtype=torch.bool))
    offered = torch.cat((state.memory, outputs[:, 0], inputs[:, 0]), 1)
    assert (new.memory <= offered.amax(1, keepdim=True) + 1e-12).all()
    assert (new.memory >= offered.amin(1, keepdim=True) - 1e-12).all()
    assert (new.memory.amax(1) < offered.amax(1)).all()


@pytest.mark.parametrize("memory", ["none", "erase_add", "erase_add_official", "concatenate"])
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
        torch.testing.assert_close(state.memory, literal.linear(other.project, inputs[:, -2:]).flatten(1, 2))


def test_gradients_flow_through_all_steps():
    core, inputs, state, _ = problem(TINY, steps=6)
    outputs, _ = core(inputs, state, torch.zeros(2, 6, dtype=torch.bool))
    gradient = torch.autograd.grad(outputs[:, -1].sum(), inputs)[0]
    assert (gradient.abs().amax((2, 3)) > 0).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_slots": 0}, ["num_slots=0", "at least 1"]),
        ({"num_reads": 0}, ["num_reads=0", "at least 1"]),
        ({"num_heads": 3}, ["num_heads=3", "dim=8"]),
        ({"dim": 12, "summarizer": "mha"}, ["dim=12", "8 heads"]),
        ({"summarizer": "mean"}, ["summarizer='mean'", "pooling"]),
        ({"processor": "lstm"}, ["processor='lstm'", "mixer"]),
        ({"memory": "all"}, ["memory='all'", "concatenate"]),
        ({"memory": "concatenate"}, ["num_slots=5", "multiple of num_tokens=3"]),
        ({"positions": True}, ["positions=True", "official"]),
        ({"hidden_dim": 0}, ["hidden_dim=0", "None"]),
        ({"summarizer": "pooling", "num_reads": 9}, ["num_reads=9", "at most 8"]),
    ],
)
def test_bad_configs_name_field_value_and_remedy(changes, words):
    with pytest.raises(ValueError) as error:
        dataclasses.replace(TINY, **changes)
    assert all(word in str(error.value) for word in words), str(error.value)
