import itertools

import numpy as np
import pytest
from scipy import stats

from recollect.evaluation.confidence_interval import (
    confidence_interval,
    improvement,
    improvement_interval,
    interquartile_mean,
    interquartile_mean_over_tasks,
    performance_profile,
    score_interval,
    seeds_interval,
)


@pytest.mark.long
def test_the_interval_has_its_level():
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = confidence_interval(generator.binomial(4, 0.3, 50), np.full(50, 4))
        hits += low <= 0.3 <= high
    assert 180 <= hits <= 199


def test_the_interval_of_a_perfect_score_is_a_point():
    assert confidence_interval(np.full(5, 2), np.full(5, 2)) == (1.0, 1.0)


@pytest.mark.parametrize(("right", "asked"), [([1], [2]), ([1, 0], [2, 0]), ([], [])])
def test_what_counts_in_a_single_row_has_no_interval(right, asked):
    assert np.isnan(confidence_interval(np.array(right), np.array(asked))).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11])
def test_the_interquartile_mean_is_the_trimmed_mean_of_the_protocol(n):
    scores = np.random.default_rng(n).normal(size=n)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_every_task_counts_the_same_however_many_runs_it_has():
    generator = np.random.default_rng(1)
    strata = [generator.normal(size=(5, n)) for n in (1, 3, 2, 3)]
    repeated = np.concatenate([np.repeat(scores, 6 // scores.shape[-1], -1) for scores in strata], -1)
    assert interquartile_mean_over_tasks(strata) == pytest.approx(stats.trim_mean(repeated, 0.25, axis=-1))
    solved, failed = np.ones(1), np.zeros(1)
    assert interquartile_mean_over_tasks([solved, failed]) == interquartile_mean_over_tasks([np.ones(9), failed]) == 0.5
    equal = [generator.normal(size=3) for _ in range(3)]  # nine scores, of which two are cut at each end
    assert interquartile_mean_over_tasks(equal) == interquartile_mean(np.concatenate(equal))


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, -50.0])) == 2.0
    assert interquartile_mean(np.array([[4.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 9.0]])).tolist() == [2.5, 0.5]


def test_improvement_equals_a_literal_loop():
    generator = np.random.default_rng(0)
    ours = [generator.integers(0, 4, 5), generator.integers(0, 4, 3)]
    theirs = [generator.integers(0, 4, 4), generator.integers(0, 4, 6)]
    per_task = []
    for xs, ys in zip(ours, theirs, strict=True):
        won = 0.0
        for x, y in itertools.product(xs, ys):
            won += 1.0 if x > y else 0.5 if x == y else 0.0
        per_task.append(won / len(xs) / len(ys))
        assert per_task[-1] == stats.mannwhitneyu(xs, ys).statistic / len(xs) / len(ys)
    assert improvement(ours, theirs) == pytest.approx(np.mean(per_task))
    assert improvement(ours, ours) == pytest.approx(0.5)


def test_intervals_equal_a_literal_bootstrap():
    strata = [np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.9, 0.2, 0.6])]
    generator = np.random.default_rng(0)
    index = [generator.integers(0, len(scores), (300, len(scores))) for scores in strata]
    means = []
    for draw in range(300):
        sample = []
        for scores, places, times in zip(strata, index, (3, 4), strict=True):  # so that both tasks have twelve
            sample += [float(scores[place]) for place in places[draw]] * times
        means.append(stats.trim_mean(sample, 0.25))
    assert score_interval(strata, 300) == pytest.approx(np.quantile(means, [0.025, 0.975]))

    generator = np.random.default_rng(0)
    x, y = strata[0][generator.integers(0, 4, (300, 4))], strata[1][generator.integers(0, 3, (300, 3))]
    wins = [improvement([a], [b]) for a, b in zip(x, y, strict=True)]
    assert improvement_interval(strata[:1], strata[1:], 300) == pytest.approx(np.quantile(wins, [0.025, 0.975]))


def test_a_profile_counts_runs_above_a_score():
    matrix = np.random.default_rng(2).random((5, 3))  # runs x tasks, as the authors' package has it
    thresholds = np.array([0.0, 0.3, 0.9, 1.0])
    strata = list(matrix.T)
    assert performance_profile(strata, thresholds) == pytest.approx([(matrix > t).mean() for t in thresholds])
    assert performance_profile([np.array([0.3])], np.array([0.3])) == 0, "above, not at"
    assert performance_profile([np.ones(9), np.zeros(1)], np.array([0.5])) == 0.5, "tasks count the same"


def test_the_interval_covers_about_as_often_as_it_says():
    generator, hits = np.random.default_rng(3), 0
    for _ in range(200):
        low, high = score_interval([generator.normal(size=20)], 400)
        hits += low <= 0.0 <= high
    assert 175 <= hits <= 199  # a percentile bootstrap of twenty is a little narrow


def test_a_stratum_of_one_has_no_interval():
    assert score_interval([np.array([0.5])]) is None
    assert score_interval([np.array([0.5, 0.6]), np.array([0.5])]) is None
    assert improvement_interval([np.array([0.5, 0.6])], [np.array([0.5])]) is None


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.3], 0.3), ([0.0, 1.0, 0.5], 0.5), ([0.0, 0.4, 0.6, 9.0], 0.5), ([9, 1, 2, 3, 4, 5, -9, 7], 3.5)],
)
def test_the_interquartile_mean_of_few_scores(scores, expected):
    assert interquartile_mean(np.array(scores, dtype=float)) == pytest.approx(expected)


def seeds(*scores, rows=50, asked=4):
    right = [np.random.default_rng(0).binomial(asked, score, rows) for score in scores]
    return right, [np.full(rows, asked)] * len(scores)


def test_the_interval_knows_rows_and_seeds():
    low, high = seeds_interval(*seeds(0.5))
    assert 0.05 < high - low < 0.25, "one seed: the spread of rows"
    far = seeds_interval(*seeds(0.2, 0.5, 0.8))
    assert far[1] - far[0] > 0.3, "seeds that differ: their spread as well"
    assert seeds_interval(*seeds(1.0, 1.0, 1.0)) == (1.0, 1.0)


def test_resamples_without_a_question_are_no_score_of_zero():
    right = [np.array([0, 0, 3, 2])] * 3
    assert seeds_interval(right, right) == (1.0, 1.0)


def test_many_rows_have_the_interval_of_their_number():
    right = np.random.default_rng(0).binomial(1, 0.36, 20_000)
    error = np.sqrt(0.36 * 0.64 / 20_000)
    for low, high in (confidence_interval(right, np.ones(20_000)), seeds_interval([right], [np.ones(20_000)])):
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
        assert low < right.mean() < high
