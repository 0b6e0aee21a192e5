"""Tables of what was measured with cores, agents and encoders, from ``benchmarks/results``."""

import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401
from recollect.benchmark.chunks import PAPER
from recollect.benchmark.cores import CoresBenchmark, core_config
from recollect.certify import LINES
from recollect.certify.card import Card, Line
from recollect.cores import CORES
from recollect.recipes.attention_agents.sizes import SIZES
from recollect.recipes.attention_agents.study import game
from recollect.recipes.result_tables import markdown_row, markdown_table
from recollect.recipes.table_of_contents import tasks
from recollect.state import nbytes
from report_tables import MEASURED, Row, measured_where, read, read_newest, table_with_source, with_aim

RL = {  # file: what it is, and by how many times ours, the first, should be faster
    "rl-ours": ("Recollect, one process, LSTM 64", None),
    "rl-sample-factory": ("Sample Factory APPO, 2 workers, LSTM 64", 2.0),
    "rl-plain-cartpole": ("plain loop, a process per actor, 2 actors", 3.0),
    "rl-sb3-16": ("sb3-contrib RecurrentPPO, 16 environments, LSTM 64", 8.0),
    "rl-sb3": ("sb3-contrib RecurrentPPO, its defaults", 20.0),
}
PONG = {
    "rl-ours-pong": ("Recollect, one process", None),
    "rl-plain-pong": ("plain loop, 2 actors", 4.0),
    "rl-plain-pong-our-encoder": ("plain loop, 2 actors, with our encoder", 4.0),
}
COSTS = {  # George 2021, table 4.5, means over four games: hours of training, ms of a step that is acted
    "mott": (11.8, 23.0),
    "adaptive": (6.62, 12.0),
    "spatio-temporal-sequential": (22.92, 17.0),
    "spatio-temporal-one-shot": (10.49, 21.0),
    "timesformer-divided": (8.45, 16.5),
    "timesformer-joint": (27.70, 52.0),
}
COST_HEADING = [
    *("agent, frame", "training steps/s", "time / adaptive", "thesis: time / adaptive"),
    *("acting ms, one row", "acting / adaptive", "thesis: acting / adaptive", "acting ms, 32 rows"),
    *("parameters", "state bytes", "live bytes", "MiB to train", "MFLOPs acted", "MFLOPs trained"),
]
CHUNKS = ["encoder", "training ms", "inference ms", "of peak", "training MB", "inference MB"]
CHUNKS += ["beside fused", "beside explicit", "paper, beside explicit"]
PUBLISHED = {"length": 4000, "batch_size": 1, "dtype": "float32", "explicit": True, "quick": False}
"""Settings of the measurements on the page; others are in the same folder."""


@cache
def newest_cores() -> Row:
    """The newest results of every core; a run may have measured only some."""
    found: Row = {}
    for path in sorted(MEASURED.glob("cores-*.json")):
        results = read(path)
        for facts in results["cores"]:
            rows = [row for row in results["rows"] if row["core"] == facts["core"]]
            found[facts["core"]] = (facts, rows, results["environment"])
    return {
        "cores": [found[core][0] for core in CORES if core in found],
        "rows": [row for core in CORES if core in found for row in found[core][1]],
        "environment": next(iter(found.values()))[2],
    }


def row_of(core: str, measure: str, dtype: str, batch: int, position: int | None = None) -> Any:
    """One measured row, or None."""
    wanted = {"core": core, "measure": measure, "dtype": dtype, "batch": batch, "position": position}
    return next((row for row in newest_cores()["rows"] if wanted.items() <= row.items()), None)


def rate(row: Any) -> str:
    """Steps per second, and the share of the matmul peak."""
    return "-" if row is None else f"{row['steps_per_s']:,.0f} ({row['share_of_peak']:.0%})"


def microseconds(row: Any) -> str:
    """Of one step."""
    return "-" if row is None else f"{row['us_per_call']:,.0f}"


