"""Can the picture be believed? Scores of recorded episodes, each with its chance level and an interval over episodes.

    report = score(record)                    or score([record, record, ...]) of one agent
    print(report.verdict)

Definitions are in recall.py (does attention find the moment that matters), memory_usage.py (does removing it change
what the agent does), heads.py (what kind of head is it) and pointing.py (does it find the things in the picture).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from recollect.evaluation.confidence_interval import quantiles
from recollect.interpret.findings import NO_DECISION, describe_findings
from recollect.interpret.gates import check_records
from recollect.interpret.heads import (
    distance_between_heads,
    effective_number,
    label_head,
    lag_only_share,
    neighbours,
    rows_of,
    span90,
    staticness,
    surprise,
)
from recollect.interpret.memory_usage import attended_and_used, effect_on_key, top_overlap
from recollect.interpret.pointing import agreement, pointing_game
from recollect.interpret.recall import (
    Maps,
    choice,
    decision_steps,
    decisions,
    latency,
    lift,
    localisation,
    maps_of,
    mass_on_key,
    persistence,
    recall_at,
)
from recollect.interpret.record import EpisodeRecord, memory_heads
from recollect.interpret.report import HeadReport, Metric, Ratio, Report, Samples, add_up, pool
from recollect.interpret.verdict import with_verdict

Records = Sequence[EpisodeRecord]
RECALL: dict[str, Callable[[EpisodeRecord, Maps], Samples]] = {
    "recall@1": recall_at,
    "recall@3": partial(recall_at, k=3),
    "mass on key": mass_on_key,
    "lift": lift,
    "localisation AUC": localisation,
    "choice": choice,
    "latency": latency,
    "persistence": persistence,
}
"""Measures of the memory's attention; latency is in steps."""
RECALL_OF_A_HEAD = ("recall@1", "mass on key", "lift", "localisation AUC", "choice")


def score(records: EpisodeRecord | Records) -> Report:
    """Score episodes of one agent.

    Args:
        records: one or more; intervals and the coupling of recall and success need several.

    Raises:
        ValueError: no record, or records of different cores.
    """
    records = [records] if isinstance(records, EpisodeRecord) else list(records)
    if not records:
        raise ValueError("records=[]: give at least one recorded episode")
    names = [head.name for head in records[0].heads]
    if any([head.name for head in record.heads] != names for record in records):
        raise ValueError("records are of agents with different heads: score each agent on its own")
    metrics: list[Metric] = []
    heads: list[HeadReport] = []
    coupling: dict[str, int] = {}
    if records[0].temporal is not None:
        memory = [maps_of(record, memory_heads(record)) for record in records]
        metrics += _recall(records, memory, tuple(RECALL))
        coupled, coupling = couple(records, memory)
        metrics += [] if coupled is None else [coupled]
        metrics += _usage(records, memory)
        metrics += _per_episode("distance between heads", [distance_between_heads(record) for record in records])
        heads = [_head(records, index) for index in range(len(names))]
    metrics += _effects(records) + _space(records)
    report = Report(
        episodes=len(records),
        metrics=tuple(metrics),
        heads=tuple(heads),
        coupling=coupling,
        gates=tuple(check_records(records, metrics)),
        notes=tuple(dict.fromkeys(note for record in records for note in record.info.notes)),
    )
    return with_verdict(replace(report, findings=describe_findings(records[0], report)), records)


def _per_episode(name: str, values: Sequence[float]) -> list[Metric]:
    """Return the mean over episodes that have a value."""
    return pool(name, [Ratio(value, math.nan, 1) for value in values if not math.isnan(value)])


def _recall(records: Records, maps: Sequence[Maps], names: Sequence[str]) -> list[Metric]:
    return [
        metric
        for name in names
        for metric in pool(
            name,
            [add_up(RECALL[name](*pair)) for pair in zip(records, maps, strict=True)],
            unit="steps" if name == "latency" else "",
        )
    ]


