"""Judge a claim by the seeds of its two rows.

    above     the 95 % interval of the difference of means lies above 0: holds; below 0: opposite
    alike     it lies within MARGIN of 0: holds; farther away: opposite
    frames    as above, of speeds
    samples   every seed of the first needs fewer rows than every seed of the second: holds; more: opposite

All else, and fewer than SEEDS seeds of a row, is not shown. The interval is Welch's: seeds are its units, with
Student's t, because the percentile bootstrap of three seeds is little more than their range (two intervals of equal
rows with normal seeds are apart in 16 % of cases; Welch's leaves out 0 in 3 %). The error of a mean is at least that of
the rows on which its seeds were scored, so that seeds that agree by accident count for no more than their rows.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

import source_tree  # noqa: F401
from claims import Claim
from recollect.evaluation.confidence_interval import LEVEL, Interval, seeds_interval
from recollect.recipes.result_tables import markdown_cell
from report_tables import Row, middle

SEEDS, MARGIN = 3, 0.05
"""Seeds that a verdict needs, and how far apart rows that do alike may be."""


class Mean(NamedTuple):
    """Mean over seeds."""

    value: float
    variance: float
    """Its squared standard error."""
    seeds: int


def verdict(claim: Claim, first: Sequence[Row], second: Sequence[Row]) -> str:
    """Return holds, opposite or not shown, with the reason in brackets where it is not the interval."""
    fewest = min(len(first), len(second))
    name, other = map(markdown_cell, claim.names)
    if claim.trained and not _is_trained(second, claim.trained):
        return f"not shown ({other} is not trained)"
    if fewest < SEEDS:
        return f"not shown ({fewest} seed{'s' if fewest > 1 else ''})"
    if claim.kind == "samples":
        ours, theirs = ([amount(run, "samples_to_perfect") for run in runs] for runs in (first, second))
        return _named(max(ours) < min(theirs), min(ours) > max(theirs))
    if claim.kind == "frames":
        low, high = difference(
            *(mean_of([amount(run, "frames_per_second") for run in runs]) for runs in (first, second))
        )
        return _named(low > 0, high < 0)
    if not all(map(math.isfinite, (*_scores(first, claim.test), *_scores(second, claim.test)))):
        return "not shown (a score is no number)"
    if claim.kind == "above" and not _above_chance(first, claim.test):
        return f"not shown ({name} is not above chance)"
    low, high = difference(*(mean_of(_scores(runs, claim.test), _rows(runs, claim.test)) for runs in (first, second)))
    if claim.kind == "alike":
        return _named(low > -MARGIN and high < MARGIN, low > MARGIN or high < -MARGIN)
    return _named(low > 0, high < 0)


def difference(first: Mean, second: Mean) -> Interval:
    """Return Welch's interval of the difference of two means, each of two seeds or more."""
    gap, variance = first.value - second.value, first.variance + second.variance
    if not variance:
        return Interval(gap, gap)
    freedom = variance**2 / sum(mean.variance**2 / (mean.seeds - 1) for mean in (first, second))
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    return Interval(gap - half, gap + half)


def mean_of(scores: Sequence[float], rows: Sequence[float] = (0.0,)) -> Mean:
    """Return the mean of the scores of seeds.

    Args:
        scores: of two seeds or more.
        rows: variance of each score, by the rows that it is the mean of.
    """
    number = len(scores)
    return Mean(float(np.mean(scores)), max(float(np.var(scores, ddof=1)), float(np.mean(rows))) / number, number)


def amount(run: Row, field: str) -> float:
    """Return a number of a result; infinity where a run ended before it reached the score."""
    return math.inf if run[field] is None else float(run[field])


def _named(holds: bool, opposite: bool) -> str:
    return "holds" if holds else "opposite" if opposite else "not shown"


def _scores(runs: Sequence[Row], test: str) -> list[float]:
    scores = [run["tests"][test]["score"] for run in runs]
    return [math.nan if score is None else float(score) for score in scores]


def _rows(runs: Sequence[Row], test: str) -> list[float]:
    """Return the squared standard error of each run's score, from the rows that it was scored on."""
    found = []
    for one in (run["tests"][test] for run in runs):
        right, asked = np.array(one["correct"], float), np.array(one["asked"], float)
        rest = right - asked * right.sum() / asked.sum()
        found.append(float((rest**2).sum() / asked.sum() ** 2))
    return found


def _is_trained(runs: Sequence[Row], tests: Sequence[str]) -> bool:
    """Whether a row is above chance on one of the tests, or passed the first level of a ladder in training."""
    return any(_above_chance(runs, test) for test in tests) or all(map(_passed_a_level, runs))


def _passed_a_level(run: Row) -> bool:
    """Whether a run left the first level of its curriculum by its score; it may have forgotten that level since."""
    return run.get("levels_passed", 0) > 0 and run["config"]["schedule"]["curriculum"]["patience"] is None


def _above_chance(runs: Sequence[Row], test: str) -> bool:
    """Whether the interval of a row on a test lies above chance, or above its own untrained weights."""
    trained = test.removesuffix(", untrained")
    floors = [run["tests"][test]["score" if trained != test else "chance"] for run in runs]
    if None in floors:  # chance is unknown
        return True
    tests = [run["tests"][trained] for run in runs]
    found = seeds_interval([np.array(one["correct"]) for one in tests], [np.array(one["asked"]) for one in tests])
    return found.low > middle(floors)
