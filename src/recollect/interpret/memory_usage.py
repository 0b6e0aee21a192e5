"""Is the memory used, or only attended to? Attention beside the effect of removing a chunk (``record.removal``).

    removal KL, |dV|    of the chunks that overlap the key, at decision steps        the mean of the other chunks
    Pearson             of chunk attention and KL, over steps and chunks             the same with permuted chunks
    top-2 overlap       share of the two most attended chunks among the two most     2 / number of chunks
                        used

Spearman is no measure of agreement here: ranks of near-zero chunks are noise.
"""

import numpy as np

from recollect.interpret.recall import Maps, decision_steps, decisions, overlapping, split_top
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Samples

PERMUTATIONS = 100
LEAST_POINTS = 5  # pairs of attention and effect below which a correlation says nothing


def effect_on_key(record: EpisodeRecord, values: np.ndarray) -> Samples:
    """Yield the mean effect ``[T, C]`` of the chunks that overlap the key; as chance that of the others."""
    for t, key, _ in decisions(record):
        seen, right = ~np.isnan(values[t]), overlapping(record, key)
        if (seen & right).any() and (seen & ~right).any():
            yield float(values[t, seen & right].mean()), float(values[t, seen & ~right].mean())


def attended_and_used(record: EpisodeRecord, maps: Maps) -> tuple[float, float] | None:
    """Return the Pearson correlation of chunk attention and removal KL, and its mean with permuted chunks.

    None where attention or effects do not vary, or of fewer than :data:`LEAST_POINTS` chunks and steps.
    """
    assert record.removal is not None
    attended, used = [], []
    for t in decision_steps(record):
        seen = ~np.isnan(maps.chunks[t]) & ~np.isnan(record.removal.kl[t])
        if seen.sum() >= 2:
            attended.append(maps.chunks[t, seen])
            used.append(record.removal.kl[t, seen])
    flat = np.concatenate([*used, np.array([])])
    if len(flat) < LEAST_POINTS:
        return None
    found = pearson(np.concatenate(attended), flat)
    if np.isnan(found):
        return None
    generator = np.random.default_rng(0)
    shuffled = [
        pearson(np.concatenate([generator.permutation(row) for row in attended]), flat) for _ in range(PERMUTATIONS)
    ]
    return found, float(np.mean(shuffled))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Return the correlation; NaN where one of the two does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / norm) if norm > 1e-12 else float("nan")


def top_overlap(record: EpisodeRecord, maps: Maps, k: int = 2) -> Samples:
    """Yield the share of the k most attended chunks among the k most used, at steps that see more than k."""
    assert record.removal is not None
    for t in decision_steps(record):
        seen = np.flatnonzero(~np.isnan(maps.chunks[t]) & ~np.isnan(record.removal.kl[t]))
        if len(seen) > k:
            attended, used = (_shares_of_top(part[t, seen], k) for part in (maps.chunks, record.removal.kl))
            yield float(attended @ used) / k, k / len(seen)


def _shares_of_top(values: np.ndarray, k: int) -> np.ndarray:
    """Return the probability that each value is among the k largest, equal ones drawn at random."""
    above, level = split_top(values, k)
    return above + level * (k - above.sum()) / level.sum()
