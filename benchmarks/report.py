"""Put what was measured into README.md and docs/: tables between markers, and the figure. No number is typed by hand.

    python benchmarks/report.py

Reads the newest file of each kind in benchmarks/results/ (``cores-*.json``, ``chunks-*.json``, ``ratios-*.json``,
``certificate.json``, ``mutations.json``, ``rl-*.json``, ``beside-sb3.json``, ``training-profile.json``,
``worlds.json``, ``lifelong.json``, ``maps.json``, ``robot-rate.json``, ``attention-agents-*.json``), and the recipes'
and explorer's in results/.
Needs matplotlib (extra ``dev``).
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from agents_report import (
    ATTENTION_HEADING,
    ATTENTION_NOTE,
    ATTENTION_PAGES,
    BESIDE,
    COST_HEADING,
    PLAIN_HEADING,
    agent_rows,
    attention_rows,
    beside_rows,
    cost_rows,
    lifelong_rows,
    plain_rows,
    pong_rows,
    process_rows,
    profile_rows,
    rl_rows,
    world_rows,
)
from encoders_report import CHUNKS, PICTURES, chunk_tables, figure_listops, picture_rows
from faithfulness_report import PLACES, faithful_rows, place_rows
from first_screen_report import first_screen
from imitation_report import figure_babyai
from maps_report import HEADS, TRUSTED, UNTRAINED, map_rows
from recollect.benchmark.cores import CoresBenchmark, core_config
from recollect.certify import LINES
from recollect.certify.card import Card, Line
from recollect.cores import CORES
from recollect.recipes import RECIPES
from recollect.recipes.attention_agents.sizes import SIZES
from recollect.recipes.attention_agents.study import game
from recollect.recipes.memory_suite import grand_table
from recollect.recipes.reproduce import with_memory_requirements
from recollect.recipes.table_of_contents import tasks
from recollect.state import nbytes
from stream_report import RATES, ROBOTS, VIDEO, flops_that_differ, rate_rows, robot_rows, video_rows

RL = ["masked CartPole", "steps/s", "ours against it", "return 400 after", "steps"]
PONG = ["Pong, IMPALA ResNet, LSTM 256", "steps/s", "ours against it"]
PROFILE = ["training", "acting", "forward", "backward", "optimiser", "world", "rest", "outside arithmetic"]
WORLDS = ["world", "rows", "steps/s", "aim"]
PROCESSES = ["environment", "vector form", "this process", "`--world.processes 1`", "2", "4"]
LIFELONG = ["contents in", "position", "median ms", "99 % ms"]
BESIDE_HEADING = (
    "### Other people's environments, beside RecurrentPPO of sb3-contrib\n\n"
    "Both by their defaults, on one thread; RecurrentPPO for at least the seconds that ours took "
    "(`python benchmarks/beside_sb3.py`)."
)
SHOWN = ("splits", "poison", "future", "long", "export")
"""Lines of the card that README shows."""
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def newest(kind: str) -> dict[str, Any]:
    """The newest results of a kind."""
    return json.loads(sorted(RESULTS.glob(f"{kind}-*.json"))[-1].read_text())


def newest_cores() -> dict[str, Any]:
    """The newest results of every core; a run may have measured only some."""
    found: dict[str, Any] = {}
    for path in sorted(RESULTS.glob("cores-*.json")):
        results = json.loads(path.read_text())
        for facts in results["cores"]:
            rows = [row for row in results["rows"] if row["core"] == facts["core"]]
            found[facts["core"]] = (facts, rows, results["environment"])
    return {
        "cores": [found[core][0] for core in CORES if core in found],
        "rows": [row for core in CORES if core in found for row in found[core][1]],
        "environment": next(iter(found.values()))[2],
    }


def between(path: Path, name: str, content: str) -> None:
    """Replace what stands between a page's markers."""
    text = path.read_text()
    begin, end = f"<!-- recollect:{name}:begin -->", f"<!-- recollect:{name}:end -->"
    head, rest = text.split(begin)
    path.write_text(f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}")


