"""What kind of head is it? Numbers that need no ground truth, and a label of one word.

    lag-only share      how much of the attention its mean profile by lag explains: 1 is a constant offset or recency
    place share         the same for its mean profile by absolute step, over episodes whose keys differ
    span90              steps back that hold 90 % of the mass
    effective number    exp(entropy): how many steps are attended to
    surprise            AUC of attention, less its profile by lag, as a detector of steps with a reward
    neighbours          of two recalls in a row of different chunks, how often are the chunks neighbours
    staticness          of spatial maps: 1 - mean total variation between steps at which the picture changed

Both shares are ``1 - sum (a - profile)^2 / sum (a - uniform)^2``, at least 0, over what is in reach.

Labels, the first that holds: ``diffuse`` (effective number at least 0.7 of what is in reach), ``recency`` and
``offset n`` (lag-only share at least 0.7; the profile peaks at lag n, at most 2 is recency), ``static`` (place share at
least 0.7, in episodes with different keys), else ``content``.
"""

from collections.abc import Sequence

import numpy as np

from recollect.interpret.recall import Ratio, decisions, roc_auc
from recollect.interpret.record import EpisodeRecord

FEW = 8
"""Steps in reach below which a row says nothing about the kind of a head; decisions that are too few to judge by."""
DIFFUSE = 0.7
EXPLAINED = 0.7
NEAR = 2
"""Largest lag that counts as recency."""


