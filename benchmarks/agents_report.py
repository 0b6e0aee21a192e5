"""Tables of what was measured with agents, worlds and lifelong streams; ``report.py`` puts them into the docs."""

import json
import statistics
from pathlib import Path
from typing import Any

Rows = tuple[list[tuple[str, ...]], dict[str, Any]]
"""Of a table, and where they were measured."""
RL = {  # file, what it is, by how many times ours should be faster
    "rl-ours": ("Recollect, one process, LSTM 64", None),
    "rl-sample-factory": ("Sample Factory APPO, 2 workers, LSTM 64", 2.0),
    "rl-plain-cartpole": ("plain loop, a process per actor, 2 actors", 3.0),
    "rl-sb3-16": ("sb3-contrib RecurrentPPO, 16 environments, LSTM 64", 8.0),
    "rl-sb3": ("sb3-contrib RecurrentPPO, its defaults", 20.0),
}


LEARNING = {  # recipe, row's suffix or row, test: words
    ("htm-t-maze", ", length 100", ""): "T-maze, corridor of 100",
    ("htm-t-maze", " trained on length 20", "length 200"): "T-maze, trained on 20, played on 200",
    ("htm-visual-match", "", ""): "visual match, 3 doors",
    ("htm-ballet", "", ""): "ballet, 2 dancers",
}
CORES = ("hcam", "transformer-xl", "lstm", "memoryless")


def learning_rows(results: Path) -> list[tuple[str, ...]]:
    """What agents learned: world, the scores of every core by seed, chance."""
    rows = []
    for (recipe, suffix, test), words in LEARNING.items():
        found = [json.loads(path.read_text()) for path in sorted((results / recipe).glob("*.json"))]
        cells, chance = [], 0.0
        for core in CORES:
            tests = [one["tests"][test] for one in found if one["row"] == core + suffix and one["scale"] == "lite"]
            cells.append(", ".join(f"{one['score']:.2f}" for one in tests) or "-")
            chance = tests[0]["chance"] if tests else chance
        rows.append((words, *cells, f"{chance:.2f}"))
    return rows


def rl_rows(folder: Path) -> Rows:
    """Masked CartPole: library, steps per second, ours against it, when a return of 400 was reached, by seed."""
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in RL}
    rates = {name: statistics.fmean(run["steps_per_s"] for run in one["runs"]) for name, one in found.items()}
    rows = []
    for name, (words, aim) in RL.items():
        ratio = rates["rl-ours"] / rates[name]
        against = "-" if aim is None else f"{ratio:.1f} (aim {aim:g})" + (", missed" if ratio < aim else "")
        reached = [run["reached_400"] for run in found[name]["runs"]]
        times = ", ".join("-" if one is None else f"{one['seconds']:.1f} s" for one in reached)
        steps = ", ".join("-" if one is None else f"{one['environment_steps']:,}" for one in reached)
        rows.append((words, f"{rates[name]:,.0f}", against, times, steps))
    return rows, found["rl-ours"]["environment"]


PONG = {"rl-ours-pong": "Recollect, one process", "rl-plain-pong": "plain loop, 2 actors"}


def pong_rows(folder: Path) -> Rows:
    """Pong: library, learned steps per second, ours against it."""
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in PONG}
    rates = {name: statistics.fmean(run["steps_per_s"] for run in one["runs"]) for name, one in found.items()}
    ratio = rates["rl-ours-pong"] / rates["rl-plain-pong"]
    against = f"{ratio:.1f} (aim 4)" + (", missed" if ratio < 4 else "")
    rows: list[tuple[str, ...]] = [
        (words, f"{rates[name]:,.0f}", "-" if name == "rl-ours-pong" else against) for name, words in PONG.items()
    ]
    return rows, found["rl-ours-pong"]["environment"]


def profile_rows(folder: Path) -> Rows:
    """Shares of training time in per cent: every part, then what is outside the agent's arithmetic."""
    found = json.loads((folder / "rl-profile.json").read_text())
    rows = []
    for row in found["rows"]:
        name, *shares = row.values()
        outside = row["world"] + row["rest"]
        rows.append((name, *(f"{100 * share:.1f}" for share in shares), f"{100 * outside:.1f}"))
    return rows, found["environment"]


def world_rows(folder: Path) -> Rows:
    """Batched worlds: rows, steps per second, aim."""
    found = json.loads((folder / "worlds.json").read_text())
    rows = []
    for row in found["rows"]:
        aim = "-" if row["aim"] is None else f"{row['aim']:,.0f}"
        rows.append((row["world"], f"{row['rows']:,}", f"{row['steps_per_s']:,.0f}", aim))
    return rows, found["environment"]


def lifelong_rows(folder: Path) -> Rows:
    """Lifelong streams: where contents are, position, median and 99th percentile of a step."""
    found = json.loads((folder / "lifelong.json").read_text())
    rows = [
        (
            "host memory" if row["contents"] == "memory" else "mapped file",
            f"{row['position']:,}",
            f"{row['us_median'] / 1000:.2f}",
            f"{row['us_p99'] / 1000:.2f}",
        )
        for row in found["rows"]
    ]
    return rows, found["environment"]