@cache
def core_table() -> str:
    """The table of cores; state bytes follow from the config alone."""
    rows = ["| key | class | paper | what it remembers | bytes of a stream* |", "|---|---|---|---|---:|"]
    for key in CORES:
        config = core_config(key, CoresBenchmark())
        core = config.build(512)
        size = f"{nbytes(core.initial_state(1)):,}"
        rows.append(markdown_row((f"`{key}`", f"`{type(core).__name__}`", config.paper, config.remembers, size)))
    return "\n".join(rows)


def speed_table() -> str:
    """The short table of docs/benchmark.md."""
    cores = newest_cores()
    rows = [
        (
            f"`{facts['core']}`",
            rate(row_of(facts["core"], "train-resets", "float32", 32)),
            microseconds(row_of(facts["core"], "stream", "float32", 1, 1_000)),
            microseconds(row_of(facts["core"], "stream", "float32", 1, 100_000)),
            f"{facts['parameters'] / 1e6:.1f} M",
        )
        for facts in cores["cores"]
    ]
    heads = ["core", "training steps/s (share of peak)", "µs per step at 10^3", "at 10^5", "parameters"]
    note = "Training: batch 32 x 64, forward and backward, resets at 2 % of the steps. Streams: batch 1. float32. "
    return table_with_source(heads, rows, cores["environment"], note)


def full_tables() -> str:
    """Everything, for docs/benchmark.md."""
    cores = newest_cores()
    parts = [part for batch in (32, 1) for part in _whole_sequences(cores, batch)]
    parts += [part for batch in (1, 32) for part in _streams(cores, batch)]
    rows = [
        (
            f"`{f['core']}`",
            *(f"{f[name]:,}" for name in ("parameters", "state_bytes", "stream_bytes", "flops_per_step")),
            f"{f['flops_counted'] / f['flops_per_step']:.3f}",
            f"{f['walk'][-1]['resident_growth'] / 1e6:+.1f} MB",
        )
        for f in cores["cores"]
    ]
    heads = ["core", "parameters", "state bytes", "stream bytes", "FLOPs per step", "counted / formula", "resident"]
    parts += ["### Bytes and FLOPs of one stream", table_with_source(heads, rows, cores["environment"])]
    return "\n\n".join(parts)


def _whole_sequences(cores: Row, batch: int) -> tuple[str, str]:
    dtypes, measures = ("float32", "bfloat16"), ("train", "train-resets", "forward")
    heads = ["core", *(f"{m} {d}" for d in ("f32", "bf16") for m in ("train", "with resets", "forward"))]
    names = [facts["core"] for facts in cores["cores"]]
    rows = [(f"`{core}`", *(rate(row_of(core, m, d, batch)) for d in dtypes for m in measures)) for core in names]
    title = f"### Whole sequences, batch {batch} x 64: steps/s (share of the matmul peak)"
    return title, markdown_table(heads, rows)


def _streams(cores: Row, batch: int) -> tuple[str, str]:
    positions = sorted({row["position"] for row in cores["rows"] if row["position"] is not None})
    heads = ["core", *(f"{p:,} f32" for p in positions), f"{positions[-1]:,} bf16", "last / 10^3"]
    rows = []
    for core in (facts["core"] for facts in cores["cores"]):
        found = [row_of(core, "stream", "float32", batch, position) for position in positions]
        half = row_of(core, "stream", "bfloat16", batch, positions[-1])
        early, late = found[1], found[-1]
        growth = f"{late['us_per_call'] / early['us_per_call']:.2f}" if early and late else "-"
        rows.append((f"`{core}`", *map(microseconds, found), microseconds(half), growth))
    return f"### Streams, batch {batch}: µs per step, by position", markdown_table(heads, rows)


def step_times() -> str:
    """Of ``hcam`` early and late in a stream."""
    rows = (row_of("hcam", "stream", "float32", 1, position) for position in (1_000, 100_000))
    return " and ".join(f"{row['us_per_call'] / 1000:.2f} ms" for row in rows)


