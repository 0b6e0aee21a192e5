import pytest

from recollect.recipes import RECIPES
from recollect.recipes.reproduce import reach_of
from recollect.recipes.ttm_video import GFLOPS_DIFFER, PAPER, ROWS, TASK, TESTS, core_of, paper_gflops


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
        assert run.config.task == TASK
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
