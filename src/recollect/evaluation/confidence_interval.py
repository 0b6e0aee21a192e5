"""The percentile bootstrap (Efron, 1979): how far a mean would move if other units had been drawn."""

import numpy as np

RESAMPLES = 2000


def confidence_interval(right: np.ndarray, asked: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of ``sum(right) / sum(asked)`` when rows are drawn again with replacement.

    Args:
        right: sum of what is averaged in each row: right answers, scores of episodes, ...
        asked: how many things that sum is over, in each row.
        level: probability that the interval is meant to hold the truth.
    """
    generator = np.random.default_rng(0)
    counts = generator.multinomial(len(right), np.full(len(right), 1 / len(right)), RESAMPLES)  # times a row is drawn
    total = counts @ asked
    scores = (counts @ right)[total > 0] / total[total > 0]
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
