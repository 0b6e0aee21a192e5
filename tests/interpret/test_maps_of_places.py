"""Maps of the agents that attend to places: causal, summing to one, what a Tap says, on the same trajectory."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.evaluation.agents import evaluation_mode, play
from recollect.interpret.episodes import record_episode
from recollect.interpret.html import write_html
from recollect.interpret.score import score
from recollect.layers.spatial_attention import attend_to_places, what_minus_where
from recollect.layers.tap import Tap
from recollect.recipes.attention_agents import attention_agent
from recollect.tasks.worlds.arcade.catch import CatchConfig

WORLD = CatchConfig(side=42, balls=1)
AGENTS = (
    "mott",
    "spatio-temporal-sequential",
    "spatio-temporal-one-shot",
    "timesformer-divided",
    "timesformer-joint",
)
STEPS = 12


def _agent(name):
    torch.manual_seed(2)
    config = attention_agent(name, WORLD)
    small = {"memory_len": 6, "num_layers": 2}
    core = replace(config.core, **{k: v for k, v in small.items() if k in type(config.core).__dataclass_fields__})
    return replace(config, core=core, agent=replace(config.agent, policy_gain=1.0)).build_agent().eval()


@pytest.fixture(scope="module", params=AGENTS)
def record(request):
    return record_episode(_agent(request.param), WORLD, seed=4, greedy=False, longest=STEPS)


def test_recording_changes_no_bit(record):
    world = WORLD.build(1, seed=4)
    with evaluation_mode(record.agent, 4):
        for t, played in zip(range(STEPS), play(record.agent, world, seed=4, greedy=False), strict=False):
            assert np.array_equal(played.output.policy[0].numpy(), record.logits[t])
            assert played.action[0] == record.action[t]
    # The pass in which attention was heard decides as the agent did, and so does a life that is lived again.
    again = record.rerun_from(5)
    assert np.allclose(again.logits[:STEPS], record.logits, atol=1e-4)
    assert np.array_equal(again.action[:STEPS], record.action)


def test_maps_of_the_present_and_the_past(record):
    core, steps, heads = record.info.core, np.arange(STEPS), len(record.heads)
    assert record.spatial.shape == (STEPS, heads, *record.agent.core.config.grid)
    here = record.spatial.sum((2, 3))
    joint = core == "timesformer" and record.agent.core.config.attention == "joint"
    if joint:
        assert np.allclose(here, record.temporal[steps, :, steps], atol=1e-5)
    else:
        assert np.allclose(here, 1, atol=1e-5)
    assert (record.temporal is None) == (core == "mott") and (record.spacetime is None) == (core != "timesformer")
    if record.temporal is not None:
        assert np.allclose(np.nansum(record.temporal, -1), 1, atol=1e-5)
        assert np.isnan(record.temporal.swapaxes(0, 1)[:, steps[None] > steps[:, None]]).all()


def test_space_and_time(record):
    past = record.spacetime
    if past is None:
        return
    assert np.allclose(past.weight.sum(-1) + past.tail, 1, atol=1e-5)
    assert (np.diff(past.weight) <= 0).all() and (past.step <= np.arange(STEPS)[:, None, None]).all()
    assert past.step.max() == STEPS - 1 and past.cell.max() < past.grid[0] * past.grid[1]
    # What falls on a step is at most what the head gives to that step, and all of it where nothing was cut.
    for t in range(STEPS):
        for head in range(len(record.heads)):
            for s in range(max(0, t - 6), t + 1):
                mass = past.weight[t, head][past.step[t, head] == s].sum()
                assert mass <= record.temporal[t, head, s] + 1e-5
                assert mass >= record.temporal[t, head, s] - past.tail[t, head] - 1e-5


def test_what_and_where(record):
    if record.info.core == "timesformer":
        assert record.what_where is None
        return
    assert record.what_where.shape == record.spatial.shape
    assert (record.what_where > 0).any() and (record.what_where < 0).any()
    assert np.abs(record.what_where).max() <= np.log(10) + 1e-6


def test_content_alone_is_what_and_location_alone_is_where():
    vision, queries, basis = torch.randn(1, 5, 6), torch.randn(1, 2, 2 + 4), torch.randn(6, 4)
    for kept, sign in ((slice(0, 2), 1), (slice(2, 6), -1)):
        only = torch.zeros_like(queries)
        only[..., kept] = queries[..., kept]
        tap = Tap("b h t y x")
        weights = []
        tap._listeners.append(weights.append)
        attend_to_places(vision, only, basis, (2, 3), tap=tap, what_where_tap=Tap("b h t y x"))
        # The weights are a softmax of the measured part, where the other part is zero.
        measured = sign * what_minus_where(vision, only, basis)
        torch.testing.assert_close(measured.softmax(-1), weights[0].flatten(2))


def test_scores_and_the_page(record, tmp_path):
    report = score([record])
    assert not [gate for gate in report.gates if gate.passed is False and "chance" not in gate.name]
    (page,) = write_html(record, report, tmp_path / "explorer.html")
    assert page.stat().st_size > 10_000
    assert record.with_removal().removal.unit in ("all", "slot", "chunk")
    saliency = record.with_saliency(every=6, stride=7).saliency[0]
    assert np.isfinite(saliency.actor).all() and saliency.actor.max() > 0
