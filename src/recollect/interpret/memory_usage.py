"""Was the memory used, or only looked at? Attention beside what removing a chunk does (``record.removal``).

    removal KL, |dV|    of the chunks that overlap the key, at decision steps        the mean of the other chunks
    Pearson             of chunk attention and KL, over steps and chunks             the same with permuted chunks
    top-2 overlap       share of the two most attended chunks among the two most     2 / number of chunks
                        used

Spearman is no measure of agreement here: ranks of near-zero chunks are noise.
"""

import numpy as np

from recollect.interpret.recall import Maps, Ratio, decisions, overlapping
from recollect.interpret.record import EpisodeRecord

PERMUTATIONS = 100


def effect_on_key(record: EpisodeRecord, values: np.ndarray) -> Ratio:
    """Mean effect ``[T, C]`` of the chunks that overlap the key, and as chance that of the others."""
    total, chance, number = 0.0, 0.0, 0
    for t, key, _ in decisions(record):
        seen, right = ~np.isnan(values[t]), overlapping(record, key)
        if (seen & right).any() and (seen & ~right).any():
            total += float(values[t, seen & right].mean())
            chance += float(values[t, seen & ~right].mean())
            number += 1
    return Ratio(total, chance, number)


def _asked(record: EpisodeRecord) -> list[int]:
    """Decision steps, or all steps where the world names none."""
    return [decision.t for decision in decisions(record)] or list(range(record.num_steps))


def attended_and_used(record: EpisodeRecord, maps: Maps) -> tuple[float, float] | None:
    """Pearson correlation of chunk attention and removal KL, and its mean with permuted chunks; None without spread."""
    assert record.removal is not None
    attended, used = [], []
    for t in _asked(record):
        seen = ~np.isnan(maps.chunks[t]) & ~np.isnan(record.removal.kl[t])
        if seen.sum() >= 2:
            attended.append(maps.chunks[t, seen])
            used.append(record.removal.kl[t, seen])
    if not attended:
        return None
    flat = np.concatenate(used)
    found = pearson(np.concatenate(attended), flat)
    if np.isnan(found):
        return None
    generator = np.random.default_rng(0)
    shuffled = [
        pearson(np.concatenate([generator.permutation(row) for row in attended]), flat) for _ in range(PERMUTATIONS)
    ]
    return found, float(np.mean(shuffled))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation; NaN where one of the two does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / norm) if norm > 1e-12 else float("nan")


def top_overlap(record: EpisodeRecord, maps: Maps, k: int = 2) -> Ratio:
    """Share of the k most attended chunks that are among the k most used, at steps that see more than k."""
    assert record.removal is not None
    total, chance, number = 0.0, 0.0, 0
    for t in _asked(record):
        seen = np.flatnonzero(~np.isnan(maps.chunks[t]) & ~np.isnan(record.removal.kl[t]))
        if len(seen) > k:
            attended, used = (
                set(seen[np.argsort(-part[t, seen], kind="stable")[:k]]) for part in (maps.chunks, record.removal.kl)
            )
            total += len(attended & used) / k
            chance += k / len(seen)
            number += 1
    return Ratio(total, chance, number)
