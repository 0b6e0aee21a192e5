"""Read result files, and make a Markdown table of one of them from a description of its columns."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import source_tree  # noqa: F401
from recollect.evaluation.confidence_interval import interquartile_mean
from recollect.recipes.result_tables import markdown_table

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "results"
"""Results of the benchmarks."""
RESULTS = ROOT / "results"
"""Results of the recipes and of the explorer."""


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def read_newest(kind: str) -> Any:
    return read(sorted(MEASURED.glob(f"{kind}-*.json"))[-1])


def read_runs(recipe: str, label: str = "*", *, folder: Path = RESULTS) -> list[Row]:
    """Results of a recipe whose file names begin with a label, in the order of their names, failures included."""
    return [read(path) for path in sorted((folder / recipe).glob(f"{label}-seed*.json"))]


def finished(runs: Sequence[Row]) -> list[Row]:
    return [run for run in runs if run["status"] == "ok"]


def middle(scores: Sequence[float]) -> float:
    """The interquartile mean."""
    return float(interquartile_mean(np.array(scores, dtype=float)))


def with_aim(ratio: float, aim: float, digits: int = 2) -> str:
    return f"{ratio:.{digits}f} (aim {aim:g})" + (", missed" if ratio < aim else "")


def measured_where(environment: Mapping[str, Any]) -> str:
    """The line under a table."""
    threads = environment["threads"]
    command = re.sub(r" --output \S+", "", environment["command"])  # a folder of the machine that measured
    command = re.sub(r"^__main__\.py", "recollect", command)
    return (
        f"{environment['cpu']}, {threads} thread{'s' if threads != 1 else ''}, torch {environment['torch']}, "
        f"commit {environment['commit']}, {environment['date'][:10]}: `{command}`."
    )


def table_with_source(heads: Sequence[str], rows: Sequence[Sequence[object]], where: Row, note: str = "") -> str:
    """A table, and below it where it was measured."""
    return f"{markdown_table(heads, rows)}\n\n{note}{measured_where(where)}"


@dataclass(frozen=True)
class ResultTable:
    """Table with a line for every row of a file of ``benchmarks/results``.

    A column is a format string over the row's fields, or a function of the row.
    """

    file: str
    """Name without its ending; ``serving-*`` is the newest file of a benchmark."""
    columns: Mapping[str, str | Callable[[Row], str]]
    note: str = ""
    """Format string over the settings of the benchmark, for a sentence below the table."""
    keeps: Callable[[Row], bool] = lambda row: True

    def __call__(self) -> str:
        """Return the table, and below it where it was measured."""
        found = read(sorted(MEASURED.glob(f"{self.file}.json"))[-1])
        rows = [
            [cell.format(**row) if isinstance(cell, str) else cell(row) for cell in self.columns.values()]
            for row in found["rows"]
            if self.keeps(row)
        ]
        note = self.note.format(**found.get("config", {}))
        return table_with_source([*self.columns], rows, found["environment"], note)


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: f"{100 * row[name]:.1f}"


WORLDS = ResultTable(
    "worlds",
    {
        "world": "{world}",
        "rows": "{rows:,}",
        "steps/s": "{steps_per_s:,.0f}",
        "aim": lambda row: "-" if row["aim"] is None else f"{row['aim']:,.0f}",
    },
)
LIFELONG = ResultTable(
    "lifelong",
    {
        "contents in": lambda row: "host memory" if row["contents"] == "memory" else "mapped file",
        "position": "{position:,}",
        "median ms": lambda row: f"{row['us_median'] / 1000:.2f}",
        "99 % ms": lambda row: f"{row['us_p99'] / 1000:.2f}",
    },
)
PROFILE = ResultTable(
    "training-profile",
    {
        "training": "{training}",
        "acting": _share("acting"),
        "forward": _share("forward, losses"),
        **{name: _share(name) for name in ("backward", "optimiser", "world", "rest")},
        "outside arithmetic": lambda row: f"{100 * (row['world'] + row['rest']):.1f}",
    },
)
PLAIN_ATTENTION = ResultTable(
    "attention-plain",
    {
        "step in Pong": lambda row: f"`{row['what'].replace(', ', '`, ')}",
        "frame": "{side}",
        "plain, ms": lambda row: f"{1e3 * row['plain']:.2f}",
        "ours, ms": lambda row: f"{1e3 * row['ours']:.2f}",
        "ratio": lambda row: with_aim(row["ratio"], row["aim"]),
    },
)
