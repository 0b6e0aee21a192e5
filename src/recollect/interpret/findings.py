"""What the measures of an agent's episodes show, in words; verdict.py answers whether its memory is used."""

import math

import numpy as np

from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report

NO_DECISION = "no decision, all steps"
"""Control of a mean over all steps, where no episode has a decision that depends on an earlier step."""


def describe_findings(record: EpisodeRecord, report: Report) -> str:
    """Say in one line what the metrics show, and which failed gates forbid to believe it."""
    if record.info.core == "memoryless":
        return "nothing: it sees the present step alone"
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
    for unit, what in (("slot", "its most used slot"), ("head", "its most used head"), ("all", "the memory")):
        if f"removal KL of {unit}" in report:
            metric = report[f"removal KL of {unit}"]
            elsewhere = "" if math.isnan(metric.chance) else f", elsewhere by {metric.chance:.2f}"
            when = "on average" if metric.against == NO_DECISION else "at the decision"
            parts.append(f"without {what} the policy changes by {metric.value:.2f} nats {when}{elsewhere}")
    parts += _pointing(report)
    if not parts and report.heads:
        parts.append(_without_ground_truth(report))
    failed = [gate.name for gate in report.gates if gate.passed is False]
    if failed:
        parts.append(f"do not believe the picture; failed checks: {', '.join(failed)}")
    return "; ".join(parts) or "nothing could be scored: the world does not name what its decisions depend on"


def _pointing(report: Report) -> list[str]:
    """Say at what attention to places points, or else the actor's saliency, beside the map of another step."""
    for kind, name in (("attention", "attention"), ("perturbation actor", "saliency")):
        start, end = "pointing at ", f", {kind}"
        found = [one for one in report.metrics if one.name.startswith(start) and one.name.endswith(end)]
        if found:
            things = [
                f"{one.name.removeprefix(start).removesuffix(end)} in {one.value:.0%}, another step's map in "
                f"{one.chance:.0%}"
                for one in found
            ]
            return [f"{name} points at the {'; at the '.join(things)}"]
    return []


def _without_ground_truth(report: Report) -> str:
    """Describe the heads, where the world names no decision that depends on the past, or none was reached."""
    labels = [head.label for head in report.heads]
    constant = sum(label == "recency" or label.startswith("offset") for label in labels)
    spans = [metric.value for head in report.heads for metric in head.metrics if metric.name == "span90"]
    text = "no step here is known to depend on an earlier one; "
    text += f"{constant} of {len(labels)} heads look back a constant number of steps"
    if spans:
        text += f"; 90 % of the attention lies in the last {np.mean(spans):.0f} steps"
    if "attended and used, Pearson" in report:
        metric = report["attended and used, Pearson"]
        text += f"; attention and use agree by {metric.value:.2f} (Pearson), permuted {metric.chance:.2f}"
    return text
