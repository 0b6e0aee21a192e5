"""Tables of what was learned, from ``results``: the first table of docs/results, agents, images and videos."""

import statistics
from itertools import groupby

import source_tree  # noqa: F401
from recollect.recipes.base import file_name
from recollect.recipes.endless import ROWS as ENDLESS_ROWS
from recollect.recipes.htm_inference import PUBLISHED
from recollect.recipes.result_tables import markdown_table
from recollect.recipes.robots import WORLDS
from recollect.recipes.ttm_video import GFLOPS_DIFFER, ROWS, TESTS, paper_gflops
from recollect.training.training_aids import training_aids
from report_speed import step_times
from report_tables import MEASURED, RESULTS, Row, finished, middle, read, read_runs, table_with_source

LITE = "lite scale: minutes on two processor cores; streets and Pong take up to two hours a run"
CITY = "a city held out"
"""The test of the recipe htm-streets."""
BESIDE_TITLE = (
    "### Other people's environments, beside RecurrentPPO of sb3-contrib\n\n"
    "Both by their defaults, on one thread; RecurrentPPO for at least the seconds that ours took "
    "(`python benchmarks/beside_sb3.py`)."
)
BESIDE = ["world", "seconds", "ours, last", "ours, best", "RecurrentPPO", "our steps", "its steps"]
ATTENTION_HEADING = ["agent, world", "score", "between", "seeds", "steps of the agent", "minutes"]
ATTENTION_NOTE = (
    "*Score*: mean over seeds. *Between*: the lowest and the highest seed; where there is one seed, a 95 % interval "
    "over episodes."
)
ATTENTION_WORLDS = (
    "catch",
    "catch in the dark",
    "catch in the dark, imitated",
    "track",
    "track, imitated",
    "polygons",
    "Pong",
)
PICTURE_TESTS = [f"{size}{what}" for what in ("", ", IoU of the top 20%", ", pointing") for size in ("64 px", "128 px")]
VIDEO = ["row", "GFLOPS", "paper: GFLOPS", "paper: mAP, Charades", *(f"ours: {name}" for name in TESTS), "seeds"]


def _newest_run(recipe: str, label: str) -> Row:
    """The run of the last seed."""
    return read(sorted((RESULTS / recipe).glob(f"{label}-seed?.json"))[-1])


def _streets_text(goals: float, seeds: str) -> str:
    """Goals of ``hcam`` beside the oracle's, what they cost, and those of cores without chunks."""
    run = _newest_run("htm-streets", "hcam-imitated-lite")
    assert run["hardware"]["threads"] == 1
    core, steps = run["config"]["core"], run["config"]["world"]["steps"]
    reads_all = core["chunk_len"] == 1 and core["num_chunks"] == core["top_k"] == steps
    every_step = ", every step its own chunk and all read" if reads_all else ""
    others = []
    for name, label in (("memoryless", "no memory"), ("transformer-xl", "`transformer-xl`")):
        if read_runs("htm-streets", f"{name}-imitated-lite"):
            other = _newest_run("htm-streets", f"{name}-imitated-lite")
            window = other["config"]["core"].get("memory_len")
            label += f", a window of {window} steps and no chunks" if window else ""
            others.append(f"{label}: {other['tests'][CITY]['score']:.1f}")
    oracle, minutes = run["tests"][CITY]["oracle"], run["seconds"] / 60
    cost = f"{minutes:.0f} minutes of one core{every_step}"
    return f"{goals:.1f} of the oracle's {oracle:.1f}, {seeds}, {cost} ({'; '.join(others)})"


def _score(recipe: str, label: str, test: str = "") -> tuple[float, str]:
    """Return a row's score, and its number of seeds in words."""
    scores = [run["tests"][test]["score"] for run in finished(read_runs(recipe, label))]
    return middle(scores), "1 seed" if len(scores) == 1 else f"{len(scores)} seeds"


def _endless_text() -> str:
    def name(row: str) -> str:
        core, *start = row.split(", ")
        return f"`{core}`" + "".join(f" with a {how}" for how in start)

    ours, seeds = _score("endless", "hcam", "1024 steps")
    aids = {row: training_aids(_newest_run("endless", file_name(row))["config"]) for row in ENDLESS_ROWS}
    others = []
    for used, group in groupby(list(ENDLESS_ROWS)[1:], aids.get):
        found = ", ".join(f"{name(row)} {_score('endless', file_name(row), '1024 steps')[0]:.1f}" for row in group)
        others.append(f"{found}, without {' and '.join(aid for aid in aids['hcam'] if aid not in (used or ()))}")
    return f"{ours:.1f}, {seeds} (same oracle, at most the same time: {'; '.join(others)})"


