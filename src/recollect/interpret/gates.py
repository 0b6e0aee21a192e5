"""Sanity gates: what must hold before any picture is believed (Adebayo et al. 2018; Atrey et al. 2020).

of records alone    causality, rows that sum to what they should, finite numbers, recall above chance, and a policy
                    that changes when the recalled memory is removed
with the agent      the pass in which attention was heard decides as the agent did; equal seeds give equal records;
                    other weights give other maps; an untrained agent does not recall
"""

from collections.abc import Sequence

import numpy as np

from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Gate, Metric

TOLERANCE = 1e-3
USED = 0.01
"""Nats of a policy's change below which a memory is said not to be used: an untrained agent may look at the right
moment, because it looks unlike the others, but nothing follows from it (1e-7 nats; trained agents have 0.06 and more).
"""


def check_records(records: Sequence[EpisodeRecord], metrics: Sequence[Metric]) -> list[Gate]:
    """The gates that need no agent."""
    gates = [_finite(records)]
    if records[0].temporal is not None:
        gates += [_causality(records), _sums(records)]
    gates += [_above_chance(metric) for metric in metrics if metric.name in ("recall@1", "lift")]
    return gates + [_is_used(metric) for metric in metrics if metric.name == "removal KL"]


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
    passed = bool(_least(metric) > metric.chance)
    shown = f"{metric.value:.2f}, chance {metric.chance:.2f}"
    return Gate(name=f"{metric.name} above chance", passed=passed, says=shown)


def _is_used(metric: Metric) -> Gate:
    """Removing the memory of the right moment changes the policy, and more than removing another one."""
    other = 0.0 if np.isnan(metric.chance) else metric.chance
    shown = f"removing it changes the policy by {metric.value:.1g} nats, another by {other:.1g}; asked: {USED:g}"
    return Gate(name="what is recalled is used", passed=bool(_least(metric) > max(USED, other)), says=shown)


def _least(metric: Metric) -> float:
    """The lower end of the interval, or the value where there is none."""
    return metric.value if np.isnan(metric.low) else metric.low
