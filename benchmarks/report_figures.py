"""Figures of the docs, from result files."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from report_speed import newest_cores
from report_tables import Row, finished, middle, read_runs

ABLATIONS = {  # axis: labels of the recipe's lite rows by number, and table 4, 7 and 8 of the paper, at its own scale
    "steps in a chunk": (
        {2: "chunk2", 5: "chunk5", 10: "two-way-tlb", 40: "chunk40", 80: "chunk80"},
        {2: 0.361, 20: 0.365, 100: 0.382, 500: 0.370, 1000: 0.368},
    ),
    "slots": (
        {1: "slots1", 4: "slots4", 10: "two-way-tlb", 40: "slots40"},
        {1: 0.364, 10: 0.372, 20: 0.382, 200: 0.373},
    ),
}
MODELS = {"instructed": ("Transformer + TLB", "tab:blue"), "transformer": ("Transformer", "tab:orange")}
DEMONSTRATIONS = {500: "-500", 2000: "-2000", 8000: "-8000", 20_000: ""}
LEVELS = {"gotolocal": "GoToLocal", "pickuploc": "PickupLoc", "putnextlocal": "PutNextLocal"}

REINFORCED = {  # panel: recipe and labels of its rows by reinforcement alone
    "T-maze, as published": ("htm-as-published", "t-maze-{}-lite"),
    "visual match, as published": ("htm-as-published", "visual-match-{}-long"),
    "visual match, one layer": ("htm-visual-match", "{}-lite"),
    "object permanence, one layer": ("htm-permanence", "{}-lite"),
}
MEMORIES = {  # label: name, colour and width of its lines; thin ones are drawn over wide ones, so that none is hidden
    "memoryless": ("no memory", "tab:grey", 3.5),
    "lstm": ("lstm", "tab:green", 2.8),
    "transformer-xl": ("transformer-xl", "tab:red", 2.2),
    "transformer-xl-full-window": ("transformer-xl, full window", "tab:orange", 1.7),
    "hcam": ("hcam", "tab:blue", 1.2),
}
ROLLOUTS = 520  # shown, or as many as the longest run with a memory has; some without one play thousands


def _style(font_size: int) -> None:
    plt.rcParams.update({"font.size": font_size, "axes.spines.top": False, "axes.spines.right": False})


def figure_streams(path: Path) -> None:
    """Time per step against position, one line per core."""
    cores = newest_cores()
    _style(11)
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


def figure_listops(path: Path) -> None:
    """Accuracy by chunk length and by slots, ours (lite) beside the paper's, each with what a Transformer has."""
    _style(10)
    chart, panels = plt.subplots(1, 2, figsize=(9, 3.6), dpi=160, sharey=True)
    transformer = _scores("transformer")
    for axes, (name, (labels, paper)) in zip(panels, ABLATIONS.items(), strict=True):
        found = {number: _scores(label) for number, label in labels.items()}
        found = {number: scores for number, scores in found.items() if scores}
        means = [middle(scores) for scores in found.values()]
        (line,) = axes.plot([*found], means, marker="o", linewidth=1.8, label="here (lite: rows of 11 to 79 tokens)")
        for number, scores in found.items():
            axes.plot([number] * len(scores), scores, ".", color=line.get_color(), alpha=0.45)
        (line,) = axes.plot([*paper], [*paper.values()], marker="s", linewidth=1.4, label="paper (501 to 1999 tokens)")
        axes.axhline(0.376, color=line.get_color(), linestyle=":", linewidth=1.2, label="paper: Transformer")
        if transformer:
            level = middle(transformer)
            axes.axhline(level, color="tab:blue", linestyle=":", linewidth=1.2, label="here: Transformer")
        axes.set(xscale="log", xlabel=name)
        numbers = sorted({*found, *paper})
        axes.set_xticks(numbers, map(str, numbers), fontsize=8, rotation=90)  # upright, 80 and 100 do not meet
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("accuracy on ListOps")
    chart.legend(*panels[0].get_legend_handles_labels(), loc="upper center", ncols=4, frameon=False, fontsize=8.5)
    chart.tight_layout(rect=(0, 0, 1, 0.93))
    chart.savefig(path)
    plt.close(chart)


