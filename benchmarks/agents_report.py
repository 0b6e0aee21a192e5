"""Tables of what was measured with agents, worlds and lifelong streams; ``report.py`` puts them into the docs."""

import json
import statistics
from pathlib import Path
from typing import Any

Rows = tuple[list[tuple[str, ...]], dict[str, Any]]
"""Of a table, and where they were measured."""
Libraries = dict[str, tuple[str, float | None]]
"""File: what it is, and by how many times ours, the first, should be faster."""
RL: Libraries = {
    "rl-ours": ("Recollect, one process, LSTM 64", None),
    "rl-sample-factory": ("Sample Factory APPO, 2 workers, LSTM 64", 2.0),
    "rl-plain-cartpole": ("plain loop, a process per actor, 2 actors", 3.0),
    "rl-sb3-16": ("sb3-contrib RecurrentPPO, 16 environments, LSTM 64", 8.0),
    "rl-sb3": ("sb3-contrib RecurrentPPO, its defaults", 20.0),
}
PONG: Libraries = {
    "rl-ours-pong": ("Recollect, one process", None),
    "rl-plain-pong": ("plain loop, 2 actors", 4.0),
    "rl-plain-pong-our-encoder": ("plain loop, 2 actors, with our encoder", 4.0),
}
BESIDE = ["world", "seconds", "ours, last", "ours, best", "RecurrentPPO", "our steps", "its steps"]
COSTS = {  # George 2021, table 4.5, means over four games: hours of training, ms of a step that is acted
    "mott": (11.8, 23.0),
    "adaptive": (6.62, 12.0),
    "spatio-temporal-sequential": (22.92, 17.0),
    "spatio-temporal-one-shot": (10.49, 21.0),
    "timesformer-divided": (8.45, 16.5),
    "timesformer-joint": (27.70, 52.0),
}
COST_HEADING = [
    *("agent, frame", "training steps/s", "time / adaptive", "thesis"),
    *("acting ms, one row", "/ adaptive", "thesis", "32 rows"),
    *("parameters", "state bytes", "live bytes", "MiB to train", "MFLOPs acted", "MFLOPs trained"),
]
ATTENTION_PAGES = {
    "mott": ("mott",),
    "adaptive": ("adaptive",),
    "spatio-temporal": ("spatio-temporal-sequential", "spatio-temporal-one-shot"),
    "timesformer": ("timesformer-divided", "timesformer-joint"),
}
"""Pages of docs/attention, and their agents."""
ATTENTION_HEADING = ["agent, world", "score", "between", "seeds", "steps of the agent", "minutes"]
ATTENTION_NOTE = (
    "*Score*: mean over seeds. *Between*: the lowest and the highest seed; where there is one seed, a 95 % interval "
    "over episodes."
)
ATTENTION_WORLDS = ("catch", "catch in the dark", "catch in the dark, imitated", "track", "track, imitated", "Pong")
PLAIN_HEADING = ["step in Pong", "frame", "plain, ms", "ours, ms", "ratio"]


def rl_rows(folder: Path) -> Rows:
    """Masked CartPole: library, steps per second, ours against it, when a return of 400 was reached, by seed."""
    found, rows = _speeds(folder, RL)
    for place, name in enumerate(RL):
        reached = [run["reached_400"] for run in found[name]["runs"]]
        times = ", ".join("-" if one is None else f"{one['seconds']:.1f} s" for one in reached)
        steps = ", ".join("-" if one is None else f"{one['environment_steps']:,}" for one in reached)
        rows[place] += (times, steps)
    return rows, found["rl-ours"]["environment"]


def beside_rows(results: Path, folder: Path) -> Rows:
    """Other people's environments: ours beside RecurrentPPO for at least as long; defaults, seed 0."""
    found = json.loads((folder / "beside-sb3.json").read_text())
    rows, ahead = [], 0
    for label, theirs in found["worlds"].items():
        ours = json.loads((results / "gymnasium" / f"{label}-seed0.json").read_text())
        last, best = (ours["tests"][name]["score"] for name in ("last", "best"))
        peer = max(theirs["greedy"], theirs["drawn"])
        ahead += last > peer
        steps = (f"{one['environment_steps']:,}" for one in (ours, theirs))
        scores = (f"{score:,.2f}" for score in (last, best, peer))
        rows.append((ours["row"].removeprefix(f"{ours['core']}, "), f"{theirs['seconds']:,.0f}", *scores, *steps))
    rows.append((f"ours ahead in {ahead} of {len(rows)}", *[""] * (len(BESIDE) - 1)))
    return rows, found["environment"]


def pong_rows(folder: Path) -> Rows:
    """Pong: library, learned steps per second, ours against it."""
    found, rows = _speeds(folder, PONG)
    return rows, found["rl-ours-pong"]["environment"]