def ratio_table() -> str:
    """Comparisons, each measured in turns in one process."""
    ratios, rows = read_newest("ratios"), []
    for row in ratios["rows"]:
        if "skipped" in row:
            rows.append((row["about"], row["precision"], "not measured", "", "-"))
            continue
        missed = row["aim"] is not None and row["ratio"] < row["aim"]
        ratio = f"{row['ratio']:.2f}" + (", missed" if missed else "")
        spread = f"{row['lowest']:.2f} to {row['highest']:.2f}"
        rows.append((row["about"], row["precision"], ratio, spread, "-" if row["aim"] is None else f"{row['aim']:g}"))
    return table_with_source(["ours against", "precision", "ratio", "rounds", "aim"], rows, ratios["environment"])


def _speeds(libraries: dict[str, tuple[str, float | None]]) -> tuple[list[Row], list[list[str]]]:
    """Return the files, and rows of library, steps per second and the ratio of ours."""
    found = [read(MEASURED / f"{name}.json") for name in libraries]
    rates = [statistics.fmean(run["steps_per_s"] for run in one["runs"]) for one in found]
    return found, [
        [words, f"{rate:,.0f}", "-" if aim is None else with_aim(rates[0] / rate, aim, digits=1)]
        for (words, aim), rate in zip(libraries.values(), rates, strict=True)
    ]


def rl_table() -> str:
    """Masked CartPole: library, steps per second, ratio, and by seed when a return of 400 was reached."""
    found, rows = _speeds(RL)
    for one, row in zip(found, rows, strict=True):
        reached = [run["reached_400"] for run in one["runs"]]
        row.append(", ".join("-" if one is None else f"{one['seconds']:.1f} s" for one in reached))
        row.append(", ".join("-" if one is None else f"{one['environment_steps']:,}" for one in reached))
    heads = ["masked CartPole", "steps/s", "ours against it", "return 400 after", "steps"]
    return table_with_source(heads, rows, found[0]["environment"], "Times and steps by seed. ")


def pong_table() -> str:
    """Pong: library, learned steps per second, ratio."""
    found, rows = _speeds(PONG)
    heads = ["Pong, IMPALA ResNet, LSTM 256", "steps/s", "ours against it"]
    return table_with_source(heads, rows, found[0]["environment"])


def process_table() -> str:
    """Other people's environments: steps per second of each form, a dash where there is none."""
    found = read(MEASURED / "processes.json")
    speeds = {(row["id"], row["form"]): f"{row['steps_per_s']:,}" for row in found["rows"]}
    ids, forms = (dict.fromkeys(row[name] for row in found["rows"]) for name in ("id", "form"))
    heads = ["environment", "vector form", "this process", "`--world.processes 1`", "2", "4"]
    rows = [(id, *(speeds.get((id, form), "-") for form in forms)) for id in ids]
    return table_with_source(heads, rows, found["environment"])


def rate_table() -> str:
    """Milliseconds of a step of every robot policy, at the start and later."""
    found, rows = read(MEASURED / "robot-rate.json"), []
    for core in dict.fromkeys(row["core"] for row in found["rows"]):
        first, later = (row for row in found["rows"] if row["core"] == core)
        times = (f"{first['ms_median']:.2f}", f"{first['ms_p99']:.2f}", f"{first['hz_p99']:,.0f}")
        rows.append((core, *times, f"{later['hz_p99']:,.0f}"))
    heads = ["core", "ms a step", "slowest of 100", "steps/s at the slowest", "the same after 10 000 steps"]
    return table_with_source(heads, rows, found["environment"])


