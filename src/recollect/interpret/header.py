"""Texts and small tables of an explorer page: title, outcome, events, heads, and the checks of its picture."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.interpret.meanings import meaning_of
from recollect.interpret.packing import Packed
from recollect.interpret.record import EpisodeRecord, Event, Head
from recollect.interpret.verdict import UNMOVED, describe_episode

LEAST_SCALE = 0.01  # nats: smaller effects have smaller bars, even where there is nothing larger
NAMED_ACTIONS = 10  # as many as there are colours
FIRST = (
    "recall@1",
    "mass on key",
    "lift",
    "removal KL",
    "cue swap followed",
    "success with the 1 most attended",
    "pointing at",
    "right",
    "pointing",
    "deletion AUC",
    "recall-success coupling",
    "attended and used, Pearson",
)
"""Beginnings of the names of measures that are listed first."""
REMEMBERS, USES, BELIEVE = "What does it remember?", "Does it use it?", "Can I believe it?"
OF_USE = (
    "removal",
    "cue swap",
    "memory swap",
    "success with",
    "deletion AUC",
    "insertion AUC",
    "attended and used",
    "recall-success",
)
OF_BELIEF = (
    "staticness",
    "recall@1, boundaries",
    "recall@1, chunks of",
    "decision kept",
    "distance between heads",
    "deletion of",
    "insertion of",
    "IoU of",
    "lag-only",
)
"""Beginnings of the names of measures, by the question that they answer; the others say what is remembered."""
SHARES = (
    "recall@",
    "mass",
    "choice",
    "persistence",
    "decision kept",
    "lag-only",
    "pointing",
    "right",
    "cue swap",
    "memory swap",
    "success with",
)
"""Beginnings of the names of measures that are shares of one; they are shown in percent."""
PLAIN_NAMES = {"heard as acted": "recorded pass acts alike"}
"""Names of gates on the page, where they differ from those in files."""


def describe(record: EpisodeRecord, report: Mapping[str, Any] | None, packed: Packed) -> dict[str, Any]:
    """Return the texts and small tables of a record on a page, as JSON data without NaN."""
    info = record.info
    labels = {head["name"]: head["label"] for head in (report or {}).get("heads", ())}
    kept = range(len(record.heads)) if packed.plan.heads is None else packed.plan.heads
    heads = [record.heads[number] for number in kept]
    step = info.checkpoint_step
    trained = "" if step is None else f", {format(step, ',').replace(',', ' ')} training steps"
    version = f", recollect {info.version}" if info.version else ""
    removal, dropped = record.removal, packed.dropped
    notes = [f"left out to fit: {words}" for words in dropped] + list(info.notes)
    notes += [f"{name}: {text}" for name, text in info.provenance.items()]
    return {
        "T": record.num_steps,
        "title": f"{info.task}, {info.core}",
        "name": f"{info.core}{trained}, seed {info.seed}",
        "about": f"{record.num_steps} steps, return {info.total_reward:.3g}, {info.agent}{trained}, seed {info.seed}"
        f"{version}",
        "outcome": _outcome(record),
        "provenance": dict(info.provenance),
        "notes": notes,
        "noted": _count(len(dropped), "part", " left out to fit") if dropped else _count(len(notes), "note"),
        "dropped": dropped,
        "over": bool(record.done[-1]),
        "actions": list(record.actions),
        "discrete": record.discrete,
        "heads": [
            {"layer": head.layer, "head": head.head, "kind": head.kind, "name": _display_name(record, head)}
            | {"label": labels.get(head.name)}
            for head in heads
        ],
        "nothing": f"This core keeps no attention to show; {'; '.join(info.notes) or 'see the notes'}.",
        "chunks": [list(chunk) for chunk in record.chunks],
        "events": [_event(record, event) for event in sorted(record.events, key=lambda event: event.t)],
        "kinds": list(dict.fromkeys(event.label for event in record.blocks)),
        "pairs": [{"query": list(pair.query), "key": list(pair.key)} for pair in record.pairs],
        "marks": (marks := bookmarks(record)),
        "actionKeys": (keys := _action_keys(record))[:NAMED_ACTIONS],
        "trackNotes": _track_notes(len(keys), marks),
        "opening": opening(record, list(kept)),
        "removal": None if removal is None else {"unit": removal.unit, "method": removal.method},
        # No effect is enlarged to look like a large one.
        "effectScale": LEAST_SCALE if removal is None else float(np.nan_to_num(removal.kl).max(initial=LEAST_SCALE)),
        "unmoved": UNMOVED,
        "saliencies": [{"method": one.method, "target": one.target, "stride": one.stride} for one in record.saliency],
        "slots": [{"name": one.name, "kind": one.kind, "axes": one.axes} for one in record.slots],
        "places": None if record.spacetime is None else list(record.spacetime.grid),
        "questions": answer_questions(
            record, report, {head.name: _display_name(record, head) for head in record.heads}
        ),
        "verdict": _verdict(report or {}),
        "report": report,
    }


def _verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer, its sentence and the numbers that decide it."""
    text, answer = report.get("verdict", ""), report.get("answer", "")
    return {
        "answer": answer,
        "reason": text.removeprefix(f"{answer.capitalize()}: ") if answer else text,
        "numbers": [{"name": name, "value": value} for name, value in report.get("key_numbers", {}).items()],
    }


