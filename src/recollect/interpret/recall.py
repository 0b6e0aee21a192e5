"""Does attention find the moment that matters? Measures of one head, or of a mean of heads, in one episode.

All need the world's ground truth: the decision at step t depends on the key ``[s0, s1)`` (``pairs``). The chance level
is the score of a head without any information.

    recall@k        one of the k chunks with most weight overlaps the key          chance: k draws without replacement
    mass on key     weight on the key's steps        each head's weight, spread evenly over the steps in its reach
    lift            mass on key / its chance level, where a head can reach the key 1
    AUC             attention as a detector of the key's steps, of all past steps  1/2
    choice          of the events that the key is one of, the key has most weight  1 / number of events
    latency         steps from the start of a question to the first recall@1
    persistence     recall@1 at the steps of a question that follow its first recall@1

Where weights are equal, an order among them says nothing: recall@k and choice are then the probability of a hit when
equal ones are drawn at random, so that even attention scores its chance level.
"""

from collections.abc import Sequence
from math import comb, nan
from typing import NamedTuple

import numpy as np

from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Samples


class Decision(NamedTuple):
    """A step that depends on an earlier one."""

    t: int
    key: tuple[int, int]
    since: int  # first step of the question


class Maps(NamedTuple):
    """Attention of one head, or of a mean of heads."""

    steps: np.ndarray  # ``[T, T]``, NaN out of reach
    chunks: np.ndarray  # ``[T, C]``, NaN out of reach
    heads: Sequence[int]  # of the record


def maps_of(record: EpisodeRecord, heads: Sequence[int]) -> Maps:
    """Return the mean over some heads of a record."""
    assert record.temporal is not None and record.chunk_rel is not None
    heads = list(heads)
    return Maps(mean_of_heads(record.temporal[:, heads]), mean_of_heads(record.chunk_rel[:, heads]), heads)


def mean_of_heads(maps: np.ndarray) -> np.ndarray:
    """Average maps ``[T, heads, ...]``, NaN out of reach; a place that only some heads reach counts as 0 for others."""
    return np.where(np.isnan(maps).all(1), np.nan, np.nan_to_num(maps).mean(1))


def decisions(record: EpisodeRecord) -> list[Decision]:
    """List all steps with a key in their past, except the last one of an ended episode: nothing is decided there."""
    last = record.num_steps - bool(record.done[-1])
    return [
        Decision(t, pair.key, pair.query[0])
        for pair in record.pairs
        for t in range(pair.query[0], min(pair.query[1], last))
        if pair.key[1] <= t
    ]


def decision_steps(record: EpisodeRecord) -> list[int]:
    """List the decision steps, or all steps where the world names none."""
    return [decision.t for decision in decisions(record)] or list(range(record.num_steps))


def overlapping(record: EpisodeRecord, key: tuple[int, int]) -> np.ndarray:
    """Mark the chunks that overlap a key, bool ``[C]``."""
    return np.array([start < key[1] and stop > key[0] for start, stop in record.chunks], bool)


def recall_at(record: EpisodeRecord, maps: Maps, k: int = 1) -> Samples:
    """Yield recall@k at decisions that see more than k chunks."""
    for decision in decisions(record):
        weights = maps.chunks[decision.t]
        seen = np.flatnonzero(~np.isnan(weights))
        if len(seen) > k:
            right = overlapping(record, decision.key)[seen]
            yield hit_probability(weights[seen], right, k), hit_probability(np.zeros(len(seen)), right, k)


def hit_probability(weights: np.ndarray, right: np.ndarray, k: int = 1) -> float:
    """Return the probability that one of the k largest weights is right, equal ones drawn at random."""
    above, level = split_top(weights, k)
    drawn = k - int(above.sum())
    return 1.0 if right[above].any() else 1 - comb(int((level & ~right).sum()), drawn) / comb(int(level.sum()), drawn)


def split_top(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the values that are above the k-th largest, and those that equal it."""
    last = np.sort(values)[-k]
    return values > last, values == last


def mass_on_key(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield the weight on the steps of the key, at every decision.

    Chance is the mean over heads of their whole weight times the key's share of the steps in their reach.
    """
    assert record.temporal is not None
    for t, (start, stop), _ in decisions(record):
        rows = record.temporal[t, maps.heads]  # h s
        reach = ~np.isnan(rows)
        share = reach[:, start:stop].sum(-1) / np.maximum(reach.sum(-1), 1)
        yield np.nansum(maps.steps[t, start:stop]), (np.nansum(rows, -1) * share).mean()


def lift(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield the weight on the key divided by its chance level, at decisions that have the key in reach."""
    for mass, chance in mass_on_key(record, maps):
        if chance > 0:
            yield mass / chance, 1.0


def localisation(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield the area under the ROC of attention as a detector of the key's steps; steps out of reach have weight 0."""
    for t, (start, stop), _ in decisions(record):
        is_key = np.zeros(t + 1, bool)
        is_key[start:stop] = True
        if not is_key.all():
            yield roc_auc(np.nan_to_num(maps.steps[t, : t + 1]), is_key), 0.5


def roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the probability that a positive scores higher than a negative, ties counting half."""
    n, m = int(positive.sum()), int((~positive).sum())
    return float((mean_ranks(scores)[positive].sum() - n * (n + 1) / 2) / (n * m))


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def choice(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield whether the key has most weight per step of the events before the question. Ballet: which dance."""
    for t, key, since in decisions(record):
        family = [event for event in record.blocks if event.t1 <= since]
        cued = [event for event in family if event.t < key[1] and event.t1 > key[0]]
        if cued and len(family) >= 2:
            row = np.nan_to_num(maps.steps[t])
            masses = np.array([row[event.t : event.t1].mean() for event in family])
            yield hit_probability(masses, np.array([event in cued for event in family])), len(cued) / len(family)


def latency(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield the steps until the first recall@1 of every question that has one."""
    found: set[int] = set()
    for decision in decisions(record):
        weights = maps.chunks[decision.t]
        seen = ~np.isnan(weights)
        hit = seen.any() and hit_probability(weights[seen], overlapping(record, decision.key)[seen]) == 1
        if hit and decision.since not in found:
            found.add(decision.since)
            yield decision.t - decision.since, nan


def persistence(record: EpisodeRecord, maps: Maps) -> Samples:
    """Yield recall@1 after the first hit of a question, until the question is over."""
    begun: set[int] = set()
    judged = [one for one in decisions(record) if (~np.isnan(maps.chunks[one.t])).sum() > 1]
    for decision, (hit, by_chance) in zip(judged, recall_at(record, maps), strict=True):
        if decision.since in begun:
            yield hit, by_chance
        elif hit == 1:
            begun.add(decision.since)
