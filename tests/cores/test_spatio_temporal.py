"""The spatio-temporal core: its size, and the equality of the sequential form and one-shot with its own outputs."""

import pytest
import torch

from recollect.cores.spatio_temporal import SpatioTemporalAttentionConfig
from recollect.layers.tap import listen

ACTIONS = 6


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("query", ["sequential", "one-shot"])
def test_size_as_reported(query):
    config = SpatioTemporalAttentionConfig(grid=(11, 11), channels=32, query=query)
    core = config.build(11 * 11 * 32 + 1 + ACTIONS + config.output_feedback_dim)
    encoder, heads = 97_744, 257 * (ACTIONS + 1)
    # Three LayerNorms that the code behind George 2021 makes and never uses are counted in its 1.95 M.
    unused = 3 * 2 * 256
    assert encoder + heads + parameters(core) == 1_953_431 - unused
    assert parameters(core.see) == 36_992 + 147_584
    assert parameters(core.answer) == 659_712
    assert parameters(core.temporal) == 855_808 + 512 - unused


def small(query, **settings):
    torch.manual_seed(0)
    base = {"dim": 8, "grid": (2, 3), "channels": 2, "map_dim": 4, "key_dim": 2, "num_heads": 2, "memory_len": 3}
    config = SpatioTemporalAttentionConfig(**base | settings, query=query)
    return config.build(12 + 3 + config.output_feedback_dim).double()


def test_one_shot_with_earlier_outputs_equals_sequential():
    sequential, one_shot = small("sequential"), small("one-shot")
    one_shot.load_state_dict(sequential.state_dict())
    inputs, is_first = torch.randn(2, 9, 15).double(), torch.zeros(2, 9, dtype=torch.bool)
    is_first[0, 4] = True
    outputs, end = sequential(inputs, sequential.initial_state(2), is_first)
    before = torch.cat(
        (torch.full_like(outputs[:, :1], 7.0), outputs[:, :-1]), 1
    )  # the first earlier output is not read
    got, after = one_shot(torch.cat((inputs, before), 2), one_shot.initial_state(2), is_first)
    torch.testing.assert_close(got, outputs)
    torch.testing.assert_close(after, end)

    state, live, last = one_shot.initial_state(2), one_shot.stream(2), torch.zeros(2, 8).double()
    for t in range(9):  # as agents act: the state has the earlier output
        fed = torch.cat((inputs[:, t], state.output), 1)
        output, state = one_shot(fed[:, None], state, is_first[:, t, None])
        last = live.step(torch.cat((inputs[:, t], last), 1), is_first[:, t])
        torch.testing.assert_close(output[:, 0], outputs[:, t])
        torch.testing.assert_close(last, outputs[:, t])


@pytest.mark.parametrize("query", ["sequential", "one-shot"])
def test_a_norm_bounds_the_loop_from_outputs_to_queries(query):
    largest = {}
    for final_norm in (False, True):
        core = small(query, final_norm=final_norm, key_dim=1)
        with torch.no_grad():
            for part in (core.query, core.answer):
                for weight in part.parameters():
                    weight.mul_(3.0)
        stream, inputs = core.stream(1), torch.randn(40, 1, 15, dtype=torch.float64)
        last = torch.zeros(1, core.feedback_dim).double()
        for x in inputs:
            output = stream.step(torch.cat((x, last), 1))
            last = output[:, : core.feedback_dim]
        largest[final_norm] = output.abs().max().item()
    assert largest[True] < 8**0.5 + 1e-6 < 1e6 < largest[False]


def test_sequential_gradients_go_through_the_queries_and_one_shot_gradients_do_not():
    for query, flows in (("sequential", True), ("one-shot", False)):
        core = small(query, memory_len=1)
        inputs = torch.randn(1, 5, *core.input_shape, requires_grad=True, dtype=torch.float64)
        outputs, _ = core(inputs, core.initial_state(1), torch.zeros(1, 5, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(outputs[:, -1].sum(), inputs)
        assert bool(gradient[0, 1].any()) is flows, "beyond the window, only a query can have carried it"


@pytest.mark.parametrize("query", ["sequential", "one-shot"])
def test_taps_record_maps_and_windows(query):
    core = small(query)
    recorded = {}
    with listen(core, lambda name, weights: recorded.setdefault(name, []).append(weights)):
        core(torch.randn(2, 4, *core.input_shape).double(), core.initial_state(2), torch.zeros(2, 4, dtype=torch.bool))
    maps = torch.cat(recorded["map_tap"], 2)
    assert maps.shape == (2, 2, 4, 2, 3)
    assert maps.sum((-1, -2)).allclose(torch.ones(2, 2, 4).double())
    (name,) = core.recalled_steps(torch.zeros(1, 1).long())
    assert torch.cat(recorded[name], 2).shape == (2, 2, 4, 4)


def test_widths_that_do_not_fit_name_field_value_and_remedy():
    with pytest.raises(
        ValueError, match="input_dim=8: with query=one-shot the last dim=8 inputs are an earlier output"
    ):
        SpatioTemporalAttentionConfig(dim=8, query="one-shot").build(8)
    with pytest.raises(ValueError, match="key_dim=8: leave some of the map's 3 channels to the values"):
        SpatioTemporalAttentionConfig(dim=8, map_dim=None).build(3)
