"""Table and picture of the roofline of every core, and speeds of the linear recurrences, from their newest results."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from report_tables import MEASURED, Row, read, read_newest, table_with_source

WORK = {"training": ("o", "tab:blue"), "step": ("^", "tab:orange")}
"""Marker and colour of the points."""


def roofline_table() -> str:
    """Return a line for every core: limit and measured time of training and of a step, and shares."""
    found = read_newest("roofline")
    cores = list(dict.fromkeys(row["core"] for row in found["rows"]))
    heads = ["core"]
    for work in WORK:
        heads += [f"{work}: arithmetic, µs", "bytes, µs", "measured, µs", "share of limit"]
        heads += ["share of peak", "executed / formula"] if work == "training" else ["bound by"]
    rows = []
    for core in cores:
        cells = [f"`{core}`"]
        for work in WORK:
            row = _row(found["rows"], core, work)
            cells += [f"{row[name]:,.1f}" for name in ("arithmetic_us", "bytes_us", "measured_us")]
            cells.append(f"{100 * row['share']:.0f} %")
            if work == "training":
                cells += [f"{100 * row['share_of_peak']:.0f} %", f"{row['executed'] / row['flops']:.2f}"]
            else:
                cells.append("arithmetic" if row["arithmetic_us"] > row["bytes_us"] else "bytes")
        rows.append(cells)
    peak = max(row["peak"] for row in found["rows"]) / 1e9
    config = found["config"]
    note = (
        f"Training: {config['batch']} rows of {config['steps']} steps from a full memory. Peak {peak:.0f} GFLOP/s; "
        f"bandwidth {_gigabytes(found['rows'], min)} to {_gigabytes(found['rows'], max)} GB/s, by size. "
    )
    return table_with_source(heads, rows, found["environment"], note)


LINEAR = {"chunked": 8, "length": 1.1, "peers": 1.5, "stream": 1.3}
"""Measures of ``benchmarks/linear.py`` and what they aim at: at least, but at most for time by length and of a step."""


def linear_table() -> str:
    """Return a line for every linear recurrence: four ratios, each beside its aim."""
    found = read(MEASURED / "linear.json")
    rows = []
    for core, measures in found["cores"].items():
        cells = [f"`{core}`"]
        for name, aim in LINEAR.items():
            ratio = measures[name]["ratio"] if name in measures else None
            missed = ratio is not None and (ratio < aim if name in ("chunked", "peers") else ratio > aim)
            cells.append("-" if ratio is None else f"{ratio:.2f}{' (missed)' if missed else ''}")
        rows.append(cells)
    heads = ["core", "loop / chunked (8)", "step at 100 000 / at 1 000 (1.1)", "transformers / ours (1.5)"]
    return table_with_source([*heads, "step / gru's of equal bytes (1.3)"], rows, found["environment"])


def equal_table() -> str:
    """Return training times of hcam and of transformer-xl that attends to as many steps."""
    found = read(MEASURED / "equal-steps.json")
    names = ("hcam", "transformer-xl", "gated transformer-xl")
    rows = [
        [
            f"{row['steps']}, {row['window']}",
            *(f"{row[f'{name}, milliseconds']:.0f}" for name in names),
            *(f"{row[f'{name} / hcam']:.2f}" for name in names[1:]),
        ]
        for row in found["rows"]
    ]
    heads = ["steps", *(f"{name}, ms" for name in names), *(f"{name} / hcam" for name in names[1:])]
    return table_with_source(heads, rows, found["environment"])


def _row(rows: list[Row], core: str, work: str) -> Row:
    return next(row for row in rows if (row["core"], row["work"]) == (core, work))


def _gigabytes(rows: list[Row], pick: object) -> str:
    return f"{pick(row['bandwidth'] for row in rows) / 1e9:.0f}"  # type: ignore[operator]


def _spread_labels(
    points: list[tuple[float, float, str]], apart: float = 1.13, near: float = 2.0
) -> list[tuple[float, float, tuple[float, float], str]]:
    """Place names to the right of their points, above each other where points lie in one column of the picture."""
    columns: list[list[tuple[float, float, str]]] = []
    for point in sorted(points):
        if columns and point[0] < near * columns[-1][0][0]:
            columns[-1].append(point)
        else:
            columns.append([point])
    placed = []
    for column in columns:
        beside, heights = 1.25 * max(x for x, _, _ in column), [0.0]
        by_height = sorted(column, key=lambda point: point[1])
        for _, y, _ in by_height:
            heights.append(max(y, heights[-1] * apart))
        raised = (heights[-1] / by_height[-1][1]) ** 0.5  # half of it: names stand around the middle of the column
        placed += [
            (x, y, (beside, height / raised), name) for (x, y, name), height in zip(by_height, heights[1:], strict=True)
        ]
    return placed


def figure_roofline(path: Path) -> None:
    """FLOP/s that each core reaches by its FLOPs a byte, under the roof of this machine."""
    rows = read_newest("roofline")["rows"]
    peak, bandwidth = (max(row[name] for row in rows) for name in ("peak", "bandwidth"))
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    chart, axes = plt.subplots(figsize=(9, 5.2), dpi=140)
    shown = [row for row in rows if row["flops"]]
    intensity = [row["flops"] / row["bytes"] for row in shown]
    ends = [min(intensity) / 2, max(intensity) * 6]
    axes.plot([ends[0], peak / bandwidth, ends[1]], [bandwidth * ends[0], peak, peak], color="grey", linewidth=1.5)
    axes.annotate(f"{peak / 1e9:.0f} GFLOP/s", (ends[1], peak), va="bottom", ha="right", color="grey")
    middle = (ends[0] * peak / bandwidth) ** 0.5  # of the slope; points are below it
    axes.annotate(f"{bandwidth / 1e9:.0f} GB/s ", (middle, bandwidth * middle), va="bottom", ha="right", color="grey")
    lowest = peak
    for work, (marker, colour) in WORK.items():
        mine = [(x, row) for x, row in zip(intensity, shown, strict=True) if row["work"] == work]
        reached = [row["flops"] / row["measured_us"] * 1e6 for _, row in mine]
        axes.plot([x for x, _ in mine], reached, marker, color=colour, label=work, markersize=6, linestyle="none")
        points = [(x, y, row["core"]) for (x, row), y in zip(mine, reached, strict=True)]
        for x, y, place, name in _spread_labels(points):
            lowest = min(lowest, place[1])
            line = {
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            }
            axes.annotate(name, (x, y), place, va="center", fontsize=7, color=colour, arrowprops=line)
    axes.set(xscale="log", yscale="log", xlabel="FLOPs a byte", ylabel="FLOP/s", xlim=ends)
    axes.set_ylim(lowest / 1.2)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("Roofline: one thread, float32, width 512, 4 layers", loc="left", fontsize=11)
    chart.tight_layout()
    chart.savefig(path)
    plt.close(chart)
