"""The recipe of the Hierarchical Transformer Memory trained as published."""

import pytest
from recipe_runs import runs_of

from recollect.recipes.htm_as_published import LEVELS, ROWS, as_published
from recollect.recipes.memory_requirements import requirements_of
from recollect.recipes.reproduce import reach_of

ALL = [*runs_of("htm-as-published", "lite"), *runs_of("htm-as-published", "long")]


@pytest.mark.parametrize("run", ALL, ids=lambda run: run.label)
def test_runs_have_reconstruction_and_no_other_help(run):
    config = run.config
    assert config.training_aids == ("reconstruction",) and config.teacher_description is None
    assert not config.loss.supervision.on and config.loss.reuse.passes == 1
    assert getattr(config.world, "approach_reward", 0.0) == 0.0
    layers = {"hcam": 4, "transformer-xl": 4}.get(run.core, 1)
    assert config.core.num_layers == layers and config.core.dim == 64
    costs = config.loss
    assert (costs.policy_cost, costs.baseline_cost, costs.reconstruction_cost) == (0.1, 1.0, 1.0)


def test_rollouts_of_the_long_scale_hold_a_whole_episode_and_are_cut_into_small_steps():
    for run in runs_of("htm-as-published", "long"):
        rows, parts = run.config.batch_size, run.config.loss.reuse.minibatches
        assert run.config.unroll == run.config.world.spec.max_steps + 1 and rows // parts == 8
    for run in runs_of("htm-as-published", "lite"):
        assert run.config.batch_size // run.config.loss.reuse.minibatches == 32, "as in table 1"


def test_every_world_has_every_row():
    worlds = ["t-maze", *LEVELS]
    assert [run.row for run in ALL] == [f"{world}: {row}" for world in worlds for row in ROWS]


def test_windows_do_not_show_the_answer_unless_they_are_full():
    for run in ALL:
        (test,) = run.scored.values()
        needs, reach = requirements_of(test.where), reach_of(run.config)
        if run.row.endswith("full window"):
            assert run.config.core.memory_len >= test.where.spec.max_steps
        elif run.core in ("hcam", "transformer-xl") and "ballet" not in run.row:
            assert needs.lag > reach, run.row
        # Of two dances, the second ended 16 steps before the question and the first 47: one of them is out of reach.
        elif run.core in ("hcam", "transformer-xl"):
            assert needs.lag_high > reach, run.row


def test_worlds_and_scales_are_chosen_by_name():
    assert as_published("lstm", "long", "words").world == LEVELS["words"].world
    with pytest.raises(ValueError, match="scale='paper'"):
        as_published("lstm", "paper")
    with pytest.raises(ValueError, match="world"):
        as_published("lstm", "long", "streets")
