"""Confidence intervals by the percentile bootstrap (Efron, 1979).

    units                             number                                    function
    rows of one evaluation            sum of scores / sum of counts             confidence_interval
    runs of every task (strata)       interquartile mean                        score_interval
    runs of two methods               probability that one scores higher        improvement_interval
    seeds, and the rows of each       interquartile mean over seeds             seeds_interval

The interquartile mean, the probability of improvement and the performance profile are those of Agarwal et al. (2021),
Deep reinforcement learning at the edge of the statistical precipice. All generators have a fixed seed: the same scores
give the same interval. We do not use scipy or the authors' rliable, because neither is in the core install and both
use another generator, so that two tables of the same files would differ.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
MOST_ROWS = 2000
"""Rows that are resampled one by one; of more, sums of neighbours are, so that memory does not grow with them."""
LEVEL = 0.95


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def quantiles(values: np.ndarray) -> np.ndarray:
    """Return both ends of the percentile interval over the last axis, ``[2, ...]``."""
    return np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)


def confidence_interval(right: np.ndarray, asked: np.ndarray) -> Interval:
    """Compute the interval of ``sum(right) / sum(asked)`` when rows are resampled with replacement.

    Args:
        right: sum of what is averaged in each row: right answers, scores of episodes, ...
        asked: number of summands in each row.

    Returns:
        NaN at both ends where fewer than two rows count, as their spread is unknown.
    """
    if (np.asarray(asked) > 0).sum() < 2:
        return Interval(math.nan, math.nan)
    right, asked = _join_rows(right), _join_rows(asked)
    counts = _draw_counts(np.random.default_rng(0), len(right), RESAMPLES)
    total = counts @ asked
    return _interval((counts @ right)[total > 0] / total[total > 0])


def seeds_interval(right: Sequence[np.ndarray], asked: Sequence[np.ndarray]) -> Interval:
    """Compute the interval of the interquartile mean over seeds: resample seeds, then the rows of each drawn seed.

    Args:
        right: sum of what is averaged in each row, one array per seed.
        asked: number of summands in each row.

    Returns:
        Of a single seed the interval over its rows. Resamples in which a seed has no summand do not count.
    """
    right, asked = (list(map(_join_rows, values)) for values in (right, asked))
    counts, drawn = _draw_seeds(tuple(map(len, right)))
    parts = zip(counts, right, asked, strict=True)
    per_seed = []
    for often, mine, of in parts:
        total = (often @ of).astype(float)  # resamples x places
        per_seed.append((often @ mine) / np.where(total > 0, total, np.nan))
    scores = np.stack(per_seed)  # seed, resample, place
    resample, place = np.indices(drawn.shape)
    found = scores[drawn, resample, place]
    return _interval(interquartile_mean(found[~np.isnan(found).any(-1)]))


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Average the middle half along the last axis; ``floor(n / 4)`` scores are cut at each end."""
    cut = scores.shape[-1] // 4
    return np.sort(scores, -1)[..., cut : scores.shape[-1] - cut].mean(-1)


def interquartile_mean_over_tasks(strata: Sequence[np.ndarray]) -> np.ndarray:
    """Average the middle half of the scores of all tasks, of which each counts the same, however many runs it has.

    With as many runs in every task this is :func:`interquartile_mean` of all of them. Otherwise a score weighs
    1 / (runs of its task), and a quarter of the whole weight is cut at each end.

    Args:
        strata: scores ``[..., runs]`` of every task.
    """
    scores = np.concatenate(list(strata), -1)
    if len({task.shape[-1] for task in strata}) == 1:
        return interquartile_mean(scores)
    weights = np.concatenate([np.full(task.shape[-1], 1 / (task.shape[-1] * len(strata))) for task in strata])
    order = np.argsort(scores, -1)
    ends = np.cumsum(weights[order], -1)
    kept = np.clip(np.minimum(ends, 0.75) - np.maximum(ends - weights[order], 0.25), 0, None)
    return (kept * np.take_along_axis(scores, order, -1)).sum(-1) / kept.sum(-1)


def score_interval(strata: Sequence[np.ndarray], resamples: int = RESAMPLES) -> Interval | None:
    """Compute the stratified interval of :func:`interquartile_mean_over_tasks`.

    Args:
        strata: scores ``[runs]`` of every task; runs are resampled within their task.
        resamples: number of resamples.

    Returns:
        None when a task has a single run, as its spread is unknown.
    """
    if min(map(len, strata)) < 2:
        return None
    generator = np.random.default_rng(0)
    drawn = [_draw(scores, generator, resamples) for scores in strata]
    return _interval(interquartile_mean_over_tasks(drawn))


def improvement(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Estimate the probability that a run of ours scores higher than one of theirs, averaged over tasks.

    Args:
        ours: scores ``[runs]``, per task; ties count half.
        theirs: scores ``[other runs]``, of the same tasks.
    """
    return float(np.mean([_wins(x, y) for x, y in zip(ours, theirs, strict=True)]))


def improvement_interval(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], resamples: int = RESAMPLES
) -> Interval | None:
    """Compute the stratified interval of :func:`improvement`; None when a task has a single run on either side."""
    if min(map(len, (*ours, *theirs))) < 2:
        return None
    generator = np.random.default_rng(0)
    wins = [
        _wins(_draw(x, generator, resamples), _draw(y, generator, resamples)) for x, y in zip(ours, theirs, strict=True)
    ]
    return _interval(np.mean(wins, 0))


def performance_profile(strata: Sequence[np.ndarray], thresholds: np.ndarray) -> np.ndarray:
    """Return the share of runs above each threshold, averaged over tasks, ``[thresholds]``.

    Args:
        strata: scores ``[runs]`` of every task.
        thresholds: of the score.
    """
    return np.mean([(scores[None, :] > thresholds[:, None]).mean(-1) for scores in strata], 0)


def _join_rows(values: np.ndarray) -> np.ndarray:
    """Sum neighbours where there are more than :data:`MOST_ROWS`."""
    values = np.asarray(values)
    if len(values) <= MOST_ROWS:
        return values
    return np.add.reduceat(values, np.linspace(0, len(values), MOST_ROWS, endpoint=False).astype(int))


def _draw_counts(generator: np.random.Generator, units: int, shape: int | tuple[int, ...]) -> np.ndarray:
    """Draw how often each of ``units`` occurs in ``shape`` resamples, ``[*shape, units]``."""
    return generator.multinomial(units, np.full(units, 1 / units), shape)


@lru_cache(maxsize=2)
def _draw_seeds(rows: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw seeds, and the rows of each: kept, because they are the same for all tests with as many rows.

    Args:
        rows: number of rows of each seed.

    Returns:
        How often each row of a seed occurs, ``[resamples, seeds, rows]`` per seed, and seeds ``[resamples, seeds]``.
    """
    generator, shape = np.random.default_rng(0), (RESAMPLES, len(rows))
    counts = [_draw_counts(generator, units, shape).astype(np.min_scalar_type(units)) for units in rows]
    return counts, generator.integers(0, len(rows), shape)


def _draw(scores: np.ndarray, generator: np.random.Generator, resamples: int) -> np.ndarray:
    return scores[generator.integers(0, len(scores), (resamples, len(scores)))]


def _wins(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the share of pairs won along the last axis."""
    x, y = ours[..., :, None], theirs[..., None, :]
    return ((x > y) + 0.5 * (x == y)).mean((-2, -1))


def _interval(values: np.ndarray) -> Interval:
    low, high = quantiles(values)
    return Interval(float(low), float(high))