def couple(records: Records, memory: Sequence[Maps]) -> tuple[Metric | None, dict[str, int]]:
    """Return P(success given recall) - P(success given none), and the table of episodes behind it.

    An episode has recalled when at least half of its decisions are right (recall@1). Without failures or without
    misses nothing can be compared, and the metric is None.
    """
    rows = []
    for record, maps in zip(records, memory, strict=True):
        recalled = add_up(recall_at(record, maps))
        if record.info.success is not None and recalled.number:
            rows.append((2 * recalled.total >= recalled.number, record.info.success))
    table = {
        f"{first} and {second}": sum(row == (has_recalled, succeeded) for row in rows)
        for first, has_recalled in (("recalled", True), ("missed", False))
        for second, succeeded in (("succeeded", True), ("failed", False))
    }
    flags = np.array(rows, bool).reshape(-1, 2)

    def difference(part: np.ndarray) -> float:
        groups = [part[part[:, 0] == value, 1] for value in (True, False)]
        return float(groups[0].mean() - groups[1].mean()) if all(map(len, groups)) else math.nan

    value = difference(flags)
    if math.isnan(value):
        return None, table
    generator = np.random.default_rng(0)
    drawn = [difference(flags[generator.integers(0, len(flags), len(flags))]) for _ in range(1000)]
    low, high = quantiles(np.array([one for one in drawn if not math.isnan(one)]))
    found = Metric(name="recall-success coupling", value=value, chance=0.0, number=len(flags), low=low, high=high)
    return found, table


def _usage(records: Records, memory: Sequence[Maps]) -> list[Metric]:
    pairs = [(record, maps) for record, maps in zip(records, memory, strict=True) if record.has_chunk_removal]
    pairs = [pair for pair in pairs if decisions(pair[0])] or pairs
    pearsons = [Ratio(*found, 1) for pair in pairs if (found := attended_and_used(*pair)) is not None]
    return [
        *pool("attended and used, Pearson", pearsons, against="permuted"),
        *pool("attended and used, top-2 overlap", [add_up(top_overlap(*pair)) for pair in pairs]),
    ]


def _effects(records: Records) -> list[Metric]:
    """Return the effect of removal at decisions, beside other chunks; of slots and whole memories beside other steps.

    An episode without a decision (it was cut, or took another way) counts only where none has one.
    """
    removals = [(record, record.removal) for record in records if record.removal is not None]
    chunks = [pair for pair in removals if pair[0].has_chunk_removal]
    kls = [add_up(effect_on_key(record, removal.kl)) for record, removal in chunks]
    dvs = [add_up(effect_on_key(record, np.abs(removal.dv))) for record, removal in chunks]
    found = pool("removal KL", kls, against="other chunks", unit="nats")
    found += pool("removal |dV|", dvs, against="other chunks")
    removal = records[0].removal
    if removal is not None and removal.unit != "chunk":
        deciding = [one for one in records if decisions(one)]
        values = [_at_decisions(one) for one in deciding or records]
        against = "other steps" if deciding else NO_DECISION
        found += pool(f"removal KL of {removal.unit}", values, against=against, unit="nats")
    return found


def _at_decisions(record: EpisodeRecord) -> Ratio:
    """Return the KL of the unit that matters most, at decisions (else all steps) and at the other steps."""
    assert record.removal is not None
    steps = sorted(set(decision_steps(record)))
    most = record.removal.kl.max(-1)
    others = np.delete(most, steps)
    chance = float(others.mean()) if len(others) else math.nan
    return Ratio(float(most[steps].sum()), chance * len(steps), len(steps))


def _head(records: Records, index: int) -> HeadReport:
    maps = [maps_of(record, [index]) for record in records]
    judged = [rows_of(record, index) for record in records]
    metrics = [
        *_recall(records, maps, RECALL_OF_A_HEAD),
        *_per_episode("lag-only share", [lag_only_share(*one) for one in judged]),
        *_per_episode("span90", [span90(*one) for one in judged]),
        *_per_episode("effective number", [effective_number(rows) for _, rows in judged]),
        *pool("surprise", [add_up(surprise(record, index)) for record in records]),
        *pool("neighbours", [add_up(neighbours(record, index)) for record in records]),
        *_usage(records, maps),
    ]
    return HeadReport(name=records[0].heads[index].name, label=label_head(records, index), metrics=tuple(metrics))


def _space(records: Records) -> list[Metric]:
    found = []
    if all(record.spatial is not None for record in records):
        pairs = [(record.spatial.mean(1), record.frames) for record in records if record.spatial is not None]
        found += _per_episode("staticness", [staticness(*pair) for pair in pairs])
    for name, ratios in pointing_game(records).items():
        found += pool(name, ratios, against="another step's map" if name.startswith("pointing at") else "chance")
    agreed: dict[str, list[Ratio]] = {}
    for record in records:
        for name, ratio in agreement(record).items():
            agreed.setdefault(name, []).append(ratio)
    for name, ratios in agreed.items():
        found += pool(name, ratios, against="another step's map")
    return found