def first_screen() -> str:
    """The first table of docs/results: scores of the recipes' tests, and the time of a streamed step."""
    cue, cue_seeds = _score("htm-t-maze", "hcam")
    window, _ = _score("htm-t-maze", "transformer-xl")
    world = "cartpole-without-velocities"
    (last, seeds), (best, _), (without, _) = (
        _score("gymnasium", f"{world}-{core}", test)
        for core, test in (("lstm", "last"), ("lstm", "best"), ("memoryless", "last"))
    )
    kept, kept_seeds = _score("million", "gru-gates", "lag 1 000 000")
    goals, street_seeds = _score("htm-streets", "hcam-imitated-lite", CITY)
    (joined, joined_seeds), (untrained, _) = (
        _score("htm-inference", "hcam-16-chains-lite", test) for test in ("AC", "AC, untrained")
    )
    rows = {
        "T-maze, cue 100 steps back, `hcam`": (
            f"{cue:.0%} right, {cue_seeds} (`transformer-xl`, whose window is shorter: {window:.0%})"
        ),
        "CartPole without velocities, `lstm`, 300 rollouts, else defaults": (
            f"best checkpoint {best:.0f} of 500, last {last:.0f}, {seeds} (no memory, 1 seed: {without:.0f})"
        ),
        "a cue kept for 1,000,000 steps, `gru` with gates that can shut, trained on 20 steps": (
            f"{kept:.0%} right, {kept_seeds}"
        ),
        "Endless Mortar Mayhem, commands completed by `hcam`, ten minutes of one processor core": _endless_text(),
        "streets of a city never seen, goals reached by `hcam` in 200 steps, imitated, then reinforced, with "
        "[training aids](htm.md)": _streets_text(goals, street_seeds),
        "associative inference, two of 32 pairs joined (items of 1000 numbers), `hcam`": (
            f"{joined:.1%} right, {joined_seeds} (paper: {float(PUBLISHED['AC']):.1%}; untrained: {untrained:.0%})"
        ),
        "one step of `hcam` at position 10^3 and 10^5": f"{step_times()} ([sizes](../benchmark.md))",
    }
    return markdown_table([f"result ({LITE})", "number"], rows.items(), "ll")


def beside_table() -> str:
    """Other people's environments: ours beside RecurrentPPO for at least as long; defaults, seed 0."""
    found, rows, ahead = read(MEASURED / "beside-sb3.json"), [], 0
    for label, theirs in found["worlds"].items():
        ours = read(RESULTS / "gymnasium" / f"{label}-seed0.json")
        last, best = (ours["tests"][name]["score"] for name in ("last", "best"))
        peer = max(theirs["greedy"], theirs["drawn"])
        ahead += last > peer
        steps = (f"{one['environment_steps']:,}" for one in (ours, theirs))
        scores = (f"{score:,.2f}" for score in (last, best, peer))
        rows.append((ours["row"].removeprefix(f"{ours['core']}, "), f"{theirs['seconds']:,.0f}", *scores, *steps))
    rows.append((f"ours ahead in {ahead} of {len(rows)}", *[""] * (len(BESIDE) - 1)))
    note = "One seed. RecurrentPPO's score is the better one of likeliest and drawn actions. "
    return f"{BESIDE_TITLE}\n\n{table_with_source(BESIDE, rows, found['environment'], note)}"


def _attention_runs() -> list[Row]:
    return [read(path) for path in sorted((RESULTS / "attention-agents").glob("*.json"))]


def attention_table(agents: tuple[str, ...]) -> str:
    """Scores of some attention agents, a line for every row of the recipe."""
    found: dict[str, list[Row]] = {}
    for one in finished(_attention_runs()):
        if one["row"].split(", ")[0] in agents:
            has_norms = one["config"]["agent"]["norm"] or ", Pong" in one["row"]
            found.setdefault(one["row"] + ("" if has_norms else ", without the norms"), []).append(one)
    rows = []
    for name, runs in found.items():
        tests = [run["tests"][""] for run in runs]
        scores = [test["score"] for test in tests]
        low, high = (tests[0]["low"], tests[0]["high"]) if len(tests) == 1 else (min(scores), max(scores))
        steps, seconds = (statistics.fmean(run[part] for run in runs) for part in ("environment_steps", "seconds"))
        agent, rest = name.split(", ", 1)
        numbers = (f"{statistics.fmean(scores):.3f}", f"{low:.3f} to {high:.3f}", len(runs), f"{steps:,.0f}")
        rows.append((f"`{agent}`, {rest}", *numbers, f"{seconds / 60:.1f}"))
    return f"{ATTENTION_NOTE}\n\n{markdown_table(ATTENTION_HEADING, rows)}"


