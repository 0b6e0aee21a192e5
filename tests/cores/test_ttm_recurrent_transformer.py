import dataclasses

import pytest
import torch
from ttm_problems import problem

from recollect.cores.ttm import RecurrentTransformerConfig
from recollect.layers.tap import listen

TINY = RecurrentTransformerConfig(dim=8, num_tokens=3, num_slots=5, num_reads=2, num_heads=2, hidden_dim=12)


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


@pytest.mark.parametrize("summarizer", ["mlp", "latent_query", "mha", "pooling"])
def test_taps_record_weights_that_sum_to_one_and_change_nothing(summarizer):
    core, inputs, state, is_first = problem(dataclasses.replace(TINY, summarizer=summarizer), steps=3)
    outputs, new = core(inputs, state, is_first)
    recorded = {}
    with listen(core, lambda name, weights: recorded.setdefault(name, []).append(weights)):
        tapped, tapped_new = core(inputs, state, is_first)
    torch.testing.assert_close(tapped, outputs)
    torch.testing.assert_close(tapped_new, new)
    assert len(recorded["summarize.tap"]) == len(recorded["process.blocks.0.attention.tap"]) == 3
    for weights in recorded["summarize.tap"] + recorded["process.blocks.0.attention.tap"]:
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
