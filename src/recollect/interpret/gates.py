"""Sanity gates: what must hold before any picture is believed (Adebayo et al. 2018; Atrey et al. 2020).

of records alone    causality, rows that sum to what they should, finite numbers, recall above chance
with the agent      the pass in which attention was heard decides as the agent did; equal seeds give equal records;
                    other weights give other maps; an untrained agent does not recall
"""

from collections.abc import Sequence

import numpy as np

from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Gate, Metric

TOLERANCE = 1e-3


def check_records(records: Sequence[EpisodeRecord], metrics: Sequence[Metric]) -> list[Gate]:
    """The gates that need no agent."""
    gates = [_finite(records)]
    if records[0].temporal is not None:
        gates += [_causality(records), _sums(records)]
    gates += [_above_chance(metric) for metric in metrics if metric.name in ("recall@1", "lift")]
    return gates


def _finite(records: Sequence[EpisodeRecord]) -> Gate:
    found = []
    for number, record in enumerate(records):
        parts = {**record.observations, "policy": record.logits, "value": record.value}
        for name, part in parts.items():
            broken = ~np.isfinite(part.astype(np.float64)).reshape(record.num_steps, -1).all(-1)
            if broken.any():
                found.append(f"{name} of episode {number} from step {int(np.argmax(broken))} on")
                break
    says = f"not a number: {', '.join(found[:3])}" if found else "what was seen, policies and values are finite"
    return Gate(name="finite", passed=not found, says=says)


def _causality(records: Sequence[EpisodeRecord]) -> Gate:
    worst = 0.0
    for record in records:
        assert record.temporal is not None
        future = np.triu(np.ones((record.num_steps, record.num_steps)), 1) > 0
        worst = max(worst, float(np.nan_to_num(np.abs(record.temporal)).max(axis=1)[future].max(initial=0)))
    return Gate(name="causality", passed=worst == 0.0, says=f"largest weight on a later step: {worst:g}")


def _sums(records: Sequence[EpisodeRecord]) -> Gate:
    worst = 0.0
    for record in records:
        assert record.temporal is not None
        sums: np.ndarray = np.nansum(record.temporal, -1)
        there = np.asarray((~np.isnan(record.temporal)).any(-1))
        for index, head in enumerate(record.heads):
            part = sums[there[:, index], index]
            off = np.abs(part - 1) if head.kind == "window" else np.maximum(part - 1, 0)
            worst = max(worst, float(off.max(initial=0)))
    return Gate(name="rows sum", passed=worst < TOLERANCE, says=f"largest error of a row's sum: {worst:.1e}")


def _above_chance(metric: Metric) -> Gate:
    bound = metric.value if np.isnan(metric.low) else metric.low
    passed = bool(bound > metric.chance)
    shown = f"{metric.value:.2f}, chance {metric.chance:.2f}"
    return Gate(name=f"{metric.name} above chance", passed=passed, says=shown)