def all_attention_table() -> str:
    """Scores of every attention agent in every world, seed by seed."""
    cells: dict[str, dict[str, list[str]]] = {}
    for one in _attention_runs():
        agent, world = one["row"].split(", ", 1)
        if world in ATTENTION_WORLDS:
            score = f"{one['tests']['']['score']:.2f}" if one["status"] == "ok" else "failed"
            cells.setdefault(agent, {}).setdefault(world, []).append(score)
    worlds = [world for world in ATTENTION_WORLDS if any(world in by for by in cells.values())]
    rows = [(f"`{agent}`", *(", ".join(by.get(world, ["-"])) for world in worlds)) for agent, by in cells.items()]
    return markdown_table(["agent", *worlds], sorted(rows))


def picture_table() -> str:
    """Encoders of ``tlb-images``: accuracy and overlap of their attention with the foreground, over the seeds."""
    runs: dict[str, list[Row]] = {}
    for one in finished(read_runs("tlb-images")):
        if one["scale"] == "lite" and not one["row"].startswith("memoryless"):
            runs.setdefault(one["row"], []).append(one["tests"])
    chance = next(iter(runs.values()))[0]
    rows = []
    for row, found in runs.items():
        cells = ([tests[test] for tests in found if test in tests] for test in PICTURE_TESTS)
        rows.append((row, len(found), *map(_with_control, cells)))
    first = ("*chance*", "", *(f"{chance[test]['chance']:.3f}" for test in PICTURE_TESTS))
    heads = ["encoder", "seeds", *(test.replace(" of the top 20%", "") for test in PICTURE_TESTS)]
    return markdown_table(heads, sorted([first, *rows], key=lambda row: row[2]))


def _with_control(tests: list[Row]) -> str:
    """A score, and beside it that of one fixed map for all pictures, where the test has this control."""
    if not tests:
        return "-"
    controls = [test["static"] for test in tests if "static" in test]
    shown = f"{middle([test['score'] for test in tests]):.3f}"
    return f"{shown} ({middle(controls):.3f})" if controls else shown


def video_table() -> str:
    """Rows of tables 2 to 5 that have been trained: multiply-adds of a step, the paper's mAP, and ours by lag."""

    def score(scores: list[float]) -> str:
        return f"{middle(scores):.3f}" + (f" ({min(scores):.3f} to {max(scores):.3f})" if len(scores) > 1 else "")

    rows = []
    for key, row in ROWS.items():
        if found := finished(read_runs("ttm-video", key)):
            scores = (score([one["tests"][name]["score"] for one in found]) for name in TESTS)
            published = "-" if row.gflops is None else f"{row.gflops:.3f}" + " *" * (key in GFLOPS_DIFFER)
            rows.append((row.name, f"{paper_gflops(key):.3f}", published, row.paper, *scores, len(found)))
    return markdown_table(VIDEO, sorted(rows, key=lambda row: float(row[-2].partition(" ")[0]), reverse=True))


def flops_that_differ() -> str:
    """A line for each row whose multiply-adds are not the paper's, and why."""
    return "\n".join(f"* {ROWS[key].name}: {why}." for key, why in GFLOPS_DIFFER.items())


def robot_table() -> str:
    """Success of every policy by world, seed by seed; the last row is the best that is possible without memory."""
    cells: dict[str, dict[str, list[str]]] = {}
    for one in finished(read_runs("ttm-robots", "*-lite")):
        policy, _, place = one["row"].partition(": ")
        cells.setdefault(policy, {}).setdefault(place, []).append(f"{one['tests']['']['score']:.2f}")
    rows = [(policy, *(", ".join(by.get(place, ["-"])) for place in WORLDS)) for policy, by in cells.items()]
    rows.sort(key=lambda row: (row[1:].count("-"), row[0] != "ttm", row[0]))
    chance = ("*at best without memory*", *(f"{world.spec.chance:.2f}" for world in WORLDS.values()))
    return markdown_table(["policy", *WORLDS], [*rows, chance])
