"""Does attention find the moment that matters? Numbers of one head (or of a mean of heads) in one episode.

All ask for the world's truth: at a decision step t the key ``[s0, s1)`` is what the decision depends on (``pairs``).
Every number comes with what a head that knows nothing would score.

    recall@k        one of the k chunks with most weight overlaps the key          chance: k draws without replacement
    mass, lift      weight on the key; divided by the key's share of the past      1
    AUC             attention as a detector of the key's steps, of all past steps  1/2
    choice          of the events that the key is one of, the key has most weight  1 / number of events
    latency         steps from the start of a question to the first recall@1
    persistence     recall@1 at the steps of a question that follow its first recall@1

recall-success coupling is score.py's: it compares episodes.
"""

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple

import numpy as np

from recollect.interpret.record import EpisodeRecord


class Decision(NamedTuple):
    """A step that depends on what was seen before."""

    t: int
    key: tuple[int, int]
    since: int
    """First step of the question."""


class Ratio(NamedTuple):
    """A mean over decisions, ready to be pooled: sums and their number."""

    total: float
    chance: float
    number: int


class Maps(NamedTuple):
    """The attention of one head, or of a mean of heads."""

    steps: np.ndarray
    """``[T, T]``, NaN out of reach."""
    chunks: np.ndarray
    """``[T, C]``, NaN out of reach."""


def maps_of(record: EpisodeRecord, heads: Sequence[int]) -> Maps:
    """The mean over some heads of a record."""
    assert record.temporal is not None and record.chunk_rel is not None
    return Maps(mean_of_heads(record.temporal[:, list(heads)]), mean_of_heads(record.chunk_rel[:, list(heads)]))


def mean_of_heads(maps: np.ndarray) -> np.ndarray:
    """Of maps ``[T, heads, ...]``, NaN out of reach; a place that only some heads reach counts as 0 for the others."""
    return np.where(np.isnan(maps).all(1), np.nan, np.nan_to_num(maps).mean(1))


def decisions(record: EpisodeRecord) -> list[Decision]:
    """All steps with a key in their past, without the last one of an episode that is over: nothing is decided there."""
    last = record.num_steps - bool(record.done[-1])
    return [
        Decision(t, pair.key, pair.query[0])
        for pair in record.pairs
        for t in range(pair.query[0], min(pair.query[1], last))
        if pair.key[1] <= t
    ]


def overlapping(record: EpisodeRecord, key: tuple[int, int]) -> np.ndarray:
    """Which chunks overlap a key, bool ``[C]``."""
    return np.array([start < key[1] and stop > key[0] for start, stop in record.chunks], bool)


def recall_at(record: EpisodeRecord, maps: Maps, k: int = 1) -> Ratio:
    """recall@k over chunks; steps that see no chunk are left out, and so are those that see at most k."""
    hits, chance, number = 0.0, 0.0, 0
    for hit, by_chance in _recalls(record, maps, k):
        hits, chance, number = hits + hit, chance + by_chance, number + 1
    return Ratio(hits, chance, number)


def _recalls(record: EpisodeRecord, maps: Maps, k: int) -> Iterator[tuple[bool, float]]:
    for decision in decisions(record):
        weights = maps.chunks[decision.t]
        seen = np.flatnonzero(~np.isnan(weights))
        if len(seen) > k:
            right = overlapping(record, decision.key)
            best = seen[np.argsort(-weights[seen], kind="stable")[:k]]
            wrong = int((~right[seen]).sum())
            yield bool(right[best].any()), 1 - comb(wrong, k) / comb(len(seen), k)


def mass_on_key(record: EpisodeRecord, maps: Maps) -> tuple[Ratio, Ratio]:
    """Mass on the key (chance: the key's share of past steps, times all mass), and lift (chance 1)."""
    masses, chances, lifts, number = 0.0, 0.0, 0.0, 0
    for t, (start, stop), _ in decisions(record):
        row = np.nan_to_num(maps.steps[t])
        chance = row.sum() * (stop - start) / (t + 1)
        mass = row[start:stop].sum()
        masses, chances, number = masses + mass, chances + chance, number + 1
        lifts += mass / chance if chance > 0 else 0.0
    return Ratio(float(masses), float(chances), number), Ratio(float(lifts), float(number), number)


def localisation(record: EpisodeRecord, maps: Maps) -> Ratio:
    """Area under the ROC of attention as a detector of the key's steps; what is out of reach has weight 0."""
    total, number = 0.0, 0
    for t, (start, stop), _ in decisions(record):
        is_key = np.zeros(t + 1, bool)
        is_key[start:stop] = True
        if not is_key.all():
            total, number = total + roc_auc(np.nan_to_num(maps.steps[t, : t + 1]), is_key), number + 1
    return Ratio(total, 0.5 * number, number)


def roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Probability that a positive scores higher than a negative, ties counting half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # mean ranks, from 1
    n, m = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def choice(record: EpisodeRecord, maps: Maps) -> Ratio:
    """Of the events that the key might have been, does the key have most weight per step? Ballet: which dance."""
    right, chance, number = 0.0, 0.0, 0
    for t, key, since in decisions(record):
        family = [event for event in record.events if event.t1 <= since and event.kind not in ("reward", "end")]
        cued = [event for event in family if event.t < key[1] and event.t1 > key[0]]
        if not cued or len(family) < 2:
            continue
        row = np.nan_to_num(maps.steps[t])
        masses = [row[event.t : event.t1].mean() for event in family]
        best = family[int(np.argmax(masses))]
        right += best in cued and len(set(masses)) > 1
        chance += len(cued) / len(family)
        number += 1
    return Ratio(right, chance, number)


def latency(record: EpisodeRecord, maps: Maps) -> Ratio:
    """Steps until the first recall@1, over the questions in which there is one."""
    found: dict[int, int] = {}
    for decision in decisions(record):
        weights = maps.chunks[decision.t]
        hit = not np.isnan(weights).all() and overlapping(record, decision.key)[int(np.nanargmax(weights))]
        if hit:
            found.setdefault(decision.since, decision.t - decision.since)
    return Ratio(float(sum(found.values())), float("nan"), len(found))


def persistence(record: EpisodeRecord, maps: Maps) -> Ratio:
    """Once recalled, does it stay so until the question is over? Chance as in recall@1."""
    hits, chance, number = 0.0, 0.0, 0
    begun: set[int] = set()
    asked = [one for one in decisions(record) if (~np.isnan(maps.chunks[one.t])).sum() > 1]
    for decision, (hit, by_chance) in zip(asked, _recalls(record, maps, 1), strict=True):
        if decision.since in begun:
            hits, chance, number = hits + hit, chance + by_chance, number + 1
        elif hit:
            begun.add(decision.since)
    return Ratio(hits, chance, number)
