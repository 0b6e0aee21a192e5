"""What kind of head is it? Numbers without ground truth, and a label of one word.

    lag-only share      how much of the attention its mean profile by lag explains: 1 is a constant offset or recency
    place share         the same for its mean profile by absolute step, over episodes whose keys differ
    span90              steps back that hold 90 % of the mass
    effective number    exp(entropy): how many steps are attended to
    surprise            AUC of attention, less its profile by lag, as a detector of steps with a reward
    neighbours          of two recalls in a row of different chunks, how often are the chunks neighbours
    staticness          of spatial maps: 1 - mean total variation between steps at which the picture changed

Both shares are ``1 - sum (a - profile)^2 / sum (a - uniform)^2``, at least 0, over the steps in reach.

Labels, the first that holds: ``diffuse`` (effective number at least 0.7 of the steps in reach), ``recency`` and
``offset n`` (lag-only share at least 0.7; the profile peaks at lag n, at most 2 is recency), ``static`` (place share at
least 0.7, in episodes with different keys), else ``content``.
"""

from collections.abc import Sequence

import numpy as np

from recollect.interpret.recall import decisions, roc_auc
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Samples

FEW = 8  # rows with fewer steps in reach, and fewer decisions than this, do not show the kind of a head
DIFFUSE = 0.7
EXPLAINED = 0.7
NEAR = 2  # largest lag that counts as recency