def _count(number: int, noun: str, rest: str = "") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}{rest}"


def _display_name(record: EpisodeRecord, head: Head) -> str:
    """Return the name of a head, without its layer where there is only one."""
    layer = f"layer {head.layer + 1} "
    only = len({one.layer for one in record.heads}) == 1
    return head.name.removeprefix(layer) if only else head.name


def _action_keys(record: EpisodeRecord) -> list[tuple[int, str]]:
    """Return numbers and names of the actions of an episode, most frequent first; none where they are no choices."""
    if not record.discrete:
        return []
    numbers, counts = np.unique(record.action.reshape(record.num_steps, -1)[:, 0], return_counts=True)
    often = [int(numbers[place]) for place in np.argsort(-counts, kind="stable")]
    return [(at, record.actions[at] if at < len(record.actions) else f"action {at}") for at in often]


def _track_notes(actions: int, marks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes beside the colours of the timeline: how many actions have no entry, and what the bookmarks are."""
    more = [f"and {actions - NAMED_ACTIONS} more actions"] if actions > NAMED_ACTIONS else []
    why = ", ".join(dict.fromkeys(mark["why"] for mark in marks))
    return more + ([f"▲ bookmarks: {why}"] if why else [])


def bookmarks(record: EpisodeRecord) -> list[dict[str, Any]]:
    """List notable steps: the largest surprises of the value, effects of memory, and jumps of recall; three of each."""
    value = record.value.astype(np.float64)
    ahead = value.copy()
    ahead[-1] *= not record.terminated  # a value behind the end is no prediction that could fail
    scores = {"surprise of the value": np.append(np.abs(record.reward[1:] + ahead[1:] - value[:-1]), 0)}
    if record.removal is not None:
        scores["memory matters"] = np.nan_to_num(record.removal.kl).max(1, initial=0)
    if record.temporal is not None:
        top = np.nan_to_num(record.temporal).mean(1).max(1)
        scores["recall jumps"] = np.append(0, top[1:] - top[:-1])
    found: dict[int, str] = {}
    for why, score in scores.items():
        for step in np.argsort(-np.nan_to_num(score))[:3].tolist():
            if score[step] > 0:
                found.setdefault(step, why)
    return [{"t": step, "why": found[step]} for step in sorted(found)]


def align(first: EpisodeRecord, second: EpisodeRecord) -> list[tuple[int, int]]:
    """Pair the steps of two episodes: begin and end of events of the same kind, counted by kind."""
    knots = [(0, 0)]
    counts: dict[str, int] = {}
    for event in first.blocks:
        number = counts[event.kind] = counts.get(event.kind, -1) + 1
        twins = [one for one in second.blocks if one.kind == event.kind]
        if number < len(twins) and event.t >= knots[-1][0] and twins[number].t >= knots[-1][1]:
            knots += [(event.t, twins[number].t), (event.t1, twins[number].t1)]
    return [*knots, (max(first.num_steps, knots[-1][0]), max(second.num_steps, knots[-1][1]))]


def opening(record: EpisodeRecord, heads: list[int]) -> dict[str, int]:
    """Return the first shown step and head: the last question and its best head, else the largest effect.

    The number of the head is its place among ``heads``.
    """
    temporal, removal = record.temporal, record.removal
    steps = record.num_steps
    questions = [pair for pair in record.pairs if pair.query[0] < steps]
    step = steps - 1
    if questions:
        step = min((questions[-1].query[0] + questions[-1].query[1]) // 2, steps - 1)
    elif removal is not None and np.isfinite(removal.kl).any():
        step = int(np.nan_to_num(removal.kl, nan=-1.0).max(1).argmax())
    if temporal is None or not heads:
        return {"step": step, "head": 0}
    if questions:
        worth = [np.nansum(temporal[step, head, slice(*questions[-1].key)]) for head in heads]
    else:
        chunked = [float(record.heads[head].kind == "chunks") for head in heads]
        past = np.nan_to_num(temporal[step][heads][:, : max(step - 8, 0)])
        worth = [kind + mass for kind, mass in zip(chunked, past.sum(1), strict=True)]
    return {"step": step, "head": int(np.argmax(worth))}


def answer_questions(
    record: EpisodeRecord, report: Mapping[str, Any] | None, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the three questions of a page: each with an answer in a sentence, and the measures behind it.

    Args:
        record: the shown episode.
        report: of :func:`~recollect.interpret.score.score`, as JSON data.
        names: of heads for a person, by their name in the report.
    """
    if report is None:
        return []
    metrics = sorted(report.get("metrics", ()), key=lambda metric: _place(metric["name"]))
    gates = list(report.get("gates", ()))
    rows: dict[str, list[dict[str, str]]] = {REMEMBERS: [], USES: [], BELIEVE: [_gate_row(gate) for gate in gates]}
    rows[BELIEVE].sort(key=lambda row: row["verdict"] != "fail")
    for metric in metrics:
        rows[_question(metric["name"])].append(_trust_row(metric))
    answers = {
        REMEMBERS: report.get("findings", ""),
        # The reason stands above the questions, once; here the shown episode is added to it.
        USES: " ".join(part for part in (_sentence(report.get("answer", "")), describe_episode(record)) if part),
        BELIEVE: _believed(gates),
    }
    return [
        {
            "question": name,
            "answer": _sentence(answers[name]),
            "rows": rows[name],
            "heads": _measures_by_head(report.get("heads", ()), name, names),
        }
        for name in rows
    ]


def _question(measure: str) -> str:
    """Return the question that a measure answers."""
    return USES if measure.startswith(OF_USE) else BELIEVE if measure.startswith(OF_BELIEF) else REMEMBERS


def _measures_by_head(heads: Sequence[Mapping[str, Any]], question: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the measures of heads that answer a question: a row per head, None where it lacks the measure."""
    found = {
        names.get(head["name"], head["name"]): {
            metric["name"]: _trust_row(metric) for metric in head["metrics"] if _question(metric["name"]) == question
        }
        for head in heads
    }
    measures = list(dict.fromkeys(measure for rows in found.values() for measure in rows))
    return {
        "measures": measures,
        "meanings": "; ".join(f"{name}: {meaning}" for name in measures if (meaning := meaning_of(name))),
        "rows": [
            {"head": head, "cells": [rows.get(measure) for measure in measures]} for head, rows in found.items() if rows
        ],
    }


def _place(name: str) -> int:
    return next((i for i, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


def _gate_name(gate: Mapping[str, Any]) -> str:
    name: str = gate["name"]
    return PLAIN_NAMES.get(name, name)


def _gate_row(gate: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": _gate_name(gate),
        "meaning": gate["says"],
        "value": "",
        "control": "" if gate["passed"] is not None else "not tried",
        "verdict": {True: "pass", False: "fail", None: ""}[gate["passed"]],
        "note": gate["says"],
    }


def _believed(gates: Sequence[Mapping[str, Any]]) -> str:
    """Say in a sentence which checks hold."""
    tried = [gate for gate in gates if gate["passed"] is not None]
    failed = [_gate_name(gate) for gate in tried if not gate["passed"]]
    if not tried:
        return "Cannot tell: no check was made."
    if not failed:
        return f"Yes: {'all' if len(tried) > 1 else 'the'} {_count(len(tried), 'check')} passed."
    return f"No: {_count(len(failed), 'check')} of {len(tried)} failed ({', '.join(failed)})."


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


def _trust_row(metric: Mapping[str, Any]) -> dict[str, str]:
    share = metric["name"].startswith(SHARES)
    value, low, high, chance = (_number(metric.get(part), share) for part in ("value", "low", "high", "chance"))
    interval = "" if low == UNKNOWN else f"; 95 % interval {low} to {high}"
    unit = metric.get("unit", "")
    return {
        "name": metric["name"],
        "meaning": meaning_of(metric["name"]),
        "value": value + (f" {unit}" if unit else ""),
        "control": UNKNOWN if chance == UNKNOWN else f"{metric.get('against', 'chance')} {chance}",
        "verdict": "",
        "note": f"n = {metric.get('number', 0)}{interval}",
    }


UNKNOWN = "–"


def _number(number: float | None, share: bool) -> str:
    if number is None or math.isnan(number):
        return UNKNOWN
    return f"{100 * number:.0f} %" if share else f"{number:.2f}"


def _outcome(record: EpisodeRecord) -> dict[str, str]:
    info = record.info
    if info.success is not None:
        return {"text": "success" if info.success else "failure", "mark": "good" if info.success else "bad"}
    return {"text": "cut" if info.score is None else f"score {info.score:.3g}", "mark": "open"}


def _event(record: EpisodeRecord, event: Event) -> dict[str, Any]:
    block = event in record.blocks
    query = block and any(event.t < pair.query[1] and pair.query[0] < event.t1 for pair in record.pairs)
    return {"t": event.t, "t1": event.t1, "kind": event.kind, "label": event.label, "query": query, "block": block}
