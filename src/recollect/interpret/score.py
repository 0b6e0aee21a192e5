"""Can the picture be believed? Scores of recorded episodes, each with its chance level and an interval over episodes.

    report = score(record)                    or score([record, record, ...]) of one agent
    print(report.verdict)

Definitions stand in recall.py (does attention find the moment that matters), memory_usage.py (does removing it change
what the agent does) and heads.py (what kind of head is it).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from recollect.evaluation.confidence_interval import confidence_interval, quantiles
from recollect.interpret.agreement import agreement
from recollect.interpret.gates import check_records
from recollect.interpret.heads import (
    effective_number,
    label_head,
    lag_only_share,
    neighbours,
    redundancy,
    rows_of,
    span90,
    surprise,
)
from recollect.interpret.heads import staticness as how_static
from recollect.interpret.memory_usage import attended_and_used, effect_on_key, top_overlap
from recollect.interpret.pointing import pointing_game
from recollect.interpret.recall import (
    Maps,
    Ratio,
    choice,
    decisions,
    latency,
    localisation,
    maps_of,
    mass_on_key,
    persistence,
    recall_at,
)
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import HeadReport, Metric, Report

AT_K = 3
"""The larger k of recall@k."""
NO_DECISION = "no decision, all steps"
"""What a mean over all steps stands against, where no episode has a decision that depends on anything."""
Records = Sequence[EpisodeRecord]
Measure = Callable[[EpisodeRecord, Maps], Ratio]


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
        metrics += _recall(records, memory)
        coupled, coupling = couple(records, memory)
        metrics += [] if coupled is None else [coupled]
        metrics += _use(records, memory)
        metrics += _per_episode("redundancy of heads", [redundancy(record) for record in records])
        heads = [_head(records, index) for index in range(len(names))]
    metrics += _effects(records)
    metrics += _space(records)
    report = Report(
        episodes=len(records),
        metrics=tuple(metrics),
        heads=tuple(heads),
        coupling=coupling,
        gates=tuple(check_records(records, metrics)),
        notes=tuple(dict.fromkeys(note for record in records for note in record.info.notes)),
    )
    return replace(report, verdict=verdict(records[0], report))


def memory_heads(record: EpisodeRecord) -> list[int]:
    """The heads whose mean stands for the memory: those that read chunks, or all where there are none."""
    chunked = [i for i, head in enumerate(record.heads) if head.kind == "chunks"]
    return chunked or list(range(len(record.heads)))


def pooled(name: str, ratios: Sequence[Ratio], *, against: str = "chance", unit: str = "") -> list[Metric]:
    """A ratio of sums over episodes, with its interval; nothing where nothing was counted."""
    number = sum(ratio.number for ratio in ratios)
    if not number:
        return []
    totals, numbers = (np.array([getattr(ratio, part) for ratio in ratios], float) for part in ("total", "number"))
    low, high = confidence_interval(totals, numbers)
    chance = sum(ratio.chance for ratio in ratios) / number
    value = float(totals.sum() / number)
    return [
        Metric(name=name, value=value, chance=chance, against=against, number=number, low=low, high=high, unit=unit)
    ]


def _per_episode(name: str, values: Sequence[float], chance: float = math.nan, against: str = "chance") -> list[Metric]:
    """The mean over episodes in which there is a value."""
    return pooled(name, [Ratio(value, chance, 1) for value in values if not math.isnan(value)], against=against)


def _recall(records: Records, memory: Sequence[Maps]) -> list[Metric]:
    pairs = list(zip(records, memory, strict=True))
    both = [mass_on_key(record, maps) for record, maps in pairs]
    return [
        *pooled("recall@1", [recall_at(record, maps) for record, maps in pairs]),
        *pooled(f"recall@{AT_K}", [recall_at(record, maps, AT_K) for record, maps in pairs]),
        *pooled("mass on key", [mass for mass, _ in both]),
        *pooled("lift", [lift for _, lift in both]),
        *pooled("localisation AUC", [localisation(record, maps) for record, maps in pairs]),
        *pooled("choice", [choice(record, maps) for record, maps in pairs]),
        *pooled("latency", [latency(record, maps) for record, maps in pairs], unit="steps"),
        *pooled("persistence", [persistence(record, maps) for record, maps in pairs]),
    ]


def couple(records: Records, memory: Sequence[Maps]) -> tuple[Metric | None, dict[str, int]]:
    """P(success given recall) - P(success given none), and the table of episodes behind it.

    An episode has recalled when at least half of its decisions are right (recall@1). Without failures or without
    misses there is nothing to compare, and only the table is given.
    """
    rows = []
    for record, maps in zip(records, memory, strict=True):
        recalled = recall_at(record, maps)
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


def _use(records: Records, memory: Sequence[Maps]) -> list[Metric]:
    pairs = [(record, maps) for record, maps in zip(records, memory, strict=True) if _has_chunk_removal(record)]
    pairs = [pair for pair in pairs if decisions(pair[0])] or pairs
    agreed = [found for record, maps in pairs if (found := attended_and_used(record, maps)) is not None]
    pearsons = [Ratio(value, control, 1) for value, control in agreed]
    return [
        *pooled("attended and used, Pearson", pearsons, against="permuted"),
        *pooled("attended and used, top-2 overlap", [top_overlap(record, maps) for record, maps in pairs]),
    ]


def _has_chunk_removal(record: EpisodeRecord) -> bool:
    return record.removal is not None and record.removal.unit == "chunk"


def _effects(records: Records) -> list[Metric]:
    """What removal does at decisions, beside other chunks; of slots and whole memories beside other steps.

    An episode without a decision (it was cut, or took another way) counts only where none has one.
    """
    chunks = [record for record in records if _has_chunk_removal(record)]
    kls = [effect_on_key(record, record.removal.kl) for record in chunks if record.removal]
    dvs = [effect_on_key(record, np.abs(record.removal.dv)) for record in chunks if record.removal]
    found = pooled("removal KL", kls, against="other chunks", unit="nats")
    found += pooled("removal |dV|", dvs, against="other chunks")
    for record in records[:1]:
        removal = record.removal
        if removal is not None and removal.unit != "chunk":
            asked = [one for one in records if decisions(one)]
            values = [_at_decisions(one) for one in asked or records]
            against = "other steps" if asked else NO_DECISION
            found += pooled(f"removal KL of {removal.unit}", values, against=against, unit="nats")
    return found


def _at_decisions(record: EpisodeRecord) -> Ratio:
    """KL of the unit that matters most, at decisions (all steps where there are none) and at the other steps."""
    assert record.removal is not None
    steps = sorted({decision.t for decision in decisions(record)}) or list(range(record.num_steps))
    most = record.removal.kl.max(-1)
    others = np.delete(most, steps)
    chance = float(others.mean()) if len(others) else math.nan
    return Ratio(float(most[steps].sum()), chance * len(steps), len(steps))


def _head(records: Records, index: int) -> HeadReport:
    maps = [maps_of(record, [index]) for record in records]
    pairs = list(zip(records, maps, strict=True))
    judged = [rows_of(record, index) for record in records]
    both = [mass_on_key(record, one) for record, one in pairs]
    metrics = [
        *pooled("recall@1", [recall_at(record, one) for record, one in pairs]),
        *pooled("mass on key", [mass for mass, _ in both]),
        *pooled("lift", [lift for _, lift in both]),
        *pooled("localisation AUC", [localisation(record, one) for record, one in pairs]),
        *pooled("choice", [choice(record, one) for record, one in pairs]),
        *_per_episode("lag-only share", [lag_only_share(*one) for one in judged]),
        *_per_episode("span90", [span90(*one) for one in judged]),
        *_per_episode("effective number", [effective_number(rows) for _, rows in judged]),
        *pooled("surprise", [surprise(record, index) for record in records]),
        *pooled("neighbours", [neighbours(record, index) for record in records]),
        *_use(records, maps),
    ]
    return HeadReport(name=records[0].heads[index].name, label=label_head(records, index), metrics=tuple(metrics))


def _space(records: Records) -> list[Metric]:
    found = []
    if all(record.spatial is not None for record in records):
        maps = [record.spatial.mean(1) for record in records if record.spatial is not None]
        values = [how_static(one, record.frames) for one, record in zip(maps, records, strict=True)]
        found += _per_episode("staticness", values)
    for name, ratios in pointing_game(records).items():
        control = "another step's map" if name.startswith("pointing at") else "chance"
        found += pooled(name, ratios, against=control)
    return found + overlap(records)


def overlap(records: Records) -> list[Metric]:
    """How much of the places that attention favours are those that saliency favours."""
    found: dict[str, list[Ratio]] = {}
    for record in records:
        for name, ratio in agreement(record).items():
            found.setdefault(name, []).append(ratio)
    return [metric for name, ratios in found.items() for metric in pooled(name, ratios, against="another step's map")]


def verdict(record: EpisodeRecord, report: Report) -> str:
    """One line: what the metrics say, and which gates forbid to believe it."""
    parts = []
    if "mass on key" in report:
        metric = report["mass on key"]
        what = "the cued moment" if record.pairs else "the key"
        parts.append(
            f"at the decision, {metric.value:.0%} of the recall is on {what}, chance {metric.chance:.0%}; "
            f"it comes first in {report['recall@1'].value:.0%}, chance {report['recall@1'].chance:.0%}"
            if "recall@1" in report
            else f"at the decision, {metric.value:.0%} of the attention is on {what}, chance {metric.chance:.0%}"
        )
    if "removal KL" in report:
        metric = report["removal KL"]
        parts.append(
            f"removing that memory changes the policy by {metric.value:.2f} nats, another by {metric.chance:.2f}"
        )
    for unit in ("slot", "all"):
        if f"removal KL of {unit}" in report:
            metric = report[f"removal KL of {unit}"]
            what = "the memory" if unit == "all" else "its most used slot"
            elsewhere = "" if math.isnan(metric.chance) else f", elsewhere by {metric.chance:.2f}"
            when = "on average" if metric.against == NO_DECISION else "at the decision"
            parts.append(f"without {what} the policy changes by {metric.value:.2f} nats {when}{elsewhere}")
    parts += _pointed(report)
    if not parts and report.heads:
        parts.append(_without_truth(report))
    failed = [gate.name for gate in report.gates if gate.passed is False]
    if failed:
        parts.append(f"do not believe the picture: {', '.join(failed)}")
    return "; ".join(parts) or "nothing that could be scored: the world does not say what its decisions depend on"


def _pointed(report: Report) -> list[str]:
    """Of attention to places, or else saliency of the actor: at what it points, beside the map of another step."""
    for kind, name in (("attention", "attention"), ("perturbation actor", "saliency")):
        found = [
            one for one in report.metrics if one.name.startswith("pointing at ") and one.name.endswith(f", {kind}")
        ]
        if found:
            things = [(one.name.removeprefix("pointing at ").removesuffix(f", {kind}"), one) for one in found]
            says = [f"{thing} in {one.value:.0%}, another step's map in {one.chance:.0%}" for thing, one in things]
            return [f"{name} points at the {'; at the '.join(says)}"]
    return []


def _without_truth(report: Report) -> str:
    """What can be said where the world names no decision that depends on the past, or none was reached."""
    labels = [head.label for head in report.heads]
    constant = sum(label == "recency" or label.startswith("offset") for label in labels)
    spans = [metric.value for head in report.heads for metric in head.metrics if metric.name == "span90"]
    said = "no step here is known to depend on an earlier one; "
    said += f"{constant} of {len(labels)} heads look back a constant number of steps"
    if spans:
        said += f"; 90 % of the attention lies in the last {np.mean(spans):.0f} steps"
    if "attended and used, Pearson" in report:
        metric = report["attended and used, Pearson"]
        said += f"; attention and use agree by {metric.value:.2f} (Pearson), permuted {metric.chance:.2f}"
    return said