def rows_of(record: EpisodeRecord, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps ``[n]`` by which a head is judged, and its normalised maps ``[n, T]``, NaN out of reach.

    These are decision steps, where there are enough; else all that have enough in reach.
    """
    assert record.temporal is not None
    rows = record.temporal[:, head].astype(np.float64)
    total = np.nansum(rows, -1)
    usable = ((~np.isnan(rows)).sum(-1) >= FEW) & (total > 0)
    deciding = [decision.t for decision in decisions(record) if usable[decision.t]]
    steps = np.array(deciding if len(deciding) >= FEW else np.flatnonzero(usable), int)
    return steps, rows[steps] / np.maximum(total[steps], 1e-12)[:, None]


def _mean_profile(rows: np.ndarray) -> np.ndarray:
    """Average rows ``[n, T]`` over those that reach each place; NaN where none does."""
    number = (~np.isnan(rows)).sum(0)
    return np.where(number > 0, np.nansum(rows, 0) / np.maximum(number, 1), np.nan)


def lag_profile(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the mean weight by lag ``[T]``, over steps that reach it; NaN where none does."""
    return _mean_profile(_by_lag(steps, rows))


def _by_lag(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Convert ``[n, T]`` by absolute step to ``[n, T]`` by lag."""
    lags = np.arange(rows.shape[1])
    places = steps[:, None] - lags
    return np.where(places >= 0, np.take_along_axis(rows, np.maximum(places, 0), 1), np.nan)


def lag_only_share(steps: np.ndarray, rows: np.ndarray) -> float:
    """Return R^2 of the mean profile by lag; NaN without rows."""
    lagged = _by_lag(steps, rows)
    return _explained(lagged, _mean_profile(lagged)) if len(steps) else float("nan")


def _explained(rows: np.ndarray, profile: np.ndarray) -> float:
    uniform = 1 / np.maximum((~np.isnan(rows)).sum(-1, keepdims=True), 1)
    spread = np.nansum((rows - uniform) ** 2)
    if spread <= 1e-9 * len(rows):
        return 0.0
    return max(0.0, 1 - float(np.nansum((rows - profile) ** 2) / spread))


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, length - rows.shape[-1])]
    return np.pad(rows, padding, constant_values=np.nan)


def place_share(records: Sequence[EpisodeRecord], head: int) -> float:
    """Return R^2 of the mean profile by absolute step over all episodes; NaN unless their keys differ."""
    if len({decision.key for record in records for decision in decisions(record)}) < 2:
        return float("nan")
    longest = max(record.num_steps for record in records)
    rows = np.concatenate([_padded(rows_of(record, head)[1], longest) for record in records])
    return _explained(rows, _mean_profile(rows)) if len(rows) else float("nan")


def span90(steps: np.ndarray, rows: np.ndarray) -> float:
    """Return the mean number of steps back, the present one included, that hold 90 % of the mass."""
    held = np.nancumsum(_by_lag(steps, rows), -1)
    return float((held < 0.9).sum(-1).mean() + 1) if len(steps) else float("nan")


def effective_number(rows: np.ndarray) -> float:
    """Return the mean of exp(entropy)."""
    logs = np.log(np.where(np.nan_to_num(rows) > 0, rows, 1.0))
    return float(np.exp(-np.nansum(rows * logs, -1)).mean()) if len(rows) else float("nan")


def distance_between_heads(record: EpisodeRecord) -> float:
    """Return the mean Jensen-Shannon distance between heads of one kind (0: equal, 1: disjoint); NaN for one head."""
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


def surprise(record: EpisodeRecord, head: int) -> Samples:
    """Yield the AUC of attention, beyond its profile by lag, as a detector of steps with a reward. Chance 1/2."""
    steps, rows = rows_of(record, head)
    rewarded = record.reward != 0
    if not len(steps) or not rewarded.any():
        return
    lagged = _by_lag(steps, rows) - lag_profile(steps, rows)
    for t, row in zip(steps, lagged, strict=True):
        past = row[: t + 1][::-1]
        seen = ~np.isnan(past)
        struck = rewarded[: t + 1][seen]
        if struck.any() and not struck.all():
            yield roc_auc(past[seen], struck), 0.5


def neighbours(record: EpisodeRecord, head: int) -> Samples:
    """Yield whether the next recalled chunk is a neighbour of the last one, as in human free recall (Kahana 1996).

    Of steps at which the most attended chunk differs from that of the step before; chance is even among the others.
    """
    assert record.chunk_rel is not None
    last = -1
    for weights in record.chunk_rel[:, head]:
        seen = np.flatnonzero(~np.isnan(weights))
        if len(seen) < 2:
            continue
        best = int(seen[np.argmax(weights[seen])])
        if last >= 0 and best != last:
            yield abs(best - last) == 1, float((np.abs(seen[seen != last] - last) == 1).mean())
        last = best


def staticness(maps: np.ndarray, frames: np.ndarray) -> float:
    """Return 1 - mean total variation of maps ``[T, ...]`` where frames ``[T, H, W, 3]`` changed; NaN if none did."""
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    flat = flat / np.maximum(flat.sum(-1, keepdims=True), 1e-12)
    changed = (frames[1:] != frames[:-1]).any((1, 2, 3))
    variation = 0.5 * np.abs(np.diff(flat, axis=0)).sum(-1)
    return float(1 - variation[changed].mean()) if changed.any() else float("nan")


def label_head(records: Sequence[EpisodeRecord], head: int) -> str:
    """Return one word for a head; ``unread`` where it never had enough in reach."""
    judged = [(*rows_of(record, head), record.num_steps) for record in records]
    judged = [(steps, rows, number) for steps, rows, number in judged if len(steps)]
    if not judged:
        return "unread"
    spread = np.mean([effective_number(rows) / np.mean((~np.isnan(rows)).sum(-1)) for _, rows, _ in judged])
    if spread >= DIFFUSE:
        return "diffuse"
    if np.mean([lag_only_share(steps, rows) for steps, rows, _ in judged]) >= EXPLAINED:
        longest = max(number for *_, number in judged)
        mean = _mean_profile(np.stack([_padded(lag_profile(steps, rows), longest) for steps, rows, _ in judged]))
        peak = int(np.argmax(np.nan_to_num(mean)))
        return "recency" if peak <= NEAR else f"offset {peak}"
    return "static" if place_share(records, head) >= EXPLAINED else "content"
