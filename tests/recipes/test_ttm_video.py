from dataclasses import replace

import pytest

from recollect.recipes import RECIPES
from recollect.recipes.reproduce import reach_of
from recollect.recipes.ttm_video import (
    BINDING_ROWS,
    BINDINGS,
    GFLOPS_DIFFER,
    LAGS,
    PAPER,
    ROWS,
    TASK,
    TESTS,
    LastShape,
    core_of,
    paper_gflops,
)


@pytest.mark.parametrize("key", [key for key, row in ROWS.items() if row.gflops and key not in GFLOPS_DIFFER])
def test_gflops_of_the_paper_within_five_percent(key):
    assert paper_gflops(key) == pytest.approx(ROWS[key].gflops, rel=0.05)


def test_gflops_that_differ_are_explained_by_numbers():
    d, hidden, p, new = PAPER["dim"], PAPER["hidden_dim"], 96, 16
    keys_and_values = 2 * p * d * d
    rest = 2 * new * d * d + 2 * new * p * d + 2 * new * d * hidden
    assert (keys_and_values + rest) / 1e9 == pytest.approx(ROWS["causal-96"].gflops, rel=0.005)
    assert round(6 * paper_gflops("lstm"), 2) == ROWS["lstm"].gflops
    assert ROWS["no-memory"].gflops == ROWS["ttm-transformer"].gflops
    assert set(GFLOPS_DIFFER) == {"causal-96", "lstm", "concatenate", "no-memory"}


def test_windows_show_five_frames_and_the_far_lag_is_four_times_that():
    for run in RECIPES["ttm-video"].rows("lite"):
        reach = reach_of(run.config)
        assert reach in (None, 0, 5), run.row
        assert run.config.task == (BINDINGS if "three boxes" in run.row else TASK), run.row
        far = {name for name, test in run.tests.items() if test.beyond_window}
        assert far == {name for name in run.tests if name == "lag beyond the window"}, run.row
    assert TESTS["lag beyond the window"].min_lag >= 4 * 5 > 5 > TESTS["lag within the window"].max_lag


def test_every_summariser_memory_and_processor_is_a_row():
    cores = [core_of(row, "lite") for row in ROWS.values() if row.core == "ttm"]
    assert {core.summarizer for core in cores} == {"mlp", "latent_query", "mha", "pooling", "none"}
    assert {core.memory for core in cores} == {"token_summary", "erase_add", "concatenate", "sample", "none"}
    assert {core.processor for core in cores} == {"transformer", "mixer", "mlp"}


def test_the_paper_scale_is_scored_on_every_film_of_the_test_table():
    for run in RECIPES["ttm-video"].rows("paper"):
        (test,) = run.scored.values()
        assert (test.where.part, test.samples, test.paper) == ("test", 1863, run.paper)


def test_three_boxes_ask_for_more_than_the_shape_put_last():
    for low, high in LAGS.values():
        one, three = (
            LastShape()(None, replace(task, min_lag=low, max_lag=high, size=16), samples=64, seed=0)
            for task in (TASK, BINDINGS)
        )
        assert one.score == 1.0, "one box: no place has to be kept"
        assert three.chance + 0.05 < three.score < 0.85
        assert min(three.by_class[name] for name in three.by_class if not name.startswith("take")) == 1.0


def test_rows_with_three_boxes_are_trained_alike():
    rows = [run for run in RECIPES["ttm-video"].rows("lite") if "three boxes" in run.row]
    assert [run.label for run in rows] == [f"{key}-3-boxes" for key in BINDING_ROWS]
    assert {(run.config.fit.processor_seconds, run.config.task.spec.bits) for run in rows} == {(300.0, 9.0)}
