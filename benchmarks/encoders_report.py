"""Tables and figure of docs/long-rows.md and docs/images.md: chunk lengths, ListOps, and pictures."""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from recollect.benchmark.chunks import PAPER
from recollect.evaluation.confidence_interval import interquartile_mean

CHUNKS = ["encoder", "training ms", "inference ms", "of peak", "training MB", "inference MB"]
CHUNKS += ["beside fused", "beside explicit", "paper, beside explicit"]
PUBLISHED = {"length": 4000, "batch_size": 1, "dtype": "float32"}
"""Of the measurements on the page: one row of 4000 steps. Others lie in the same folder."""
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
PICTURES = ["encoder", "seeds"]
PICTURE_TESTS = [f"{size}{what}" for what in ("", ", IoU of the top 20%", ", pointing") for size in ("64 px", "128 px")]
PICTURES += [test.replace(" of the top 20%", "") for test in PICTURE_TESTS]


def chunk_tables(folder: Path) -> list[tuple[list[tuple[str, ...]], dict[str, Any], str]]:
    """Rows of every measurement that the page is about, newest first, where it was made, and that machine's peak."""
    found = []
    for path in sorted(folder.glob("chunks-*.json"), reverse=True):
        results = json.loads(path.read_text())
        if not _is_published(results["config"]):
            continue
        where = results["environment"]
        can = f"Matrix products of this processor: {results['peak'] / 1e9:.0f} GFLOP/s at most."
        found.append((chunk_rows(results), where, can))
    return found


def _is_published(config: dict[str, Any]) -> bool:
    """Whether a measurement has the settings that the page names, and the attention that the paper measured beside."""
    whole = config["explicit"] and not config["quick"]
    return whole and all(config[name] == value for name, value in PUBLISHED.items())


def chunk_rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Every encoder: times and memory, and how often as fast in training and inference as attention to everything."""
    rows = {row["encoder"]: row for row in results["rows"]}
    fused, explicit = rows["fused attention"], rows["explicit attention"]
    lines = []
    for name, row in rows.items():
        paper = PAPER.get(row["chunk"] or 0)
        said = "-" if paper is None else f"{paper[2]} x, {paper[0]} x; {paper[3]}, {paper[1]}"
        cells = [f"{1e3 * row[f'{what}_s']:,.0f}" for what in ("train", "inference")]
        cells += [f"{row['train_share']:.0%}, {row['inference_share']:.0%}"]
        sizes = (row[f"{what}_bytes"] for what in ("train", "inference"))
        cells += ["-" if size is None else f"{size / 1e6:,.0f}" for size in sizes]
        lines.append((name, *cells, _beside(row, fused), _beside(row, explicit), said))
    return lines


def _beside(row: dict[str, Any], other: dict[str, Any]) -> str:
    if row is other:
        return "1"
    speeds = (f"{other[f'{what}_s'] / row[f'{what}_s']:.1f} x" for what in ("train", "inference"))
    beside = ", ".join(speeds)
    if row["train_bytes"] is None:
        return beside
    shares = (f"{row[f'{what}_bytes'] / other[f'{what}_bytes']:.2f}" for what in ("train", "inference"))
    return f"{beside}; {', '.join(shares)}"


def picture_rows(results: Path) -> list[tuple[str, ...]]:
    """Every encoder of ``tlb-images``: accuracy and how well its attention finds the foreground, over the seeds."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((results / "tlb-images").glob("*.json")):
        one = json.loads(path.read_text())
        if one["status"] == "ok" and one["scale"] == "lite" and not one["row"].startswith("memoryless"):
            runs.setdefault(one["row"], []).append(one["tests"])
    chance = next(iter(runs.values()))[0]
    rows = [("*chance*", "", *(f"{chance[test]['chance']:.3f}" for test in PICTURE_TESTS))]
    for row, found in runs.items():
        cells = ([tests[test]["score"] for tests in found if test in tests] for test in PICTURE_TESTS)
        means = [float(interquartile_mean(np.array(scores))) if scores else None for scores in cells]
        rows.append((row, str(len(found)), *("-" if mean is None else f"{mean:.3f}" for mean in means)))
    return sorted(rows, key=lambda row: row[2])


def figure_listops(results: Path, path: Path) -> None:
    """Accuracy by chunk length and by slots, ours (lite) beside the paper's, each with what a Transformer has."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    chart, panels = plt.subplots(1, 2, figsize=(9, 3.6), dpi=160, sharey=True)
    transformer = _scores(results, "transformer")
    for axes, (name, (labels, paper)) in zip(panels, ABLATIONS.items(), strict=True):
        found = {number: _scores(results, label) for number, label in labels.items()}
        found = {number: scores for number, scores in found.items() if scores}
        middle = [float(interquartile_mean(np.array(scores))) for scores in found.values()]
        (line,) = axes.plot([*found], middle, marker="o", linewidth=1.8, label="here (lite: rows of 11 to 79 tokens)")
        for number, scores in found.items():
            axes.plot([number] * len(scores), scores, ".", color=line.get_color(), alpha=0.45)
        (line,) = axes.plot([*paper], [*paper.values()], marker="s", linewidth=1.4, label="paper (501 to 1999 tokens)")
        axes.axhline(0.376, color=line.get_color(), linestyle=":", linewidth=1.2, label="paper: Transformer")
        if transformer:
            level = float(interquartile_mean(np.array(transformer)))
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


def _scores(results: Path, label: str) -> list[float]:
    found = [json.loads(path.read_text()) for path in sorted((results / "listops").glob(f"{label}-seed*.json"))]
    return [one["tests"][""]["score"] for one in found if one["status"] == "ok"]
