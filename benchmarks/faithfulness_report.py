"""Tables of docs/believe.md about trained agents, from ``results/explorer/*.json`` (``benchmarks/faithfulness.py``)."""

import json
from pathlib import Path
from typing import Any

AGENTS = {
    "hcam-t-maze": "hcam, T-maze",
    "hcam-ballet": "hcam, ballet",
    "adaptive-catch": "adaptive, catch",
    "adaptive-pong": "adaptive, Pong",
}
MEASURES = (
    "recall@1",
    "mass on key",
    "lift",
    "recall-success coupling",
    "cue swap followed",
    "removal KL",
    "attended and used, Pearson",
    "attended and used, top-2 overlap",
    "deletion AUC",
    "success with the 1 most attended",
    "recall@1, boundaries moved",
    "decision kept, boundaries moved",
)
SIX = (
    "mott",
    "adaptive",
    "spatio-temporal-sequential",
    "spatio-temporal-one-shot",
    "timesformer-divided",
    "timesformer-joint",
)
LEARNED = 0.5
"""Share of balls above which an agent of ``catch`` has learned something: it has 0.2 to 0.3 by standing still."""
NO_PLACES = ("adaptive", "spatio-temporal-sequential")
"""Agents whose attention is to whole pictures, not to places in them."""
PLACES = ["agent, world", "score", "attention on a thing", "on the ball", "saliency on a thing", "on the ball", "so"]


def faithful_rows(results: Path) -> tuple[list[str], list[list[str]], str]:
    """Heading, a row per measure with a column per agent, and where it was measured."""
    found = {name: data for name in AGENTS if (data := _read(results, name)) is not None}
    heading = ["measured", *(AGENTS[name] for name in found)]
    rows = [["score of the episodes", *map(_score, found.values())]]
    rows += [[measure, *(_cell(data, measure) for data in found.values())] for measure in MEASURES]
    rows += [["lag-only share of its heads", *map(_lags, found.values())]]
    rows += [["gates that fail", *map(_failed, found.values())]]
    return heading, rows, "\n".join(f"* {AGENTS[name]}: {_where(data)}" for name, data in found.items())


def place_rows(results: Path) -> list[list[str]]:
    """A row per attention agent in ``catch`` and ``track``, and of Pong: does its map fall on what matters?"""
    rows = []
    for world in ("catch", "track", "pong"):
        for agent in SIX:
            data = _read(results, f"{agent}-{world}")
            if data is not None:
                rows.append([f"`{agent}`, {world}", _score(data), *_looks(data, agent), _verdict(data, agent)])
            elif world == "catch":
                rows.append([f"`{agent}`, {world}", "–", "–", "–", "–", "–", "no trained run yet"])
    return rows


def _read(results: Path, name: str) -> dict[str, Any] | None:
    path = results / "explorer" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _metric(data: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((metric for metric in data["report"]["metrics"] if metric["name"] == name), None)


def number(value: float | None) -> str:
    """Two digits; very small numbers are said to be small."""
    if value is None:
        return "–"
    return f"{value:.2f}" if abs(value) >= 0.005 or value == 0 else "below 0.01"


def _cell(data: dict[str, Any], name: str) -> str:
    metric = _metric(data, name)
    if metric is None:
        return _why_blank(data, name)
    unit = f" {metric['unit']}" if metric["unit"] else ""
    low = "" if metric["low"] is None else f" [{number(metric['low'])}, {number(metric['high'])}]"
    control = "" if metric["chance"] is None else f"; {metric['against']} {number(metric['chance'])}"
    return f"{number(metric['value'])}{unit}{low}{control}"


def _why_blank(data: dict[str, Any], name: str) -> str:
    table = data["report"]["coupling"]
    if name == "recall-success coupling" and table:
        return "no episode differs" if not (table["missed and succeeded"] or table["missed and failed"]) else "–"
    return "–"


def _score(data: dict[str, Any]) -> str:
    if data["score"] is None:
        return f"reward {data['reward']:.2f} in the first {max(data['steps'])} steps"
    known = [one for one in data["successes"] if one is not None]
    solved = f", {sum(known)} of {len(known)} solved" if known else ""
    return f"{data['score']:.2f}{solved}"


def _lags(data: dict[str, Any]) -> str:
    shares = [_named(head["metrics"], "lag-only share") for head in data["report"]["heads"]]
    by_kind: dict[str, list[str]] = {}
    for head, share in zip(data["report"]["heads"], shares, strict=True):
        kind = "chunks" if "(chunks)" in head["name"] else "places" if "(places)" in head["name"] else "window"
        by_kind.setdefault(kind, []).append(number(share))
    return "; ".join(f"{kind}: {', '.join(values)}" for kind, values in by_kind.items()) or "–"


def _named(metrics: list[dict[str, Any]], name: str) -> float | None:
    return next((metric["value"] for metric in metrics if metric["name"] == name), None)


def _failed(data: dict[str, Any]) -> str:
    return ", ".join(gate["name"] for gate in data["report"]["gates"] if gate["passed"] is False) or "none"


def _looks(data: dict[str, Any], agent: str) -> list[str]:
    cells = []
    for kind in ("attention", "perturbation actor"):
        pointing = _metric(data, f"pointing, {kind}")
        if pointing is None:
            reason = "attends to whole pictures" if kind == "attention" and agent in NO_PLACES else "–"
            cells += [reason, reason]
            continue
        ball = _metric(data, f"pointing at {_moving(data)}, {kind}")
        cells += [f"{number(pointing['value'])} (chance {number(pointing['chance'])})"]
        on_it = "–" if ball is None else f"{number(ball['value'])} (another step's map {number(ball['chance'])})"
        cells += [on_it + _right(data, kind)]
    return cells


def _right(data: dict[str, Any], kind: str) -> str:
    """Of maps that fall on one of the balls that look alike: how many on the marked one."""
    right = _metric(data, f"right ball, {kind}")
    return "" if right is None else f"; of those on a ball {number(right['value'])} (chance {number(right['chance'])})"


def _moving(data: dict[str, Any]) -> str:
    """The thing that an agent cannot find without looking: not what it moves itself."""
    names = [metric["name"] for metric in data["report"]["metrics"] if metric["name"].startswith("pointing at ")]
    things = [name.removeprefix("pointing at ").split(",")[0] for name in names]
    return "ball" if "ball" in things or not things else next(thing for thing in things if thing != "paddle")


def _verdict(data: dict[str, Any], agent: str) -> str:
    """What can be believed: a map whose interval lies above its control, of an agent that has learned."""
    if data["score"] is not None and data["score"] < LEARNED:
        return "has not learned: nothing to believe"
    said = []
    for kind, name in (("attention", "attention"), ("perturbation actor", "saliency")):
        pointing, ball = _metric(data, f"pointing, {kind}"), _metric(data, f"pointing at {_moving(data)}, {kind}")
        if pointing is None:
            continue
        held = pointing if ball is None else ball
        low = held["value"] if held["low"] is None else held["low"]
        said.append(f"{name}: {'yes' if low > held['chance'] else 'no'}")
    return ", ".join(said)


def _where(data: dict[str, Any]) -> str:
    return (
        f"{data['episodes']} fresh episodes of the run `{data['run']}` at step {data['checkpoint_step']:,}, "
        f"{data['hardware']['processor']}, {data['hardware']['threads']} thread, torch {data['versions']['torch']}, "
        f"commit {data['commit'][:12]}, {data['time'][:10]}: `{data['command']}`"
    )
