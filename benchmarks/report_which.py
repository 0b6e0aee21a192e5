"""The page "Which memory?": every core by what it remembered and what it costs, from the results files alone."""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import source_tree  # noqa: F401
from recollect.comparison.table_pictures import Cell, HeatMap, heat_map_svg
from recollect.cores import CORES
from recollect.files import write_atomically
from recollect.recipes.data_sheet import GOOD, TITLES, TRAINED_ITEMS, measures
from recollect.recipes.data_sheet_pages import Measure, read_sheet
from recollect.recipes.memory_suite import memory_suite_table
from recollect.recipes.result_files import read_results
from recollect.recipes.result_tables import markdown_table
from report_tables import ROOT, read

COLUMNS = ("items", "delay, steps", "distractors", "overwrites", "memory suite", "endless", "million")
COSTS = ("bytes of state", "µs, stream", "µs, training")
NOT_RUN = Cell(None, "not run")
Row = dict[str, Cell]


@cache
def rows() -> dict[str, Row]:
    """Cells of every core by column; a column that is missing was not run."""
    found: dict[str, Row] = {key: {} for key in CORES}
    _add_sheets(found)
    _add_suite(found)
    _add_scores(found, "endless", "1024 steps")
    _add_scores(found, "million", "lag 1 000 000")
    _add_costs(found)
    return found


def _add_sheets(found: dict[str, Row]) -> None:
    shown = [
        Measure(key=key, title=TITLES[key], levels=list(levels), hardest=TRAINED_ITEMS)
        for key, levels in measures().items()
    ]
    results = read_results(ROOT / "results/data-sheet")
    for core, row in found.items():
        sheet = read_sheet(core, results, shown)
        if sheet is None:
            continue
        for column, measure in zip(COLUMNS, shown, strict=False):
            level, hardest = sheet.reached(measure, GOOD), measure.levels[-1]
            share = 0.0 if not level else math.log2(1 + level) / math.log2(1 + hardest)
            text = "none" if level is None else f"{'≥ ' if level == hardest and level > 1 else ''}{level:g}"
            if column == "distractors" and level is not None:
                text = f"{100 * level:g} %"
            row[column] = Cell(share, text)


def _add_suite(found: dict[str, Row]) -> None:
    table = memory_suite_table(read_results(ROOT / "results/memory-suite"))
    for core, row in found.items():
        scores = [table.suite.scores.get((core, column.key)) for column in table.columns]
        run = [float(np.mean(np.clip(score, 0, 1))) for score in scores if score is not None]
        if len(run) == len(scores):
            row["memory suite"] = Cell(float(np.mean(run)), f"{100 * np.mean(run):.0f}")


def _add_scores(found: dict[str, Row], recipe: str, test: str) -> None:
    """Enter a recipe's score of each core's best row, by the mean over its seeds."""
    scores: dict[tuple[str, str], list[float]] = {}
    for one in read_results(ROOT / "results" / recipe):
        if one["status"] == "ok" and test in one["tests"]:
            scores.setdefault((one["core"], one["row"]), []).append(one["tests"][test]["score"])
        elif one["status"] == "ok":  # it failed an easier test
            found[one["core"]][recipe] = Cell(0.0, "lost")
    means = {place: float(np.mean(values)) for place, values in scores.items()}
    most = max(means.values())
    for (core, _), score in sorted(means.items(), key=lambda item: item[1]):
        text = f"{100 * score:.0f} %" if most <= 1 else f"{score:.1f}"
        found[core][recipe] = Cell(score / most, text)


def _add_costs(found: dict[str, Row]) -> None:
    costs: Mapping[str, Any] = read(ROOT / "benchmarks/results/core-costs.json")["cores"]
    for column, field in zip(COSTS, ("bytes", "stream", "train"), strict=True):
        values = {core: one[field] for core, one in costs.items()}
        low, high = (math.log(max(1.0, pick(values.values()))) for pick in (min, max))
        for core, value in values.items():
            cheap = 1 - (math.log(max(1.0, value)) - low) / (high - low)
            text = f"{value / 1024:.1f}K" if field == "bytes" and value >= 1024 else f"{value:.0f}"
            found[core][column] = Cell(cheap, text)


def which_picture(path: Path) -> None:
    """Draw all cores and columns; darker is better."""
    shown = rows()
    columns = (*COLUMNS, *COSTS)
    picture = HeatMap(
        title="Which memory? What each core remembered, and what it costs",
        rows=list(shown),
        columns=columns,
        cells=[[row.get(column, NOT_RUN) for column in columns] for row in shown.values()],
        groups=[("remembered", len(COLUMNS)), ("costs", len(COSTS))],
        caption=["Darker is better. Costs: all cores in one run, at equal sizes, in processor time of one thread."],
    )
    write_atomically(path, heat_map_svg(picture))


def which_table() -> str:
    """Return the same as a table."""
    columns = (*COLUMNS, *COSTS)
    body = [[f"`{core}`", *(row.get(column, NOT_RUN).text for column in columns)] for core, row in rows().items()]
    return markdown_table(["core", *columns], body)


def which_choice() -> str:
    """Return for every need the cores that did best, best first."""
    lines = []
    for need, column in NEEDS.items():
        scored = {core: row[column] for core, row in rows().items() if column in row}
        ranked = sorted(scored, key=lambda core: -(scored[core].value or 0.0))
        third = scored[ranked[2]].value or 0.0
        chosen = [core for core in ranked if (scored[core].value or 0.0) >= third]  # with those that equal the third
        worst = [core for core in reversed(ranked) if scored[core].value == scored[ranked[-1]].value]
        lines.append([need, _named(chosen, scored), _named(worst, scored), str(len(CORES) - len(scored))])
    return markdown_table(["you need", "best here", "worst here", "cores not run"], lines, "lllr")


NEEDS = {
    "many items at once": "items",
    "one item for very long": "delay, steps",
    "the newest value of a key": "overwrites",
    "nine kinds of tasks with one setting": "memory suite",
    "episodes without an end": "endless",
    "little state": "bytes of state",
    "quick single steps": "µs, stream",
    "quick training": "µs, training",
}
"""What a reader may need, and the column that measured it."""


def _named(cores: list[str], scored: Mapping[str, Cell]) -> str:
    return ", ".join(f"`{core}` ({scored[core].text})" for core in cores)