def table(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; every column but the first is aligned right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def row_of(cores: dict[str, Any], core: str, measure: str, dtype: str, batch: int, position: int | None = None) -> Any:
    """One measured row, or None."""
    wanted = {"core": core, "measure": measure, "dtype": dtype, "batch": batch, "position": position}
    return next((r for r in cores["rows"] if all(r[k] == v for k, v in wanted.items())), None)


def rate(row: Any) -> str:
    """Steps per second, and the share of the matmul peak."""
    return "-" if row is None else f"{row['steps_per_s']:,.0f} ({row['share_of_peak']:.0%})"


def microseconds(row: Any) -> str:
    """Of one step."""
    return "-" if row is None else f"{row['us_per_call']:,.0f}"


def measured_where(environment: dict[str, Any]) -> str:
    """The line under a table."""
    return (
        f"{environment['cpu']}, {environment['threads']} threads, torch {environment['torch']}, "
        f"commit {environment['commit']}, {environment['date'][:10]}: `{environment['command']}`."
    )


def core_table() -> str:
    """Rows of the README's table of cores; state bytes follow from the config alone."""
    rows = []
    for key in CORES:
        config = core_config(key, CoresBenchmark())
        core = config.build(512)
        size = nbytes(core.initial_state(1))
        rows.append(f"| `{key}` | `{type(core).__name__}` | {config.paper} | {config.remembers} | {size:,} |")
    return "\n".join(rows)


def speed_table(cores: dict[str, Any]) -> str:
    """The README's short table."""
    rows = [
        (
            f"`{facts['core']}`",
            rate(row_of(cores, facts["core"], "train-resets", "float32", 32)),
            microseconds(row_of(cores, facts["core"], "stream", "float32", 1, 1_000)),
            microseconds(row_of(cores, facts["core"], "stream", "float32", 1, 100_000)),
            f"{facts['parameters'] / 1e6:.1f} M",
        )
        for facts in cores["cores"]
    ]
    head = ["core", "training steps/s (share of peak)", "µs per step at 10^3", "at 10^5", "parameters"]
    note = "Training: batch 32 x 64, forward and backward, resets at 2 % of the steps. Streams: batch 1. float32. "
    return table(head, rows) + "\n\n" + note + measured_where(cores["environment"])


def full_tables(cores: dict[str, Any]) -> str:
    """Everything, for docs/benchmark.md."""
    parts = []
    for batch in (32, 1):
        head = ["core", *(f"{m} {d}" for d in ("f32", "bf16") for m in ("train", "with resets", "forward"))]
        rows = [
            (
                f"`{facts['core']}`",
                *(
                    rate(row_of(cores, facts["core"], measure, dtype, batch))
                    for dtype in ("float32", "bfloat16")
                    for measure in ("train", "train-resets", "forward")
                ),
            )
            for facts in cores["cores"]
        ]
        parts += [f"### Whole sequences, batch {batch} x 64: steps/s (share of the matmul peak)", table(head, rows)]
    positions = sorted({r["position"] for r in cores["rows"] if r["position"] is not None})
    for batch in (1, 32):
        head = ["core", *(f"{p:,} f32" for p in positions), f"{positions[-1]:,} bf16", "last / 10^3"]
        rows = []
        for facts in cores["cores"]:
            found = [row_of(cores, facts["core"], "stream", "float32", batch, p) for p in positions]
            half = row_of(cores, facts["core"], "stream", "bfloat16", batch, positions[-1])
            early, late = found[1], found[-1]
            growth = f"{late['us_per_call'] / early['us_per_call']:.2f}" if early and late else "-"
            rows.append((f"`{facts['core']}`", *map(microseconds, found), microseconds(half), growth))
        parts += [f"### Streams, batch {batch}: µs per step, by position", table(head, rows)]
    rows = [
        (
            f"`{f['core']}`",
            f"{f['parameters']:,}",
            f"{f['state_bytes']:,}",
            f"{f['stream_bytes']:,}",
            f"{f['flops_per_step']:,}",
            f"{f['flops_counted'] / f['flops_per_step']:.3f}",
            f"{f['walk'][-1]['resident_growth'] / 2**20:+.1f} MB",
        )
        for f in cores["cores"]
    ]
    head = ["core", "parameters", "state bytes", "stream bytes", "FLOPs per step", "counted / formula", "resident"]
    parts += ["### Bytes and FLOPs of one stream", table(head, rows), measured_where(cores["environment"])]
    return "\n\n".join(parts)


def ratio_table(ratios: dict[str, Any]) -> str:
    """Comparisons, each measured in turns in one process."""
    rows = []
    for row in ratios["rows"]:
        if "skipped" in row:
            rows.append((row["about"], row["precision"], "not measured", "", "-"))
            continue
        aim = "-" if row["aim"] is None else f"{row['aim']:g}"
        missed = row["aim"] is not None and row["ratio"] < row["aim"]
        spread = f"{row['lowest']:.2f} to {row['highest']:.2f}"
        ratio = f"{row['ratio']:.2f}"
        rows.append((row["about"], row["precision"], ratio if not missed else f"{ratio}, missed", spread, aim))
    head = ["ours against", "precision", "ratio", "rounds", "aim"]
    return table(head, rows) + "\n\n" + measured_where(ratios["environment"])


def learning_table(results: Path) -> str:
    """The grand table as a picture, and who solves what."""
    found = [json.loads(path.read_text()) for path in sorted((results / "memory-suite").glob("*-seed*.json"))]
    picture = "![How far every core gets in every task, from chance to the oracle](docs/assets/memory-suite.svg)"
    cells = grand_table(with_memory_requirements(RECIPES["memory-suite"], "lite", found))
    return "\n".join([picture, "", cells.answers()])


def figure(cores: dict[str, Any], path: Path) -> None:
    """Time per step against position, one line per core."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    chart, axes = plt.subplots(figsize=(9, 4.4), dpi=160)
    colours = plt.get_cmap("tab20").colors
    ends = []
    for place, facts in enumerate(cores["cores"]):
        rows = [r for r in cores["rows"] if r["core"] == facts["core"] and r["measure"] == "stream"]
        rows = [r for r in rows if r["dtype"] == "float32" and r["batch"] == 1]
        rows.sort(key=lambda r: r["position"])
        x, y = [r["position"] for r in rows], [r["us_per_call"] / 1000 for r in rows]
        axes.plot(x, y, marker="o", markersize=4, linewidth=1.8, color=colours[2 * place % 20 + (place > 9)])
        ends.append((y[-1], x[-1], facts["core"], colours[2 * place % 20 + (place > 9)]))
    axes.set(xscale="log", yscale="log", xlabel="position in the stream (steps)", ylabel="time of one step (ms)")
    ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20) if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", which="major", alpha=0.25)
    height = 0.0
    for y, x, name, colour in sorted(ends):
        height = max(y, height * 1.19)  # labels keep their distance
        axes.annotate(
            name, (x, y), xytext=(x * 1.6, height), color=colour, va="center", fontsize=9,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5)},
        )  # fmt: skip
    axes.set_title(
        "A step costs the same, however long the stream (width 512, 4 layers, batch 1)", loc="left", fontsize=12
    )
    chart.subplots_adjust(right=0.78, left=0.09, bottom=0.13, top=0.91)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path)
    plt.close(chart)


def main() -> None:
    cores = newest_cores()
    card = json.loads((RESULTS / "certificate.json").read_text())
    readme, page = ROOT / "README.md", ROOT / "docs" / "benchmark.md"
    for path in (readme, ROOT / "docs" / "cores" / "index.md"):
        between(path, "cores", core_table())
    between(readme, "speed", speed_table(cores))
    between(readme, "results", first_screen(ROOT / "results", step_times(cores)))
    hcam = next(one for one in card["cards"] if one["core"] == "hcam")
    between(readme, "card", card_text(hcam, SHOWN))
    between(ROOT / "docs" / "certificate.md", "card", card_text(hcam))
    between(readme, "learning", learning_table(ROOT / "results"))
    between(page, "full", full_tables(cores))
    between(page, "ratios", ratio_table(newest("ratios")))
    for name, head, (rows, where), note in (
        ("rl", RL, rl_rows(RESULTS), "Times and steps by seed. "),
        ("pong", PONG, pong_rows(RESULTS), ""),
        ("profile", PROFILE, profile_rows(RESULTS), ""),
        ("worlds", WORLDS, world_rows(RESULTS), ""),
        ("lifelong", LIFELONG, lifelong_rows(RESULTS), ""),
    ):
        between(page, name, table(head, rows) + "\n\n" + note + measured_where(where))
    if (RESULTS / "beside-sb3.json").is_file():
        rows, where = beside_rows(ROOT / "results", RESULTS)
        note = "One seed. RecurrentPPO's score is the better one of likeliest and drawn actions. "
        text = f"{BESIDE_HEADING}\n\n{table(BESIDE, rows)}\n\n{note}{measured_where(where)}"
        between(ROOT / "docs" / "results.md", "beside-sb3", text)
    rows, where = process_rows(RESULTS)
    between(ROOT / "docs" / "your-own-world.md", "processes", table(PROCESSES, rows) + "\n\n" + measured_where(where))
    between(ROOT / "docs" / "certificate.md", "all", certificate_table(card))
    between(ROOT / "docs" / "certificate.md", "mutations", mutation_table(RESULTS / "mutations.json"))
    between(ROOT / "docs" / "agents.md", "tasks", task_table())
    trusted, heads, untrained, line = map_rows(RESULTS)
    for name, head, rows in (
        ("trusted", TRUSTED, trusted),
        ("heads", HEADS, heads),
        ("untrained", UNTRAINED, untrained),
    ):
        between(ROOT / "docs" / "believe.md", name, table(head, rows) + (f"\n\n{line}" if name == "trusted" else ""))
    believe = ROOT / "docs" / "believe.md"
    heading, rows, places = faithful_rows(ROOT / "results")
    between(believe, "faithful", f"{table(heading, rows)}\n\n{places}")
    between(believe, "places", table(PLACES, place_rows(ROOT / "results")))
    between(ROOT / "docs" / "video.md", "rows", table(VIDEO, video_rows(ROOT / "results")))
    between(ROOT / "docs" / "video.md", "flops", flops_that_differ())
    between(ROOT / "docs" / "robots.md", "learned", table(ROBOTS, robot_rows(ROOT / "results")))
    rows, where = rate_rows(RESULTS)
    between(ROOT / "docs" / "robots.md", "rates", table(RATES, rows) + "\n\n" + measured_where(where))
    attention = ROOT / "docs" / "attention-agents.md"
    between(attention, "sizes", size_table())
    rows, where = cost_rows(RESULTS)
    between(attention, "costs", table(COST_HEADING, rows) + "\n\n" + measured_where(where))
    for page, agents in ATTENTION_PAGES.items():
        path = ROOT / "docs" / "attention" / f"{page}.md"
        own = [row for row in rows if row[0].split("`")[1] in agents]
        between(path, "costs", table(COST_HEADING, own) + "\n\n" + measured_where(where))
        between(
            path, "learned", f"{ATTENTION_NOTE}\n\n{table(ATTENTION_HEADING, attention_rows(ROOT / 'results', agents))}"
        )
    heading, rows = agent_rows(ROOT / "results")
    between(attention, "learned", table(heading, rows))
    rows, where = plain_rows(RESULTS)
    between(attention, "plain", table(PLAIN_HEADING, rows) + "\n\n" + measured_where(where))
    parts = [f"{table(CHUNKS, rows)}\n\n{measured_where(where)} {can}" for rows, where, can in chunk_tables(RESULTS)]
    between(ROOT / "docs" / "long-rows.md", "chunks", "\n\n".join(parts))
    between(ROOT / "docs" / "images.md", "rows", table(PICTURES, picture_rows(ROOT / "results")))
    figure_listops(ROOT / "results", ROOT / "docs" / "assets" / "listops.png")
    figure_babyai(ROOT / "results", ROOT / "docs" / "assets" / "babyai.png")
    figure(cores, ROOT / "docs" / "assets" / "streams.png")


def task_table() -> str:
    """What every task asks of a memory, at its defaults."""
    head = ["task", "chance", "lag: median, 95 %", "ends of episodes between", "other things between", "bits"]
    parts = ("chance", "lag", "ends", "past", "bits")
    return table(head, [(f"`{row['key']}`", *(row[part] for part in parts)) for row in tasks()])


def size_table() -> str:
    """Parameters of the attention agents, published and counted."""
    rows = []
    for size in SIZES:
        ours = size.count(game(size.game, side=size.side))
        name = f"`{size.agent}`, {size.game}" + (f", {size.changed}" if size.changed else "")
        rows.append((name, f"{size.published:,}", f"{ours:,}", f"{size.unused:,}"))
        assert ours + size.unused == size.published
    return table(["agent, game", "thesis", "here", "in the thesis, and read by nothing"], rows)


def card_text(found: dict[str, Any], names: Iterable[str] | None = None) -> str:
    """A card as a terminal of 120 columns shows it; with ``names`` these lines alone, and how many there are."""
    facts = {key: found[key] for key in ("core", "config", "parameters", "state_bytes", "dtype", "versions", "seconds")}
    card = Card(lines=tuple(Line(**line) for line in found["lines"]), **facts)
    if names is None:
        return f"```\n{card}\n```"
    some = replace(card, lines=tuple(card[name] for name in names))
    text = str(some).removesuffix(some.verdict())
    return f"```\n{text}...   ({len(card.lines) - len(some.lines)} more lines)\n{card.verdict()}\n```"


def step_times(cores: dict[str, Any]) -> str:
    """Of ``hcam`` early and late in a stream."""
    early, late = (row_of(cores, "hcam", "stream", "float32", 1, position) for position in (1_000, 100_000))
    return " and ".join(f"{row['us_per_call'] / 1000:.2f} ms" for row in (early, late))


def certificate_table(card: dict[str, Any]) -> str:
    """Every core and every line, with the length of the long run."""
    # A card that is older than a line lacks it.
    names = [name for name in LINES if any(line["name"] == name for one in card["cards"] for line in one["lines"])]
    rows = []
    for one in card["cards"]:
        long = next((line["numbers"].get("steps") for line in one["lines"] if line["name"] == "state-bytes"), None)
        words = {"pass": "ok", "skip": "n/a"}
        marks = {line["name"]: words.get(line["status"], line["status"]) for line in one["lines"]}
        rows.append((f"`{one['core']}`", *(marks.get(name, "-") for name in names), f"{long:,}" if long else "-"))
    made: dict[str, list[str]] = {}
    for one in card["cards"]:
        made.setdefault(measured_where(one["environment"]), []).append(f"`{one['core']}`")
    notes = [f"* {', '.join(cores)}: {where}" for where, cores in made.items()]
    missing = [f"`{core}`" for core in CORES if core not in {one["core"] for one in card["cards"]}]
    about = "The long run is that of `state-bytes`."
    about += f" Not in these runs: {', '.join(missing)}; the tests certify it like the others." if missing else ""
    if any(one["environment"]["command"] == "certificate.py 60" for one in card["cards"]):
        about += " What was `certificate.py 60` then is `python benchmarks/certificate.py --seconds 60` now."
    text = "\n".join([f"{about} Measured:", "", *notes])
    return table(["core", *(f"`{name}`" for name in names), "long run, steps"], rows) + "\n\n" + text


def mutation_table(path: Path) -> str:
    """How many planted bugs the certificate sees, by which lines, and what the others change."""
    found = json.loads(path.read_text())
    rows = found["rows"]
    caught = [row for row in rows if row["lines"]]
    equal = Counter(row["equal"] for row in rows if "equal" in row)
    unexplained = len(rows) - len(caught) - equal.total()
    lines = Counter(line for row in caught for line in row["lines"])
    head = (
        f"{len(rows)} planted, {len(caught)} caught, {equal.total()} change no number, {unexplained} missed "
        f"(`{found['command']}`, commit {found['commit']}). Seen by: "
    )
    seen = ", ".join(f"`{line}` {number}" for line, number in lines.most_common())
    return f"{head}{seen}.\n\n" + table(["why the others change no number", "bugs"], equal.most_common())


if __name__ == "__main__":
    main()
