"""Tables of docs/believe.md, from ``benchmarks/results/maps.json``."""

import json
from pathlib import Path
from typing import Any

TRUSTED = ["trained agent, all chunk heads, at the junction", "measured", "95 % interval", "control"]
HEADS = ["head", "label", "recall@1 (chance)", "on the cue (chance)", "lag-only share"]
UNTRAINED = ["agent that has learned nothing", "measured", "control"]
SHOWN = ("recall@1", "mass on key", "lift", "removal KL", "deletion AUC", "memory swap followed")


def map_rows(results: Path) -> tuple[list[list[str]], list[list[str]], list[list[str]], str]:
    """Rows of the three tables, and where they were measured."""
    data = json.loads((results / "maps.json").read_text())
    trained, untrained = data["agents"]["t-maze"], data["agents"]["catch"]
    metrics = _by_name(trained["report"]["metrics"])
    rows = [
        [
            f"{name} ({metrics[name]['unit']})" if metrics[name]["unit"] else name,
            _number(metrics[name]["value"]),
            _interval(metrics[name]),
            _control(metrics[name]),
        ]
        for name in SHOWN
    ]
    heads = [_head(head) for head in trained["report"]["heads"]]
    spatial = _by_name(untrained["report"]["metrics"])
    removal, pointing = spatial["removal KL of all"], spatial["pointing, attention"]
    nothing = [
        ["largest place on the ball", _number(pointing["value"]), _control(pointing)],
        ["staticness (1: the same map at every step)", f"{spatial['staticness']['value']:.3f}", "–"],
        ["largest weight over an even one", _number(untrained["largest_over_even"]), "even 1"],
        ["removal KL, the whole memory (nats)", _number(removal["value"]), "–"],
    ]
    where = data["environment"]
    line = (
        f"{trained['report']['episodes']} episodes, {trained['successes']} of them successful, and "
        f"{untrained['report']['episodes']} of the agent that has learned nothing. {where['hardware']['processor']}, "
        f"{where['hardware']['threads']} thread, torch {where['versions']['torch']}, commit {where['commit'][:12]}, "
        f"{where['time'][:10]}: `python benchmarks/{where['command']}`."
    )
    return rows, heads, nothing, line


def _by_name(metrics: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {metric["name"]: metric for metric in metrics}


def _number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 or value == 0 else "below 0.01"


def _interval(metric: dict[str, Any]) -> str:
    return "–" if metric["low"] is None else f"{metric['low']:.2f} to {metric['high']:.2f}"


def _control(metric: dict[str, Any]) -> str:
    return "–" if metric["chance"] is None else f"{metric['against']} {_number(metric['chance'])}"


def _head(head: dict[str, Any]) -> list[str]:
    metrics = _by_name(head["metrics"])

    def with_chance(name: str) -> str:
        found = metrics.get(name)
        return "–" if found is None else f"{_number(found['value'])} ({_number(found['chance'])})"

    return [
        head["name"],
        head["label"],
        with_chance("recall@1"),
        with_chance("mass on key"),
        _number(metrics["lag-only share"]["value"]),
    ]
