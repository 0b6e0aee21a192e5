"""Figure of docs/imitation.md: success in BabyAI by demonstrations and by steps, with a bottleneck and without."""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

MODELS = {"instructed": ("Transformer + TLB", "tab:blue"), "transformer": ("Transformer", "tab:orange")}
DEMONSTRATIONS = {500: "-500", 2000: "-2000", 8000: "-8000", 20_000: ""}
LEVELS = {"gotolocal": "GoToLocal", "pickuploc": "PickupLoc", "putnextlocal": "PutNextLocal"}


def figure_babyai(results: Path, path: Path) -> None:
    """Success of the finished runs by demonstrations (512 fresh episodes), and on the way by steps (128), seed 0."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    chart, panels = plt.subplots(1, 4, figsize=(12, 3.3), dpi=150, sharey=True, width_ratios=(1.15, 1, 1, 1))
    for model, (name, colour) in MODELS.items():
        runs = {n: _run(results, f"{model}-gotolocal{part}") for n, part in DEMONSTRATIONS.items()}
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
            run = _run(results, f"{model}-{level}")
            if run:
                axes.plot(*zip(*run["curve"], strict=True), color=colour)
        memoryless = _run(results, f"memoryless-{level}")
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


def _run(results: Path, label: str) -> dict[str, Any] | None:
    path = results / "tlb-babyai" / f"{label}-lite-seed0.json"
    found = json.loads(path.read_text()) if path.is_file() else None
    return found if found and found["status"] == "ok" else None
