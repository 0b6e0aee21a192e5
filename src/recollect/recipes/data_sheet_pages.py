"""Pages and pictures of the data sheets, from their result files.

docs/data-sheets.md                 all cores in one table
docs/assets/data-sheets.svg         every core at every level
docs/assets/data-sheet-KEY.svg      one core's curves
docs/cores/*.md                     the sheet of a core, between the markers of its page
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recollect.comparison.plots import has_matplotlib
from recollect.comparison.table_pictures import WIDE_PAGE, Cell, HeatMap, Panel, heat_map_svg, level_curves_svg
from recollect.evaluation.confidence_interval import Interval, interquartile_mean, seeds_interval
from recollect.files import replace_between, write_atomically
from recollect.recipes.result_tables import markdown_cell, markdown_table

Results = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of the data sheet, with the levels at which it is asked."""

    key: str
    """First word of the tests' names."""
    title: str
    """Heading of its panel."""
    levels: Sequence[float]
    """All of them, easiest first."""
    hardest: float
    """The hardest that was trained on."""

    @property
    def trained(self) -> int:
        """Number of levels that are not harder than those of training."""
        return sum(level <= self.hardest for level in self.levels)


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Measurements of one core for its data sheet."""

    core: str
    seeds: int
    parameters: int
    state_bytes: int
    step_microseconds: float
    scores: Mapping[str, Sequence[float]]
    """Interquartile mean over the seeds at every level, by measure."""
    intervals: Mapping[str, Sequence[Interval]]
    """95 % intervals over seeds and rows, by measure."""

    def reached(self, measure: Measure, good: float) -> float | None:
        """Return the hardest level up to which every score is at least ``good``; None if the easiest has less."""
        found = None
        for level, score in zip(measure.levels, self.scores[measure.key], strict=True):
            if score < good:
                break
            found = level
        return found


def read_sheet(core: str, results: Results, measures: Sequence[Measure]) -> Sheet | None:
    """Read the sheet of a core from its result files; None without a finished run."""
    good = [one for one in results if one["core"] == core and one["status"] == "ok"]
    if not good:
        return None
    scores: dict[str, list[float]] = {}
    intervals: dict[str, list[Interval]] = {}
    for measure in measures:
        tests = [[one["tests"][f"{measure.key} {level:g}"] for one in good] for level in measure.levels]
        scores[measure.key] = [float(interquartile_mean(np.array([one["score"] for one in runs]))) for runs in tests]
        intervals[measure.key] = [
            seeds_interval([np.array(one["correct"]) for one in runs], [np.array(one["asked"]) for one in runs])
            for runs in tests
        ]
    return Sheet(
        core=core,
        seeds=len(good),
        parameters=good[0]["parameters"],
        state_bytes=good[0]["state_bytes"],
        step_microseconds=float(np.median([one["step_microseconds"] for one in good])),
        scores=scores,
        intervals=intervals,
    )


@dataclass(frozen=True, kw_only=True)
class Sheets:
    """Sheets of all cores, and the settings of their pages."""

    sheets: Sequence[Sheet]
    missing: Sequence[tuple[str, str]]
    """Cores without a sheet, each with its reason."""
    measures: Sequence[Measure]
    good: float
    """Score that counts as remembered."""
    bits: float
    """Bits of an item."""
    chance: float
    about: str
    """Description of training and tests."""

    def write(self, root: Path) -> str:
        """Write pages and pictures under ``root/docs``; return the table."""
        docs = root / "docs"
        (docs / "assets").mkdir(parents=True, exist_ok=True)
        table = self.table()
        if has_matplotlib():
            write_atomically(docs / "assets" / "data-sheets.svg", heat_map_svg(self.heat_map()))
            for sheet in self.sheets:
                write_atomically(docs / "assets" / f"data-sheet-{sheet.core}.svg", level_curves_svg(self.panels(sheet)))
        write_atomically(docs / "data-sheets.md", self.page(table))
        for path in sorted((docs / "cores").glob("*.md")):
            text = page = path.read_text()
            for sheet in self.sheets:
                if f"<!-- recollect:data-sheet-{sheet.core}:begin -->" in text:
                    page = replace_between(page, f"recollect:data-sheet-{sheet.core}", self.section(sheet))
            if page != text:
                write_atomically(path, page)
        return table

    def table(self) -> str:
        """Return a Markdown table with a row per core: capacity and costs."""
        heads = ["core", "items", "bits per KiB of state", "delay", "beyond training", "distractors", "overwrites"]
        heads += ["µs per step", "state bytes", "parameters", "seeds"]
        rows = [[sheet.core, *self._cells(sheet)] for sheet in self.sheets]
        rows += [[core, markdown_cell(reason), *[""] * (len(heads) - 2)] for core, reason in self.missing]
        return markdown_table(heads, rows)

    def _cells(self, sheet: Sheet) -> list[str]:
        items, delay, distractors, overwrites = (sheet.reached(measure, self.good) for measure in self.measures)
        dense = "-" if not items or not sheet.state_bytes else f"{1024 * items * self.bits / sheet.state_bytes:.2g}"
        beyond = "-" if delay is None else f"x {delay / self.measures[1].hardest:g}"
        return [
            _level(items, self.measures[0]),
            dense,
            _level(delay, self.measures[1]),
            beyond,
            "-" if distractors is None else f"{100 * distractors:g} %",
            _level(overwrites, self.measures[3]),
            f"{sheet.step_microseconds:,.0f}".replace(",", " "),
            f"{sheet.state_bytes:,}".replace(",", " "),
            f"{sheet.parameters:,}".replace(",", " "),
            f"{sheet.seeds}",
        ]

    def heat_map(self) -> HeatMap:
        """Return the picture of every core at every level."""
        columns = [(measure, place) for measure in self.measures for place in range(len(measure.levels))]
        rows = [[self._cell(sheet, measure, place) for measure, place in columns] for sheet in self.sheets]
        rows += [[Cell(None, "-") for _ in columns] for _ in self.missing]
        return HeatMap(
            title="What every core remembers",
            rows=[*(sheet.core for sheet in self.sheets), *(core for core, _ in self.missing)],
            columns=["" for _ in columns],
            cells=rows,
            feet=[f"{measure.levels[place]:g}" for measure, place in columns],
            foot="level",
            orange=[number for number, (measure, place) in enumerate(columns) if place >= measure.trained],
            groups=[(measure.title, len(measure.levels)) for measure in self.measures],
            caption=[
                f"Right answers in per cent; chance {100 * self.chance:.0f}. Bold: at least {100 * self.good:.0f}. "
                "Orange levels: harder than anything in training.",
            ],
        )

    def _cell(self, sheet: Sheet, measure: Measure, place: int) -> Cell:
        score = sheet.scores[measure.key][place]
        return Cell((score - self.chance) / (1 - self.chance), f"{100 * score:.0f}", score >= self.good)

    def panels(self, sheet: Sheet) -> list[Panel]:
        """Return the curves of one core, with those of the others in grey."""
        return [
            Panel(
                title=measure.title,
                levels=[f"{level:g}" for level in measure.levels],
                trained=measure.trained,
                score=sheet.scores[measure.key],
                low=[interval.low for interval in sheet.intervals[measure.key]],
                high=[interval.high for interval in sheet.intervals[measure.key]],
                others=[other.scores[measure.key] for other in self.sheets if other is not sheet],
                chance=self.chance,
            )
            for measure in self.measures
        ]

    def section(self, sheet: Sheet) -> str:
        """Return the section of a core's page."""
        items, delay, distractors, overwrites = (sheet.reached(measure, self.good) for measure in self.measures)
        seeds = "one seed" if sheet.seeds == 1 else f"{sheet.seeds} seeds"
        dense = f", {1024 * items * self.bits / sheet.state_bytes:.2g} bits per KiB" if items else ""
        share = "-" if distractors is None else f"{100 * distractors:g} %"
        heads = ["items", "delay (steps)", "distractors", "overwrites", "state", "time per step"]
        cells = [_level(items, self.measures[0]), _level(delay, self.measures[1]), share]
        cells += [_level(overwrites, self.measures[3]), f"{sheet.state_bytes:,}".replace(",", " ") + f" bytes{dense}"]
        cells += [f"{sheet.step_microseconds:.0f} µs"]
        return "\n".join(
            [
                f"## Data sheet: `{sheet.core}`",
                "",
                f"![Scores of {sheet.core} by items, delay, distractors and overwrites]"
                f"(../assets/data-sheet-{sheet.core}.svg)",
                "",
                markdown_table(heads, [cells], "r" * len(heads)),
                "",
                f"Hardest levels up to which at least {100 * self.good:.0f} % of the answers are right, at about "
                f"{round(sheet.parameters, -3) // 1000} 000 parameters ({seeds}). Shaded: harder than anything in "
                "training. Dashed: chance. Grey: the other cores. [All cores, and how it was measured]"
                "(../data-sheets.md).",
            ]
        )

    def page(self, table: str) -> str:
        """Return the page with all cores."""
        return "\n".join(
            [
                *WIDE_PAGE,
                "# Data sheets",
                "",
                self.about,
                "",
                "![Every core at every level of items, delay, distractors and overwrites](assets/data-sheets.svg)",
                "",
                table,
                "",
                f"Items, delay, distractors and overwrites: the hardest level up to which at least "
                f"{100 * self.good:.0f} % of the answers are right; counting stops at the first level that is missed. "
                "Beyond training: that delay, divided by the longest delay seen in training. Time: processor time of a "
                "streamed step of one row. The page is made from `results/data-sheet/` by "
                "`recollect reproduce data-sheet`.",
                "",
            ]
        )


def _level(level: float | None, measure: Measure) -> str:
    if level is None:
        return "-"
    more = "at least " if level == measure.levels[-1] else ""
    return f"{more}{level:g}" if math.isfinite(level) else "-"
