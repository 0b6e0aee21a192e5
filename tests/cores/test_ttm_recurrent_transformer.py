import dataclasses
import random

import pytest
import torch
from samples import recurrent_transformer as samples
from ttm_problems import assert_equals_plain_form, problem

from recollect.config import from_json
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.ttm import RecurrentTransformerConfig
from recollect.cores.ttm.recurrent_transformer import RecurrentTransformerState
from recollect.layers.tap import listen

TINY = RecurrentTransformerConfig(dim=8, num_tokens=3, num_slots=5, num_reads=2, num_heads=2, hidden_dim=12)


def options():
    rng = random.Random(1)
    yield from samples.CONFIGS
    yield from (samples.sample(rng) for _ in range(14))


@pytest.mark.parametrize("config", list(options()), ids=lambda c: f"{c.summarizer}-{c.processor}-{c.variant}")
@pytest.mark.parametrize("input_dim", [4, 8])
def test_fast_path_equals_the_plain_form_in_values_and_gradients(config, input_dim):
    assert_equals_plain_form(*problem(config, input_dim))


def test_the_two_variants_cut_the_same_tokens_differently():
    core, inputs, state, _ = problem(TINY, steps=1)
    released = dataclasses.replace(TINY, variant="released").build(4).double()
    released.load_state_dict(core.state_dict())
    first = torch.zeros(2, 1, dtype=torch.bool)
    (output, new), (shifted, shifted_new) = core(inputs, state, first), released(inputs, state, first)
    torch.testing.assert_close(
        torch.cat((new.memory, output[:, 0]), 1), torch.cat((shifted[:, 0], shifted_new.memory), 1)
    )
    assert not torch.allclose(output, shifted)


@pytest.mark.parametrize("config", samples.CONFIGS, ids=lambda c: f"{c.summarizer}-{c.processor}-{c.variant}")
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
        ({"variant": "first"}, ["variant='first'", "paper"]),
        ({"hidden_dim": 0}, ["hidden_dim=0", "None"]),
        ({"summarizer": "pooling", "num_reads": 4}, ["num_reads=4", "at most 3"]),
    ],
)
def test_bad_configs_name_field_value_and_remedy(changes, words):
    with pytest.raises(ValueError) as error:
        dataclasses.replace(TINY, **changes)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"slicing": "natural"}, {"variant": "paper"}),
        ({"slicing": "official", "learned_start": True}, {"variant": "released", "learned_initial_state": True}),
    ],
)
def test_configs_of_earlier_versions_load(old, new):
    config = from_json({"kind": "recurrent-transformer", "dim": 8, **old}, CoreConfig, CORES)
    assert config == RecurrentTransformerConfig(dim=8, **new)
