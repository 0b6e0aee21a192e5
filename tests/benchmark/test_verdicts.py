"""What result files say of a claim: three seeds or more, no level that was not learned, no result of another config."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recollect.config import to_json
from recollect.recipes import RECIPES
from recollect.training import REGISTRY

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CLAIM = {"paper": "", "place": "", "text": "", "published": "", "recipe": "", "names": ("one", "other")}


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def make_claim(**fields):
    import claims

    return claims.Claim(**{**CLAIM, **fields})


def judge(first, second, **fields):
    import verdicts

    return verdicts.verdict(make_claim(**fields), first, second)


def runs_of(*scores, chance=0.5, rows=400):
    """Return the results of one seed for each score."""
    runs = []
    for score in scores:
        right = round(score * rows) if math.isfinite(score) else 0
        test = {
            "score": score if math.isfinite(score) else None,
            "chance": chance,
            "correct": [1.0] * right + [0.0] * (rows - right),
            "asked": [1.0] * rows,
        }
        runs.append({"tests": {"": test, "easy": test}})
    return runs


@pytest.mark.parametrize(
    ("kind", "first", "second", "trained", "verdict"),
    [
        ("above", [0.9] * 3, [0.7] * 3, (), "holds"),
        ("above", [0.9] * 3, [0.7], (), "not shown (1 seed)"),
        ("above", [0.7] * 3, [0.9] * 3, (), "opposite"),
        ("above", [0.7] * 2, [0.9] * 3, (), "not shown (2 seeds)"),
        ("above", [0.8] * 3, [0.81] * 3, (), "not shown"),
        ("above", [0.9] * 3, [0.5] * 3, ("easy",), "not shown (other is not trained)"),
        ("above", [0.9] * 3, [0.7] * 3, ("easy",), "holds"),
        ("above", [0.5] * 3, [0.2] * 3, (), "not shown (one is not above chance)"),
        ("above", [0.999, 0.998, 0.757], [0.752, 0.749, 0.75], (), "not shown"),  # apart, but for one seed of three
        ("above", [0.999, 0.998, 0.997], [0.752, 0.749, 0.75], (), "holds"),
        ("alike", [1.0] * 3, [0.99] * 3, (), "holds"),
        ("alike", [0.9] * 3, [0.7] * 3, (), "opposite"),
        ("alike", [0.52] * 3, [0.55] * 3, (), "not shown"),
        ("alike", [0.9, 0.9, 0.8], [0.9, 0.9, 0.8], (), "not shown"),  # equal means, and seeds too different to say
        ("alike", [math.nan, 0.9, 0.9], [0.9] * 3, (), "not shown (a score is no number)"),
        ("above", [0.9] * 3, [0.5, 0.5, math.nan], (), "not shown (a score is no number)"),
    ],
)
def test_verdicts_follow_from_seeds_and_intervals(kind, first, second, trained, verdict):
    assert judge(runs_of(*first), runs_of(*second), kind=kind, trained=trained) == verdict


@pytest.mark.parametrize(
    ("levels", "patience", "verdict"),
    [
        ((1, 2, 1), None, "holds"),
        ((1, 0, 1), None, "not shown (other is not trained)"),
        ((1, 2, 1), 5, "not shown (other is not trained)"),  # levels may have been left by time
    ],
)
def test_a_row_that_passed_a_level_and_forgot_it_is_trained(levels, patience, verdict):
    second = runs_of(*[0.5] * 3)
    for run, passed in zip(second, levels, strict=True):
        run |= {"levels_passed": passed, "config": {"schedule": {"curriculum": {"patience": patience}}}}
    assert judge(runs_of(*[0.9] * 3), second, trained=("easy",)) == verdict


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [([400] * 3, [800] * 3, "holds"), ([None, 400, 400], [800] * 3, "not shown"), ([None] * 3, [800] * 3, "opposite")],
)
def test_fewer_rows_to_perfection_are_better(first, second, verdict):
    ours, theirs = ([{"samples_to_perfect": rows} for rows in found] for found in (first, second))
    assert judge(ours, theirs, kind="samples") == verdict


def test_equal_rows_are_seldom_told_apart_by_three_seeds():
    import verdicts

    generator = np.random.default_rng(0)
    draws = generator.normal(size=(1000, 2, 3))
    wrong = [not low <= 0 <= high for low, high in (verdicts.difference(*map(verdicts.mean_of, x)) for x in draws)]
    assert 0 < np.mean(wrong) < 0.05


def test_seeds_that_agree_by_accident_have_the_error_of_their_rows():
    import verdicts

    assert verdicts.mean_of([0.8, 0.8, 0.8], [0.03, 0.03, 0.03]).variance == pytest.approx(0.01)
    assert verdicts.mean_of([0.7, 0.8, 0.9]).variance == pytest.approx(0.01 / 3)


@pytest.fixture
def folder(scripts, tmp_path, monkeypatch):
    """Return where results are read from, with one seed of a row that has the recipe's config."""
    import report_papers

    (run,) = (run for run in RECIPES["copying"].rows("lite") if run.label == "tlb")
    result = {"recipe": "copying", "label": "tlb", "scale": "lite", "seed": 1, "status": "ok", "tests": {"": {}}}
    config = replace(run.config, fit=replace(run.config.fit, seed=1))
    write(tmp_path, {**result, "config": to_json(config, REGISTRY)})
    monkeypatch.setattr(report_papers, "RESULTS", tmp_path)
    report_papers._current.cache_clear()
    yield tmp_path
    report_papers._current.cache_clear()


def write(folder, result):
    (folder / "copying").mkdir(exist_ok=True)
    (folder / "copying" / f"{result['label']}-seed{result['seed']}.json").write_text(json.dumps(result))


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"scale": "paper"}, False),
        ({"status": "failed"}, False),
        ({"tests": {}}, False),
        ({"config": {"batch_size": 1}}, False),
    ],
)
def test_results_of_another_config_scale_or_test_do_not_count(folder, change, counts):
    import report_papers

    result = json.loads((folder / "copying" / "tlb-seed1.json").read_text())
    write(folder, {**result, **change, "config": result["config"] | change.get("config", {})})
    assert bool(report_papers.results("copying", "tlb")) == counts


def test_a_copy_of_a_result_does_not_count_as_another_seed(folder):
    import report_papers

    (folder / "copying" / "tlb-seed2.json").write_text((folder / "copying" / "tlb-seed1.json").read_text())
    with pytest.raises(ValueError, match=r"tlb-seed2\.json holds copying/tlb-seed1\.json"):
        report_papers.results("copying", "tlb")


@pytest.mark.long
def test_studies_of_one_change_have_as_many_steps_as_their_base():
    import claims

    rows = {run.label: run for scale in ("lite", "paper") for run in RECIPES["attention-agents"].rows(scale)}
    pairs = [(claim.first, claim.second) for claim in claims.THESIS_CLAIMS if claim.place.startswith("4.2.")]
    assert len(pairs) == 10
    for pair in pairs:
        assert len({rows[label].config.fit.steps for label in pair}) == 1, pair