def live_table() -> str:
    """Milliseconds and steps a second of live streams."""
    found = read(MEASURED / "live-streams.json")
    rows = []
    for part in ("robots", "streams"):
        for row in found[part]["rows"]:
            name = (
                row["form"] if part == "robots" else f"{found[part]['askers']} of {found[part]['of']:,}: {row['form']}"
            )
            name = name if row["form"] != "all rows" else f"all {found[part]['of']:,} streams"
            rows.append((
                name, f"{row['ms_median']:.2f}", f"{row['ms_p99']:.2f}", f"{row['steps_per_s']:,}",
                f"{row['steps_per_cpu_s']:,}",
            ))  # fmt: skip
    heads = ["step of", "ms, median", "ms, slowest of 100", "steps/s", "steps per second of processor time"]
    busy = f"\n\nOther programs ran meanwhile: {found['busy_processes_before']:.0f} of them on {{}} processor cores."
    return table_with_source(heads, rows, found["environment"]) + busy.format(found["environment"]["cores"])


def export_table() -> str:
    """Microseconds of exported steps beside streams."""
    found = read_newest("export")
    rows = [
        (
            f"`{row['core']}`", row["format"], f"{row['stream_us']:,.0f}", f"{row['exported_us']:,.0f}",
            f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})", f"{row['build_seconds']:.0f}",
        )
        for row in found["rows"]
    ]  # fmt: skip
    heads = ["core", "format", "stream, µs", "exported, µs", "exported / stream (all rounds)", "to export, s"]
    return table_with_source(heads, rows, found["environment"])


def cost_rows(folder: Path = MEASURED) -> tuple[list[tuple[str, ...]], Row]:
    """Attention agents in Pong: times, also as ratios to ``adaptive`` beside those of the thesis, bytes and FLOPs."""
    files = [read(path) for path in sorted(folder.glob("attention-agents-*.json"), reverse=True)]
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


def cost_table(agents: Sequence[str] = tuple(COSTS)) -> str:
    rows, where = cost_rows()
    return table_with_source(COST_HEADING, [row for row in rows if row[0].split("`")[1] in agents], where)


def size_table() -> str:
    """Parameters of the attention agents, published and counted."""
    rows = []
    for size in SIZES:
        ours = size.count(game(size.game, side=size.side))
        name = f"`{size.agent}`, {size.game}" + (f", {size.changed}" if size.changed else "")
        rows.append((name, f"{size.published:,}", f"{ours:,}", f"{size.unused:,}"))
        assert ours + size.unused == size.published
    return markdown_table(["agent, game", "thesis", "here", "only in the thesis, unused"], rows)


def chunk_tables(folder: Path = MEASURED) -> list[tuple[list[tuple[str, ...]], Row, str]]:
    """Return rows of every measurement with the page's settings, newest first, its machine, and that machine's peak."""
    found = []
    for path in sorted(folder.glob("chunks-*.json"), reverse=True):
        results = read(path)
        if PUBLISHED.items() <= results["config"].items():
            peak = f"Matrix products of this processor: {results['peak'] / 1e9:.0f} GFLOP/s at most."
            found.append((_chunk_rows(results), results["environment"], peak))
    return found


def chunk_text() -> str:
    return "\n\n".join(f"{table_with_source(CHUNKS, rows, where)} {peak}" for rows, where, peak in chunk_tables())


def _chunk_rows(results: Row) -> list[tuple[str, ...]]:
    """Every encoder: times and memory, and the ratio to attention to everything in training and inference."""
    rows = {row["encoder"]: row for row in results["rows"]}
    lines = []
    for name, row in rows.items():
        paper = PAPER.get(row["chunk"] or 0)
        published = "-" if paper is None else f"{paper[2]} x, {paper[0]} x; {paper[3]}, {paper[1]}"
        sizes = (row[f"{what}_bytes"] for what in ("train", "inference"))
        lines.append((
            name,
            *(f"{1e3 * row[f'{what}_s']:,.0f}" for what in ("train", "inference")),
            f"{row['train_share']:.0%}, {row['inference_share']:.0%}",
            *("-" if size is None else f"{size / 1e6:,.0f}" for size in sizes),
            *(_ratio_to(row, rows[f"{form} attention"]) for form in ("fused", "explicit")),
            published,
        ))  # fmt: skip
    return lines