def _speeds(folder: Path, libraries: Libraries) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """What was measured, by file, and rows of library, steps per second and ours against it."""
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in libraries}
    rates = [statistics.fmean(run["steps_per_s"] for run in one["runs"]) for one in found.values()]
    rows: list[tuple[str, ...]] = []
    for (words, aim), rate in zip(libraries.values(), rates, strict=True):
        ratio = rates[0] / rate
        against = "-" if aim is None else f"{ratio:.1f} (aim {aim:g})" + (", missed" if ratio < aim else "")
        rows.append((words, f"{rate:,.0f}", against))
    return found, rows


def cost_rows(folder: Path) -> Rows:
    """Attention agents in Pong: times, also as ratios to ``adaptive`` beside those of the thesis, bytes and FLOPs."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("attention-agents-*.json"), reverse=True)]
    rows, (hours, milliseconds) = [], COSTS["adaptive"]
    for found in files:
        mine = {row["agent"]: row for row in found["rows"]}
        base = mine["adaptive"]
        for agent, row in mine.items():
            trained, acted = COSTS[agent]
            rows.append((
                *(f"`{agent}`, {row['side']}", f"{row['training_steps_per_s']:,.0f}"),
                f"{base['training_steps_per_s'] / row['training_steps_per_s']:.2f}",
                *(f"{trained / hours:.2f}", f"{row['acting_ms_1']:.2f}"),
                f"{row['acting_ms_1'] / base['acting_ms_1']:.2f}",
                *(f"{acted / milliseconds:.2f}", f"{row['acting_ms_32']:.1f}"),
                *(f"{row[name]:,}" for name in ("parameters", "state_bytes", "stream_bytes")),
                f"{row['training_bytes'] / 2**20:,.0f}" if row.get("training_bytes") else "-",
                *(f"{row[name] / 1e6:,.1f}" for name in ("acting_flops", "training_flops")),
            ))  # fmt: skip
    return rows, files[0]["environment"]


def attention_rows(results: Path, agents: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What some attention agents have learned, a row for every row of the study: means over seeds.

    They lie between: a 95 % interval over episodes where there is one seed, else the lowest and the highest seed.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for one in _attention_runs(results):
        if one["status"] == "ok" and one["row"].split(", ")[0] in agents:
            has_norms = one["config"]["agent"]["norm"] or ", Pong" in one["row"]
            found.setdefault(one["row"] + ("" if has_norms else ", without the norms"), []).append(one)
    rows = []
    for name, runs in found.items():
        tests = [run["tests"][""] for run in runs]
        scores = [test["score"] for test in tests]
        score, low, high = statistics.fmean(scores), min(scores), max(scores)
        if len(scores) == 1:
            low, high = tests[0]["low"], tests[0]["high"]
        steps, minutes = (statistics.fmean(run[part] for run in runs) for part in ("environment_steps", "seconds"))
        agent, rest = name.split(", ", 1)
        numbers = (f"{score:.3f}", f"{low:.3f} to {high:.3f}", str(len(runs)), f"{steps:,.0f}", f"{minutes / 60:.1f}")
        rows.append((f"`{agent}`, {rest}", *numbers))
    return rows


def agent_rows(results: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """Heading and rows of what every attention agent has learned in which world, seed by seed."""
    cells: dict[str, dict[str, list[str]]] = {}
    for one in _attention_runs(results):
        agent, world = one["row"].split(", ", 1)
        if world in ATTENTION_WORLDS:
            said = f"{one['tests']['']['score']:.2f}" if one["status"] == "ok" else "failed"
            cells.setdefault(agent, {}).setdefault(world, []).append(said)
    worlds = [world for world in ATTENTION_WORLDS if any(world in by for by in cells.values())]
    rows = [(f"`{agent}`", *(", ".join(cells[agent].get(world, ["-"])) for world in worlds)) for agent in cells]
    return ["agent", *worlds], sorted(rows)


def _attention_runs(results: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((results / "attention-agents").glob("*.json"))]


def plain_rows(folder: Path) -> Rows:
    """Attention agents beside their plain forms."""
    found, rows = json.loads((folder / "attention-plain.json").read_text()), []
    for row in found["rows"]:
        ratio = f"{row['ratio']:.2f} (aim {row['aim']:g})" + (", missed" if row["ratio"] < row["aim"] else "")
        times = (f"{1e3 * row[form]:.2f}" for form in ("plain", "ours"))
        rows.append((f"`{row['what'].replace(', ', '`, ')}", f"{row['side']}", *times, ratio))
    return rows, found["environment"]


def profile_rows(folder: Path) -> Rows:
    """Shares of training time in per cent: every part, then what is outside the agent's arithmetic."""
    found = json.loads((folder / "training-profile.json").read_text())
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


def process_rows(folder: Path) -> Rows:
    """Other people's environments: steps per second of each form, a dash where there is none."""
    found = json.loads((folder / "processes.json").read_text())
    speeds = {(row["id"], row["form"]): f"{row['steps_per_s']:,}" for row in found["rows"]}
    ids, forms = (dict.fromkeys(row[name] for row in found["rows"]) for name in ("id", "form"))
    return [(id, *(speeds.get((id, form), "-") for form in forms)) for id in ids], found["environment"]


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