def _scores(label: str) -> list[float]:
    return [one["tests"][""]["score"] for one in finished(read_runs("listops", label))]


def figure_babyai(path: Path) -> None:
    """Success of the finished runs by demonstrations (512 fresh episodes), and on the way by steps (128), seed 0."""
    _style(10)
    chart, panels = plt.subplots(1, 4, figsize=(12, 3.3), dpi=150, sharey=True, width_ratios=(1.15, 1, 1, 1))
    for model, (name, colour) in MODELS.items():
        runs = {n: _run(f"{model}-gotolocal{part}") for n, part in DEMONSTRATIONS.items()}
        tests = {n: run["tests"][""] for n, run in runs.items() if run}
        scores = [test["score"] for test in tests.values()]
        low, high = ([test[side] for test in tests.values()] for side in ("low", "high"))
        panels[0].plot([*tests], scores, marker="o", color=colour, label=name)
        panels[0].fill_between([*tests], low, high, color=colour, alpha=0.15, linewidth=0)
    panels[0].set(xscale="log", xlabel="demonstrations", title="GoToLocal, in the end", ylabel="success")
    panels[0].set_xticks([*DEMONSTRATIONS], [str(number) for number in DEMONSTRATIONS])
    panels[0].minorticks_off()
    for axes, (level, title) in zip(panels[1:], LEVELS.items(), strict=True):
        for model, (_, colour) in MODELS.items():
            run = _run(f"{model}-{level}")
            if run:
                axes.plot(*zip(*run["curve"], strict=True), color=colour)
        memoryless = _run(f"memoryless-{level}")
        if memoryless:
            level_of = memoryless["tests"][""]["score"]
            axes.axhline(level_of, color="grey", linestyle=":", label="memoryless, in the end")
        axes.set(xlabel="steps (20 000 demonstrations)", title=title)
    for axes in panels:
        axes.grid(axis="y", alpha=0.25)
    handles, names = panels[0].get_legend_handles_labels()
    more = panels[1].get_legend_handles_labels()
    chart.legend(handles + more[0], names + more[1], loc="upper center", ncols=3, frameon=False)
    chart.tight_layout(rect=(0, 0, 1, 0.92))
    chart.savefig(path)
    plt.close(chart)


def figure_reinforced(path: Path) -> None:
    """Success of memories in the worlds of Lampinen et al. during training by reinforcement alone, a line per seed."""
    _style(10)
    chart, panels = plt.subplots(1, len(REINFORCED), figsize=(12, 3.3), dpi=150, sharey=True)
    for axes, (title, (recipe, label)) in zip(panels, REINFORCED.items(), strict=True):
        shown = ROLLOUTS
        for memory, (name, colour, width) in MEMORIES.items():
            for run in finished(read_runs(recipe, label.format(memory))):
                if memory != "memoryless":
                    shown = max(shown, run["curve"][-1][0])
                axes.plot(*zip(*run["curve"], strict=True), color=colour, linewidth=width, label=name)
                chance = next(iter(run["tests"].values()))["chance"]
                axes.axhline(chance, color="black", linestyle=":", linewidth=0.8)
        axes.set(title=title, xlabel="rollouts of 128 rows", xlim=(0, shown), ylim=(-0.03, 1.05))
        axes.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("success")
    names = dict(pair[::-1] for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True))
    order = [name for name, _, _ in reversed(MEMORIES.values()) if name in names]
    chart.legend([names[memory] for memory in order], order, loc="upper center", ncols=len(order), frameon=False)
    chart.tight_layout(rect=(0, 0, 1, 0.92))
    chart.savefig(path)
    plt.close(chart)


def _run(label: str) -> Row | None:
    """The run of seed 0; None where it is not there or failed."""
    return next((run for run in finished(read_runs("tlb-babyai", f"{label}-lite")) if run["seed"] == 0), None)
