import dataclasses
import random

import pytest
import torch
import ttm_literal as literal
from samples import recurrent_transformer as samples
from ttm_golden import CASES, golden

from recollect.cores.ttm.recurrent_transformer import RecurrentTransformerConfig, RecurrentTransformerState
from recollect.layers.tap import listen

TINY = RecurrentTransformerConfig(dim=8, num_tokens=3, num_slots=5, num_reads=2, num_heads=2, hidden_dim=12)


def problem(config, input_dim=4, batch=2, steps=5, resets=0.3):
    core = literal.scramble(config.build(input_dim).double())
    inputs = torch.randn(batch, steps, config.num_tokens, input_dim, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(batch, config.num_slots, config.dim, dtype=torch.float64, requires_grad=True)
    is_first = torch.rand(batch, steps) < resets
    return core, inputs, RecurrentTransformerState(memory), is_first


def options():
    rng = random.Random(1)
    yield from samples.CONFIGS
    yield from (samples.sample(rng) for _ in range(14))


@pytest.mark.parametrize("config", list(options()), ids=lambda c: f"{c.summarizer}-{c.processor}-{c.slicing}")
@pytest.mark.parametrize("input_dim", [4, 8])
def test_fast_path_equals_the_literal_loop_in_values_and_gradients(config, input_dim):
    core, inputs, state, is_first = problem(config, input_dim)
    outputs, new = core(inputs, state, is_first)
    want = literal.unroll(literal.recurrent_step, core, inputs, state.memory, is_first)
    leaves = {"inputs": inputs, "memory": state.memory, **dict(core.named_parameters())}
    worst = literal.differences((outputs, new.memory), want, leaves)
    assert max(worst.values()) < 1e-9, worst


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("simple")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_official_numbers(case, dtype):
    core, tokens, memory, want = golden(case, dtype)
    never = torch.zeros(tokens.shape[:2], dtype=torch.bool)
    outputs, state = core(tokens, RecurrentTransformerState(memory), never)
    torch.testing.assert_close(outputs, want["output"], atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(state.memory, want["memory"][:, -1], atol=2e-5, rtol=2e-5)


def test_the_two_slicings_cut_the_same_tokens_differently():
    core, inputs, state, _ = problem(TINY, steps=1)
    official = dataclasses.replace(TINY, slicing="official").build(4).double()
    official.load_state_dict(core.state_dict())
    first = torch.zeros(2, 1, dtype=torch.bool)
    (output, new), (shifted, shifted_new) = core(inputs, state, first), official(inputs, state, first)
    torch.testing.assert_close(
        torch.cat((new.memory, output[:, 0]), 1), torch.cat((shifted[:, 0], shifted_new.memory), 1)
    )
    assert not torch.allclose(output, shifted)


@pytest.mark.parametrize("config", samples.CONFIGS, ids=lambda c: f"{c.summarizer}-{c.processor}-{c.slicing}")
def test_stream_equals_sequence(config):
    core, inputs, state, is_first = problem(config, steps=12)
    outputs, new = core(inputs, state, is_first)
    stream = core.stream(2)
    stream.load_state(RecurrentTransformerState(state.memory.detach()))
    for t in range(12):
        first = is_first[:, t] if is_first[:, t].any() else None
        torch.testing.assert_close(stream.step(inputs[:, t].detach(), first), outputs[:, t], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(stream.state.memory, new.memory, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha"])
def test_the_order_of_input_tokens_does_not_matter(summarizer):
    core, inputs, state, is_first = problem(dataclasses.replace(TINY, summarizer=summarizer))
    outputs, _ = core(inputs, state, is_first)
    torch.testing.assert_close(core(inputs[:, :, [2, 0, 1]], state, is_first)[0], outputs)


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha", "pooling"])
def test_taps_hear_weights_that_sum_to_one_and_change_nothing(summarizer):
    core, inputs, state, is_first = problem(dataclasses.replace(TINY, summarizer=summarizer), steps=3)
    outputs, new = core(inputs, state, is_first)
    heard = {}
    with listen(core, lambda name, weights: heard.setdefault(name, []).append(weights)):
        tapped, tapped_new = core(inputs, state, is_first)
    torch.testing.assert_close(tapped, outputs)
    torch.testing.assert_close(tapped_new, new)
    assert len(heard["summarize.tap"]) == len(heard["process.blocks.0.attention.tap"]) == 3
    for weights in heard["summarize.tap"] + heard["process.blocks.0.attention.tap"]:
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_gradients_flow_through_all_steps():
    core, inputs, state, _ = problem(TINY, steps=6)
    outputs, _ = core(inputs, state, torch.zeros(2, 6, dtype=torch.bool))
    gradient = torch.autograd.grad(outputs[:, -1].sum(), inputs)[0]
    assert (gradient.abs().amax((2, 3)) > 0).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_slots": 0}, ["num_slots=0", "at least 1"]),
        ({"num_heads": 3}, ["num_heads=3", "dim=8"]),
        ({"dim": 12, "summarizer": "mha"}, ["dim=12", "8 heads"]),
        ({"summarizer": "mean"}, ["summarizer='mean'", "pooling"]),
        ({"processor": "lstm"}, ["processor='lstm'", "mixer"]),
        ({"slicing": "first"}, ["slicing='first'", "natural"]),
        ({"hidden_dim": 0}, ["hidden_dim=0", "None"]),
        ({"summarizer": "pooling", "num_reads": 4}, ["num_reads=4", "at most 3"]),
    ],
)
def test_bad_configs_name_field_value_and_remedy(changes, words):
    with pytest.raises(ValueError) as error:
        dataclasses.replace(TINY, **changes)
    assert all(word in str(error.value) for word in words), str(error.value)
