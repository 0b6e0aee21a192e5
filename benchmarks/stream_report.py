"""Tables of streaming video and of robot policies; ``report.py`` puts them into the docs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.robots import WORLDS
from recollect.recipes.ttm_video import GFLOPS_DIFFER, ROWS, TESTS, paper_gflops

VIDEO = ["row", "GFLOPS", "paper: GFLOPS", "paper: mAP, Charades", *(f"ours: {name}" for name in TESTS), "seeds"]
ROBOTS = ["policy", *WORLDS]
RATES = ["core", "ms a step", "slowest of 100", "steps/s at the slowest", "the same after 10 000 steps"]


def video_rows(results: Path) -> list[tuple[str, ...]]:
    """Rows of tables 2 to 5 that have been trained: multiply-adds of a step, the paper's mAP, and ours by lag."""
    rows = []
    for key, row in ROWS.items():
        found = [json.loads(path.read_text()) for path in sorted((results / "ttm-video").glob(f"{key}-seed*.json"))]
        found = [one for one in found if one["status"] == "ok"]
        if found:
            scores = (_score([one["tests"][name]["score"] for one in found]) for name in TESTS)
            told = "-" if row.gflops is None else f"{row.gflops:.3f}" + " *" * (key in GFLOPS_DIFFER)
            rows.append((row.name, f"{paper_gflops(key):.3f}", told, row.paper, *scores, str(len(found))))
    return sorted(rows, key=lambda row: float(row[-2].partition(" ")[0]), reverse=True)


def flops_that_differ() -> str:
    """A line for each row whose multiply-adds are not the paper's, and why."""
    return "\n".join(f"* {ROWS[key].name}: {why}." for key, why in GFLOPS_DIFFER.items())


def _score(scores: list[float]) -> str:
    middle = f"{float(interquartile_mean(np.array(scores))):.3f}"
    return middle if len(scores) == 1 else f"{middle} ({min(scores):.3f} to {max(scores):.3f})"


def robot_rows(results: Path) -> list[tuple[str, ...]]:
    """Success of every policy by world, seed by seed; the last row is the best that is possible without memory."""
    found = [json.loads(path.read_text()) for path in sorted((results / "ttm-robots").glob("*-lite-seed*.json"))]
    cells: dict[str, dict[str, list[str]]] = {}
    for one in found:
        if one["status"] == "ok":
            policy, _, place = one["row"].partition(": ")
            cells.setdefault(policy, {}).setdefault(place, []).append(f"{one['tests']['']['score']:.2f}")
    rows = [(policy, *(", ".join(by.get(place, ["-"])) for place in WORLDS)) for policy, by in cells.items()]
    rows.sort(key=lambda row: (row[1:].count("-"), row[0] != "ttm", row[0]))
    return [*rows, ("*at best without memory*", *(f"{world.spec.chance:.2f}" for world in WORLDS.values()))]


def rate_rows(folder: Path) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """Milliseconds of a step of every robot policy, at the start and later."""
    found = json.loads((folder / "robot-rate.json").read_text())
    rows = []
    for core in dict.fromkeys(row["core"] for row in found["rows"]):
        first, later = (row for row in found["rows"] if row["core"] == core)
        times = (f"{first['ms_median']:.2f}", f"{first['ms_p99']:.2f}", f"{first['hz_p99']:,.0f}")
        rows.append((core, *times, f"{later['hz_p99']:,.0f}"))
    return rows, found["environment"]
