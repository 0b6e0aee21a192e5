"""Page and pictures of the memory suite, from its result files.

docs/memory-suite.md                     summary and tables
docs/assets/memory-suite.svg             scaled score of each core in each task
docs/assets/memory-suite-beats.svg       probability that one core beats another
docs/assets/memory-suite-profile.svg     performance profile: share of runs above each score
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from recollect.comparison.plots import has_matplotlib
from recollect.comparison.suite import Suite, scale_score
from recollect.comparison.table_pictures import WIDE_PAGE, Bar, Cell, HeatMap, heat_map_svg, profile_svg
from recollect.evaluation.confidence_interval import Interval, interquartile_mean, seeds_interval
from recollect.files import write_atomically
from recollect.recipes.result_files import result_aids
from recollect.recipes.result_tables import markdown_cell, markdown_table

THRESHOLDS = np.linspace(0, 1, 101)
"""Scores at which the performance profile is drawn."""
SOLVED, BEGUN = 0.9, 0.15
"""Scaled scores from which a task counts as solved, and as begun."""
ABLATION = "memoryless"
"""The row that the others are compared with."""
PAIRS = (
    ("hcam", "transformer-xl, full window"),
    ("hcam", "transformer-xl"),
    ("transformer-xl, full window", "lstm"),
    ("transformer-xl", "lstm"),
    ("lstm", ABLATION),
    ("transformer-xl, full window", "lstm, chrono start"),
    ("lstm, chrono start", ABLATION),
)
"""Pairs of rows of which the papers report the first above the second. Both rows of the first pair have states of about
the same size."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """Column of the table: a task."""

    key: str
    title: str
    how: str
    """Method of training."""
    chance: float
    oracle: float
    span: int
    """Most steps between an item and its use; 0 where unknown."""
    seconds: float
    """Processor time of a run."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Row of the table: a core and its settings."""

    name: str
    labels: Mapping[str, str]
    """Labels of its result files, by column."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Table of all rows and columns."""

    columns: Sequence[Heading]
    rows: Sequence[Line]
    results: Sequence[Mapping[str, Any]]
    left_out: Sequence[str] = ()
    """Cores without a row, because they need images or instructions."""

    def write(self, root: Path) -> str:
        """Write page and pictures under ``root/docs``; return the table."""
        assets = root / "docs" / "assets"
        assets.mkdir(parents=True, exist_ok=True)
        table = self.table()
        if has_matplotlib():
            write_atomically(assets / "memory-suite.svg", heat_map_svg(self.heat_map()))
        beats = profile = ""
        if self.compared.tasks and has_matplotlib():
            write_atomically(assets / "memory-suite-beats.svg", heat_map_svg(self.beats()))
            write_atomically(assets / "memory-suite-profile.svg", self.profile())
            beats = "![Probability that one core beats another](assets/memory-suite-beats.svg)"
            profile = "![Share of runs above each score](assets/memory-suite-profile.svg)"
        write_atomically(root / "docs" / "memory-suite.md", self.page(table, beats, profile))
        return table

    @cached_property
    def runs(self) -> dict[str, list[Mapping[str, Any]]]:
        """Result files by label, seed by seed."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for result in sorted(self.results, key=lambda result: result["seed"]):
            found.setdefault(result["label"], []).append(result)
        return found

    def good(self, row: Line, column: Heading) -> list[Mapping[str, Any]]:
        """Return the finished runs of a cell."""
        return [one for one in self.runs.get(row.labels[column.key], []) if one["status"] == "ok"]

    @cached_property
    def intervals(self) -> dict[tuple[str, str], Interval]:
        """95 % intervals over seeds and evaluated rows, by row and column, in the task's units."""
        found = {}
        for row, column in product(self.rows, self.columns):
            tests = [one["tests"][""] for one in self.good(row, column)]
            if tests:
                right, asked = ([np.array(test[part]) for test in tests] for part in ("correct", "asked"))
                found[row.name, column.key] = seeds_interval(right, asked)
        return found

    @cached_property
    def suite(self) -> Suite:
        """Scores of the suite, scaled from chance (0) to the oracle (1)."""
        scores = {}
        for row in self.rows:
            for column in self.columns:
                found = [one["tests"][""]["score"] for one in self.good(row, column)]
                if found:
                    scaled = [scale_score(score, column.chance, column.oracle) for score in found]
                    scores[row.name, column.key] = np.array(scaled)
        names, keys = [row.name for row in self.rows], [column.key for column in self.columns]
        return Suite(methods=names, tasks=keys, scores=scores)

    @cached_property
    def compared(self) -> Suite:
        """Rows that have been run in the same columns, and those columns; the best row first."""
        part = self.suite.fullest()
        return replace(part, methods=sorted(part.methods, key=part.mean, reverse=True))

    @property
    def ordered(self) -> list[Line]:
        """The rows in the order of the table: those that are compared, then those that have been run at all."""
        order, scores = self.compared.methods, self.suite.scores
        done = {row.name: sum(name == row.name for name, _ in scores) for row in self.rows}
        return sorted(
            self.rows,
            key=lambda row: order.index(row.name) if row.name in order else len(order) + 1 / (1 + done[row.name]),
        )

    @property
    def over(self) -> str:
        """Description of the columns and rows of a number over many columns."""
        part = self.compared
        tasks = "all tasks" if len(part.tasks) == len(self.columns) else f"{len(part.tasks)} full columns"
        return tasks if len(part.methods) == len(self.rows) else f"{tasks}, of {len(part.methods)} rows"

    @property
    def _over_in_words(self) -> str:
        """The same description for the prose of the page."""
        part = self.compared
        rows = "all" if len(part.methods) == len(self.rows) else f"all {len(part.methods)} compared"
        return f"the {len(part.tasks)} tasks that {rows} rows have run"

    @property
    def shown(self) -> list[Line]:
        """Rows with any run, in order; all rows where none has been run."""
        begun = [row for row in self.ordered if any(label in self.runs for label in row.labels.values())]
        return begun or self.ordered

    def reason(self, row: Line, column: Heading) -> str:
        """Return the reason for an empty cell."""
        failed = [one["error"] for one in self.runs.get(row.labels[column.key], []) if one["status"] != "ok"]
        return f"failed: {failed[0]}" if failed else "not run yet"

    def _fewer(self) -> list[list[str]]:
        """Return rows of a table: tasks, core and seeds of cells with fewer seeds than others, or with failed seeds."""
        found = [(row, column, self.good(row, column)) for row in self.shown for column in self.columns]
        most = max((len(good) for _, _, good in found), default=0)
        tasks: dict[tuple[str, ...], list[str]] = {}
        for row, column, good in found:
            failed = [one for one in self.runs.get(row.labels[column.key], []) if one["status"] != "ok"]
            if good and (failed or len(good) < most):
                reasons = "; ".join(f"seed {one['seed']} failed: {one['error']}" for one in failed)
                cells = [_shown(row.name), f"{len(good)} of {most}", reasons or "not run yet"]
                tasks.setdefault(tuple(map(markdown_cell, cells)), []).append(_task(column))
        return [["; ".join(names), *cells] for cells, names in tasks.items()]

    def _brief(self, row: Line, column: Heading) -> str:
        """Return the text of an empty cell: ``failed``, or a dash for a cell that was not run."""
        return "failed" if self.reason(row, column).startswith("failed") else "-"

    def _empty(self, column: Heading) -> dict[str, list[str]]:
        """Return the rows without a number in a column, by reason."""
        found: dict[str, list[str]] = {}
        for row in self.shown:
            if not self.good(row, column):
                found.setdefault(self.reason(row, column), []).append(row.name)
        return found

    def _names(self, rows: Sequence[str]) -> str:
        return "all above" if len(rows) == len(self.shown) else "; ".join(map(_shown, rows))

    def heat_map(self) -> HeatMap:
        """Return the picture of the scaled scores."""
        compared, scores = self.compared.methods, self.suite.scores.values()
        bars = [self._bar(row.name) if row.name in compared else None for row in self.shown] if compared else []
        done, few = sum(map(len, scores)), min(map(len, scores), default=0)
        return HeatMap(
            title="When does which memory pay, and how much?",
            rows=[_shown(row.name) for row in self.shown],
            columns=[column.title for column in self.columns],
            cells=[[self._cell(row, column) for column in self.columns] for row in self.shown],
            feet=[self._foot(column) for column in self.columns],
            foot="lag, steps",
            groups=self._groups(),
            bars=bars,
            bar=f"IQM over {self.over}",
            caption=[
                "0 is chance, 100 the oracle: interquartile mean over seeds. Bold: the best of its column, and those "
                "with a seed that reaches its worst seed.",
                f"{done} runs, at least {few} in a cell that has any. A dash: not run yet. Failures: listed below.",
                "Framed: the lag is longer than what the core's windows show. Lag: from what must be kept to its use, "
                "by the oracle's play (with <: at most).",
            ],
        )

    def _groups(self) -> list[tuple[str, int]]:
        groups: list[tuple[str, int]] = []
        for column in self.columns:
            if groups and groups[-1][0] == column.how:
                groups[-1] = (column.how, groups[-1][1] + 1)
            else:
                groups.append((column.how, 1))
        return groups

    def _cell(self, row: Line, column: Heading) -> Cell:
        scores = self.suite.scores.get((row.name, column.key))
        if scores is None:
            return Cell(None, self._brief(row, column))
        middle = self._middle(scores)
        test = self.good(row, column)[0]["tests"][""]
        lag, reach = test.get("lag"), test.get("reach")
        beyond = lag is not None and reach is not None and lag > reach
        return Cell(middle, f"{100 * middle:z.0f}", row.name in self.suite.best(column.key), beyond)

    def _foot(self, column: Heading) -> str:
        """Return the lag of a column from its result files; without results, its longest span."""
        tests = [one["tests"][""] for row in self.rows for one in self.good(row, column)]
        lags = [test["lag"] for test in tests if test.get("lag") is not None]
        return f"{lags[0]:g}" if lags else f"< {column.span + 1}" if column.span else "-"

    @staticmethod
    def _middle(scores: np.ndarray) -> float:
        return float(interquartile_mean(scores))

    def _bar(self, name: str) -> Bar:
        mean, interval = self.compared.mean(name), self.compared.interval(name)
        return Bar(mean, *(interval or (mean, mean)))

    def beats(self) -> HeatMap:
        """Return the picture of the probabilities that the row beats the column."""
        names = self.compared.methods
        cells = []
        for ours in names:
            line = []
            for theirs in names:
                share = self.compared.beats(ours, theirs)
                line.append(Cell(None, "") if ours == theirs else Cell(share, f"{100 * share:.0f}"))
            cells.append(line)
        return HeatMap(
            title="How probable is it that the row beats the column, in per cent?",
            rows=[_shown(name) for name in names],
            columns=[_shown(name) for name in names],
            cells=cells,
            caption=["On a task drawn at random, one seed of each; ties count half (probability of improvement)."],
        )

    def profile(self) -> str:
        """Return the picture of the share of runs above each score."""
        curves = {_shown(name): self.compared.profile(name, THRESHOLDS) for name in self.compared.methods}
        return profile_svg("Share of runs that score more than ...", THRESHOLDS, curves)

    def table(self) -> str:
        """Return a Markdown table of the scores in the tasks' own units."""
        heads = ["", *(_task(column) for column in self.columns), "IQM", f"beats {ABLATION}"]
        rows = [[markdown_cell(_shown(row.name)), *self._scores(row), *self._overall(row.name)] for row in self.shown]
        for name in ("chance", "oracle"):
            rows.append([f"*{name}*", *(f"{getattr(column, name):.2f}" for column in self.columns), "", ""])
        return markdown_table(heads, rows)

    def order(self) -> list[list[str]]:
        """Return rows of a table: the tasks in which intervals are in the order of the papers, touch, or contradict."""
        rows = []
        for upper, lower in PAIRS:
            parts: dict[str, list[str]] = {"above": [], "neither": [], "below": []}
            for column in self.columns:
                ours, theirs = (self.intervals.get((name, column.key)) for name in (upper, lower))
                if ours and theirs:
                    where = "above" if ours.low > theirs.high else "below" if ours.high < theirs.low else "neither"
                    parts[where].append(column.title)
            if any(parts.values()):
                cells = (markdown_cell("; ".join(titles) or "-") for titles in parts.values())
                rows.append([f"{_shown(upper)} over {_shown(lower)}", *cells])
        return rows

    def _order_section(self) -> list[str]:
        rows = self.order()
        if not rows:
            return []
        return [
            "## Does the order of the papers hold?",
            "",
            "hcam over transformer-xl over lstm over memoryless, task by task, by the 95 % intervals below. The full "
            "window keeps about as many bytes as hcam's chunks. Where intervals meet, mostly both rows solve the task, "
            "or both are at chance: they do not reach the answer, or were given too little time.",
            "",
            markdown_table(["", "above", "intervals meet", "below"], rows, "llll"),
            "",
        ]

    def _scores(self, row: Line) -> list[str]:
        cells = []
        for column in self.columns:
            good = self.good(row, column)
            if not good:
                cells.append(self._brief(row, column))
                continue
            tests = [one["tests"][""] for one in good]
            low, high = self.intervals[row.name, column.key]
            score = f"{self._middle(np.array([test['score'] for test in tests])):.2f}"
            score = f"**{score}**" if row.name in self.suite.best(column.key) else score
            cells.append(f"{score} ({low:.2f} to {high:.2f})")
        return cells

    def _overall(self, name: str) -> list[str]:
        part = self.compared
        if name not in part.methods:
            return ["", ""]
        interval = part.interval(name)
        spread = f" ({interval.low:z.2f} to {interval.high:z.2f})" if interval else ""
        return [f"{part.mean(name):z.2f}{spread}", self._beats_ablation(name)]

    def _beats_ablation(self, name: str) -> str:
        part = self.compared
        if name == ABLATION or ABLATION not in part.methods:
            return ""
        between = part.beats_interval(name, ABLATION)
        spread = f" ({100 * between.low:.0f} to {100 * between.high:.0f})" if between else ""
        return f"{100 * part.beats(name, ABLATION):.0f} %{spread}"

    def answers(self) -> str:
        """Return a Markdown table of the cores that solve, partly solve or do not begin each task that has been run."""
        rows = []
        for column in self.columns:
            found = [(row.name, self.suite.scores.get((row.name, column.key))) for row in self.shown]
            known = {name: scores for name, scores in found if scores is not None}
            middle = {name: self._middle(scores) for name, scores in known.items()}
            best = sorted(middle, key=lambda name: middle[name], reverse=True)
            parts = [
                "; ".join(_shown(name) for name in best if middle[name] >= SOLVED),
                "; ".join(
                    f"{_shown(name)} ({self._part(known[name])})" for name in best if BEGUN <= middle[name] < SOLVED
                ),
                "; ".join(_shown(name) for name in best if middle[name] < BEGUN),
            ]
            if middle:
                rows.append([_task(column), self._foot(column), *(markdown_cell(part or "-") for part in parts)])
        return markdown_table(["task", "lag, steps", "solved by", "partly by", "not begun by"], rows, "lrlll")

    def _part(self, scores: np.ndarray) -> str:
        """Return a scaled score; those of all seeds where some solved the task and others did not begin it."""
        torn = scores.max() >= SOLVED and scores.min() < BEGUN
        return ", ".join(f"{100 * score:z.0f}" for score in (scores if torn else [self._middle(scores)]))

    def imitation(self) -> str:
        """Return a Markdown table of how each task is learned: time per run, teacher, and training aids by row."""
        rows = []
        for column in self.columns:
            runs = {row.name: good[0] for row in self.rows if (good := self.good(row, column))}
            users: dict[str, list[str]] = {}
            for name, run in runs.items():
                for aid in result_aids(run):
                    users.setdefault(aid, []).append(name)
            aids = [
                aid if len(names) == len(runs) else f"{aid} ({', '.join(map(_shown, names))})"
                for aid, names in users.items()
            ]
            title, aids_used = markdown_cell(column.title), markdown_cell("; ".join(aids))
            rows.append([title, column.how, f"{column.seconds:g}", aids_used])
        return markdown_table(["task", "how", "seconds of a cell", "teacher and training aids"], rows, "llrl")

    def _statistics(self) -> str:
        if not self.compared.tasks:
            return ""
        return (
            f" IQM: interquartile mean of the scaled scores over {self._over_in_words}, each of which counts the same, "
            f"however many seeds it has; beats: probability that a run scores higher than one of {ABLATION} on a task "
            "drawn at random. Neither has an interval where a cell has one seed."
        )

    def _absent(self) -> list[str]:
        if not self.left_out:
            return []
        names = ", ".join(f"`{name}`" for name in self.left_out)
        return [f"Without a row: {names}. They read images or instructions, and the tasks here give neither.", ""]

    def page(self, table: str, beats: str, profile: str) -> str:
        """Return the page of the memory suite."""
        empty = [
            [_task(column), markdown_cell(self._names(rows)), markdown_cell(reason)]
            for column in self.columns
            for reason, rows in self._empty(column).items()
        ]
        heads = ["task", "cores", "reason"]
        reasons = ["## Empty cells", "", markdown_table(heads, empty, "lll"), ""] if empty else []
        fewer = self._fewer()
        if fewer:
            cells = markdown_table(["tasks", "core", "seeds", "missing seeds"], fewer, "llrl")
            weight = "Means over several tasks count every task the same, so these count as much, and are less certain."
            reasons += ["## Cells with fewer seeds", "", weight, "", cells, ""]
        waiting = [markdown_cell(_shown(row.name)) for row in self.rows if row not in self.shown]
        reasons += [f"Rows of which nothing is run yet: {', '.join(waiting)}.", ""] if waiting else []
        return "\n".join(
            [
                *WIDE_PAGE,
                "# When does which memory pay, and how much?",
                "",
                "Which cores learn which tasks of memory, at equal size and training time? A number is how far a core "
                "gets from chance (0) to the oracle, the best possible policy (100).",
                "",
                "![How far every core gets in every task, from chance to the oracle](assets/memory-suite.svg)",
                "",
                "Every cell is trained with about the same number of parameters, and with at most the processor time "
                "that its column has ([below](#how-each-column-is-learned)); it ends early when it is solved. "
                "*Supervised*: right answers are shown. *Imitated*: a teacher shows what to do; the oracle knows the "
                "world's secrets, an explorer what it has seen. *Reinforcement*: nothing but reward. *Full window*: it "
                "reaches over a whole episode. *Chrono start*: gates begin with memories of many lengths, up to that "
                "of the full window; with PyTorch's start, which lstm and gru have, half of a memory is lost at every "
                "step.",
                "",
                *(part for picture in (beats, profile) if picture for part in (picture, "")),
                "## Task by task",
                "",
                f"Scores are scaled: chance is 0 and the oracle is 100. Solved: {100 * SOLVED:.0f} or more; not begun: "
                f"less than {100 * BEGUN:.0f}; the number in brackets is the scaled score, or that of each seed where "
                "one solved the task and another did not begin. These hold for this size and this training time only: "
                "longer runs learn more.",
                "",
                self.answers(),
                "",
                *self._order_section(),
                "## Scores",
                "",
                "In the units of each task, with 95 % intervals over seeds and evaluated rows. Bold: the best of its "
                f"column, and those with a seed that reaches its worst seed.{self._statistics()}",
                "",
                table,
                "",
                *reasons,
                "## How each column is learned",
                "",
                self.imitation(),
                "",
                *self._absent(),
                "Made from `results/memory-suite/` by `recollect reproduce memory-suite`, which resumes.",
                "",
            ]
        )


def _shown(name: str) -> str:
    """Return the name of a row with its settings in brackets, because names are listed."""
    core, comma, rest = name.partition(", ")
    return f"{core} ({rest})" if comma else core


def _task(column: Heading) -> str:
    """Return a task and its method of training, so that imitation is not taken for reinforcement."""
    return f"{markdown_cell(column.title)}, {column.how}"