def _ratio_to(row: Row, other: Row) -> str:
    if row is other:
        return "1"
    speeds = ", ".join(f"{other[f'{what}_s'] / row[f'{what}_s']:.1f} x" for what in ("train", "inference"))
    if row["train_bytes"] is None:
        return speeds
    shares = ", ".join(f"{row[f'{what}_bytes'] / other[f'{what}_bytes']:.2f}" for what in ("train", "inference"))
    return f"{speeds}; {shares}"


def task_table() -> str:
    """Memory requirements of every task at its defaults."""
    heads = ["task", "chance", "lag: median, 95 %", "ends of episodes between", "other things between", "bits"]
    parts = ("chance", "lag", "ends", "past", "bits")
    return markdown_table(heads, [(f"`{row['key']}`", *(row[part] for part in parts)) for row in tasks()])


def card_text() -> str:
    """The card of ``hcam`` as a terminal of 120 columns shows it."""
    found = next(one for one in read(MEASURED / "certificate.json")["cards"] if one["core"] == "hcam")
    facts = {key: found[key] for key in ("core", "config", "parameters", "state_bytes", "dtype", "versions", "seconds")}
    facts["size_seed"] = found.get("size_seed")  # older cards drew no sizes
    return f"```\n{Card(lines=tuple(Line(**line) for line in found['lines']), **facts)}\n```"


def certificate_table() -> str:
    """Every core and every line, with the length of the long run."""
    cards = read(MEASURED / "certificate.json")["cards"]
    # A card that is older than a line lacks it.
    names = [name for name in LINES if any(line["name"] == name for one in cards for line in one["lines"])]
    words, rows = {"pass": "ok", "skip": "n/a"}, []
    made: dict[str, list[str]] = {}
    for one in cards:
        lines = {line["name"]: line for line in one["lines"]}
        marks = {name: words.get(line["status"], line["status"]) for name, line in lines.items()}
        steps = lines["state-bytes"]["numbers"].get("steps") if "state-bytes" in lines else None
        rows.append((f"`{one['core']}`", *(marks.get(name, "-") for name in names), f"{steps:,}" if steps else "-"))
        # Cards that were made alike, one core at a time, share a line.
        where = measured_where(one["environment"]).replace(f" --cores {one['core']}`", " --cores CORE`")
        made.setdefault(where, []).append(one["core"])
    missing = [f"`{core}`" for core in CORES if core not in {one["core"] for one in cards}]
    about = "The long run is that of `state-bytes`."
    about += f" Not in these runs: {', '.join(missing)}; the tests certify it like the others." if missing else ""
    if any(one["environment"]["command"] == "certificate.py 60" for one in cards):
        about += " Below, `certificate.py 60` is what `certificate.py --seconds 60` is now."
    notes = "\n".join(
        f"* {', '.join(f'`{core}`' for core in cores)}: {where if cores[1:] else where.replace('CORE', cores[0])}"
        for where, cores in made.items()
    )
    heads = ["core", *(f"`{name}`" for name in names), "long run, steps"]
    return f"{markdown_table(heads, rows)}\n\n{about} Measured:\n\n{notes}"


def mutation_table() -> str:
    """How many planted bugs the certificate finds, by line, and why the others change no number."""
    found = read(MEASURED / "mutations.json")
    rows = found["rows"]
    caught = [row for row in rows if row["lines"]]
    equal = Counter(row["equal"] for row in rows if "equal" in row)
    lines = Counter(line for row in caught for line in row["lines"])
    seen = ", ".join(f"`{line}` {number}" for line, number in lines.most_common())
    about = (
        f"{len(rows)} planted, {len(caught)} caught, {equal.total()} change no number, "
        f"{len(rows) - len(caught) - equal.total()} missed "
        f"(`{found['command']}`, commit {found['commit']}). Seen by: {seen}."
    )
    return f"{about}\n\n" + markdown_table(["why the others change no number", "bugs"], equal.most_common())