def rows_of(record: EpisodeRecord, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps ``[n]`` by which a head is judged, and its maps there ``[n, T]``, normalised, NaN out of reach.

    Decision steps, where there are enough; else all that have enough in reach.
    """
    assert record.temporal is not None
    rows = record.temporal[:, head].astype(np.float64)
    total = np.nansum(rows, -1)
    usable = ((~np.isnan(rows)).sum(-1) >= FEW) & (total > 0)
    asked = [decision.t for decision in decisions(record) if usable[decision.t]]
    steps = np.array(asked if len(asked) >= FEW else np.flatnonzero(usable), int)
    return steps, rows[steps] / np.maximum(total[steps], 1e-12)[:, None]


def lag_profile(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Mean weight by lag ``[T]``, over steps that reach it; NaN where none does."""
    lagged = _by_lag(steps, rows)
    number = (~np.isnan(lagged)).sum(0)
    return np.where(number > 0, np.nansum(lagged, 0) / np.maximum(number, 1), np.nan)


def _by_lag(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``[n, T]`` by absolute step to ``[n, T]`` by lag."""
    lags = np.arange(rows.shape[1])
    places = steps[:, None] - lags
    return np.where(places >= 0, np.take_along_axis(rows, np.maximum(places, 0), 1), np.nan)


def lag_only_share(steps: np.ndarray, rows: np.ndarray) -> float:
    """R^2 of the mean profile by lag; NaN without rows."""
    lagged = _by_lag(steps, rows)
    return _explained(lagged, lag_profile(steps, rows)) if len(steps) else float("nan")


def _explained(rows: np.ndarray, profile: np.ndarray) -> float:
    uniform = 1 / np.maximum((~np.isnan(rows)).sum(-1, keepdims=True), 1)
    spread = np.nansum((rows - uniform) ** 2)
    if spread <= 1e-9 * len(rows):
        return 0.0
    return max(0.0, 1 - float(np.nansum((rows - profile) ** 2) / spread))


def place_share(records: Sequence[EpisodeRecord], head: int) -> float:
    """R^2 of the mean profile by absolute step over all episodes; NaN unless their keys differ."""
    if len({decision.key for record in records for decision in decisions(record)}) < 2:
        return float("nan")
    longest = max(record.num_steps for record in records)
    parts = [rows_of(record, head)[1] for record in records]
    rows = np.concatenate([np.pad(p, ((0, 0), (0, longest - p.shape[1])), constant_values=np.nan) for p in parts])
    if not len(rows):
        return float("nan")
    number = (~np.isnan(rows)).sum(0)
    return _explained(rows, np.where(number > 0, np.nansum(rows, 0) / np.maximum(number, 1), np.nan))


def span90(steps: np.ndarray, rows: np.ndarray) -> float:
    """Mean number of steps back, the present one included, that hold 90 % of the mass."""
    held = np.nancumsum(_by_lag(steps, rows), -1)
    return float((held < 0.9).sum(-1).mean() + 1) if len(steps) else float("nan")


def effective_number(rows: np.ndarray) -> float:
    """Mean of exp(entropy)."""
    logs = np.log(np.where(np.nan_to_num(rows) > 0, rows, 1.0))
    return float(np.exp(-np.nansum(rows * logs, -1)).mean()) if len(rows) else float("nan")


def redundancy(record: EpisodeRecord) -> float:
    """Mean Jensen-Shannon distance between heads of one kind (0: all alike, 1: nothing in common); NaN for one."""
    assert record.temporal is not None
    found = []
    for kind in {head.kind for head in record.heads}:
        index = [i for i, head in enumerate(record.heads) if head.kind == kind]
        rows = np.nan_to_num(record.temporal[:, index]).astype(np.float64)
        total = rows.sum(-1, keepdims=True)
        rows = (rows / np.maximum(total, 1e-12))[(total[..., 0] > 0).all(1)]
        for i in range(len(index)):
            for j in range(i):
                found.append(_jensen_shannon(rows[:, i], rows[:, j]).mean() if len(rows) else np.nan)
    return float(np.nanmean(found)) if len(found) and not np.isnan(found).all() else float("nan")


def _jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    middle = (p + q) / 2

    def bits(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x * np.log2(np.where(x > 0, x, 1) / np.where(middle > 0, middle, 1)), 0).sum(-1)

    return np.sqrt(np.maximum((bits(p) + bits(q)) / 2, 0))


def surprise(record: EpisodeRecord, head: int) -> Ratio:
    """Are steps with a reward attended to, more than others that are as far back? Chance 1/2."""
    steps, rows = rows_of(record, head)
    struck = record.reward != 0
    if not len(steps) or not struck.any():
        return Ratio(0.0, 0.0, 0)
    lagged = _by_lag(steps, rows) - lag_profile(steps, rows)
    total, number = 0.0, 0
    for t, row in zip(steps, lagged, strict=True):
        past = row[: t + 1][::-1]
        seen = ~np.isnan(past)
        if struck[: t + 1][seen].any() and not struck[: t + 1][seen].all():
            total, number = total + roc_auc(past[seen], struck[: t + 1][seen]), number + 1
    return Ratio(total, 0.5 * number, number)


def neighbours(record: EpisodeRecord, head: int) -> Ratio:
    """Is the next recalled chunk a neighbour of the last one, as in free recall of people (Kahana 1996)?

    Of steps at which the most attended chunk is another one than at the step before; chance is even among the others.
    """
    assert record.chunk_rel is not None
    total, chance, number, last = 0.0, 0.0, 0, -1
    for weights in record.chunk_rel[:, head]:
        seen = np.flatnonzero(~np.isnan(weights))
        if len(seen) < 2:
            continue
        best = int(seen[np.argmax(weights[seen])])
        if last >= 0 and best != last:
            others = seen[seen != last]
            total, number = total + (abs(best - last) == 1), number + 1
            chance += float((np.abs(others - last) == 1).mean())
        last = best
    return Ratio(total, chance, number)


def staticness(maps: np.ndarray, frames: np.ndarray) -> float:
    """Of spatial maps ``[T, ...]`` and the pictures ``[T, H, W, 3]``; NaN where no picture changed."""
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    flat = flat / np.maximum(flat.sum(-1, keepdims=True), 1e-12)
    changed = (frames[1:] != frames[:-1]).any((1, 2, 3))
    variation = 0.5 * np.abs(np.diff(flat, axis=0)).sum(-1)
    return float(1 - variation[changed].mean()) if changed.any() else float("nan")


def label_head(records: Sequence[EpisodeRecord], head: int) -> str:
    """One word for a head; ``unread`` where it never had enough in reach."""
    judged = [(*rows_of(record, head), record.num_steps) for record in records]
    judged = [(steps, rows, number) for steps, rows, number in judged if len(steps)]
    if not judged:
        return "unread"
    spread = np.mean([effective_number(rows) / np.mean((~np.isnan(rows)).sum(-1)) for _, rows, _ in judged])
    if spread >= DIFFUSE:
        return "diffuse"
    if np.mean([lag_only_share(steps, rows) for steps, rows, _ in judged]) >= EXPLAINED:
        longest = max(number for *_, number in judged)
        profiles = [np.pad(lag_profile(s, r), (0, longest - n), constant_values=np.nan) for s, r, n in judged]
        known = ~np.isnan(profiles).all(0)
        mean = np.where(known, np.nansum(profiles, 0) / np.maximum((~np.isnan(profiles)).sum(0), 1), 0.0)
        peak = int(np.argmax(mean))
        return "recency" if peak <= NEAR else f"offset {peak}"
    if place_share(records, head) >= EXPLAINED:
        return "static"
    return "content"
