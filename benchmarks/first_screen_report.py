"""The table of README's first screen: scores of the recipes' tests, and the time of a streamed step."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.base import file_name
from recollect.recipes.endless import ROWS as ENDLESS_ROWS
from recollect.recipes.htm_inference import PUBLISHED

LITE = "lite scale: minutes on two processor cores; streets and Pong take up to two hours a run"
CITY = "a city held out"
"""The test of the recipe htm-streets."""


def newest_run(folder: Path, label: str) -> dict[str, Any]:
    """The run of the last seed."""
    return json.loads(sorted(folder.glob(f"{label}-seed?.json"))[-1].read_text())


def streets_text(folder: Path, goals: float, of: str) -> str:
    """Goals of ``hcam`` beside the oracle's, what they cost, and those of cores without chunks."""
    run = newest_run(folder, "hcam-imitated-lite")
    assert run["hardware"]["threads"] == 1
    core, steps = run["config"]["core"], run["config"]["world"]["steps"]
    all_read = core["chunk_len"] == 1 and core["num_chunks"] == core["top_k"] == steps
    read = ", every step its own chunk and all read" if all_read else ""
    others = []
    for name, label in (("memoryless", "no memory"), ("transformer-xl", "`transformer-xl`")):
        if list(folder.glob(f"{name}-imitated-lite-seed?.json")):
            other = newest_run(folder, f"{name}-imitated-lite")
            window = other["config"]["core"].get("memory_len")
            label += f", a window of {window} steps and no chunks" if window else ""
            others.append(f"{label}: {other['tests'][CITY]['score']:.1f}")
    oracle, minutes = run["tests"][CITY]["oracle"], run["seconds"] / 60
    return (
        f"{goals:.1f} of the oracle's {oracle:.1f}, {of}, {minutes:.0f} minutes of one core{read} ({'; '.join(others)})"
    )


def first_screen(results: Path, times: str) -> str:
    """The table.

    Args:
        results: folder of the recipes' results.
        times: of a streamed step, early and late.
    """

    def score(recipe: str, label: str, test: str = "") -> tuple[float, int]:
        runs = [json.loads(path.read_text()) for path in sorted((results / recipe).glob(f"{label}-seed?.json"))]
        scores = [run["tests"][test]["score"] for run in runs if run["status"] == "ok"]
        return float(interquartile_mean(np.array(scores))), len(scores)

    def of(seeds: int) -> str:
        return "1 seed" if seeds == 1 else f"{seeds} seeds"

    def named(row: str) -> str:
        core, *start = row.split(", ")
        return f"`{core}`" + "".join(f" with a {how}" for how in start)

    cue, seeds = score("htm-t-maze", "hcam")
    window, _ = score("htm-t-maze", "transformer-xl")
    rows = [
        (
            "T-maze, cue 100 steps back, `hcam`",
            f"{cue:.0%} right, {of(seeds)} (`transformer-xl`, whose window is shorter: {window:.0%})",
        )
    ]
    world = "cartpole-without-velocities"
    (last, seeds), (best, _), (without, _) = (
        score("gymnasium", f"{world}-{core}", test)
        for core, test in (("lstm", "last"), ("lstm", "best"), ("memoryless", "last"))
    )
    rows.append((
        "CartPole without velocities, `lstm`, 300 rollouts, else defaults",
        f"best checkpoint {best:.0f} of 500, last {last:.0f}, {of(seeds)} (no memory, 1 seed: {without:.0f})",
    ))  # fmt: skip
    kept, seeds = score("million", "gru-gates", "lag 1 000 000")
    task = "a cue kept for 1,000,000 steps, `gru` with gates that can shut, trained on 20 steps"
    rows.append((task, f"{kept:.0%} right, {of(seeds)}"))
    ours, seeds = score("endless", "hcam", "1024 steps")
    task = "Endless Mortar Mayhem, commands completed by `hcam`, ten minutes of one processor core"
    helps = {row: newest_run(results / "endless", file_name(row))["helps"] for row in ENDLESS_ROWS}
    beside = []
    for helped, group in groupby(list(ENDLESS_ROWS)[1:], helps.get):
        found = ", ".join(f"{named(row)} {score('endless', file_name(row), '1024 steps')[0]:.1f}" for row in group)
        less = " and ".join(help for help in helps["hcam"] if help not in (helped or ()))
        beside.append(f"{found}, without {less}")
    rows.append((task, f"{ours:.1f}, {of(seeds)} (same oracle, at most the same time: {'; '.join(beside)})"))
    how = "imitated, then reinforced, with [helps](docs/results.md)"
    task = f"streets of a city never seen, goals reached by `hcam` in 200 steps, {how}"
    goals, seeds = score("htm-streets", "hcam-imitated-lite", CITY)
    rows.append((task, streets_text(results / "htm-streets", goals, of(seeds))))
    label = "hcam-16-chains-lite"
    (joined, seeds), (untrained, _) = (score("htm-inference", label, test) for test in ("AC", "AC, untrained"))
    task = "associative inference, two of 32 pairs joined (items of 1000 numbers), `hcam`"
    rows.append(
        (task, f"{joined:.1%} right, {of(seeds)} (paper: {float(PUBLISHED['AC']):.1%}; untrained: {untrained:.0%})")
    )
    rows.append(("one step of `hcam` at position 10^3 and 10^5", f"{times} ([sizes](#speed))"))
    return "\n".join([f"| result ({LITE}) | number |", "|---|---|", *(f"| {what} | {says} |" for what, says in rows)])
