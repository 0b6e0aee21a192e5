"""A comparison for a person: one page that needs nothing else, and one picture for a paper.

write_report(compare(runs), "comparison")        comparison/comparison.html, .png and .json
"""

import json
from collections.abc import Callable, Sequence
from html import escape
from os import PathLike, path
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from recollect.comparison.compare import Comparison, Group
from recollect.comparison.plots import (
    AXIS_TITLES,
    curves_svg,
    has_matplotlib,
    references,
    save_picture,
    scores_svg,
)
from recollect.comparison.style import LIGHT, STYLE
from recollect.evaluation.confidence_interval import LEVEL, Interval
from recollect.files import new_file, path_errors, write_atomically
from recollect.machine import require_matplotlib

COLUMNS = (
    "IQM: interquartile mean over runs; best: the same of every run's best evaluation; "
    f"intervals: {100 * LEVEL:.0f} % stratified bootstrap over runs; "
    "P(better): probability that a run scores higher than one of the first row, ties counting half"
)
"""Meanings of the columns of :func:`table_rows`."""


class Report(NamedTuple):
    """Paths of the files that a comparison has written."""

    html: Path
    """The page."""
    json: Path
    """The numbers of its tables."""
    png: Path | None
    """The picture; None when it was not wanted."""


def write_report(comparison: Comparison, folder: str | PathLike[str], *, picture: bool = True) -> Report:
    """Write a comparison as a page, a picture and numbers; without matplotlib the page has tables only.

    Args:
        comparison: from :func:`~recollect.comparison.compare.compare`.
        folder: for the files; existing ones are replaced.
        picture: also draw the PNG.

    Raises:
        ValueError: a picture without matplotlib, or a folder that cannot be written.
    """
    if picture:
        require_matplotlib()
    target = Path(folder)
    report = Report(
        target / "comparison.html", target / "comparison.json", target / "comparison.png" if picture else None
    )
    with path_errors("out", target):
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(report.html, page(comparison, target))
        write_atomically(report.json, json.dumps(comparison.to_json(), indent=2, allow_nan=False) + "\n")
        if report.png is not None:
            with new_file(report.png) as unfinished:
                save_picture(comparison, unfinished)
    return report


def page(comparison: Comparison, folder: Path) -> str:
    """Return the page as HTML, with links to runs relative to ``folder``."""
    tasks = comparison.tasks
    title = f"Comparison: {', '.join(tasks)}"
    runs = [run for group in comparison.groups for run in group.runs]
    sections = "".join(_section(comparison, task, folder) for task in tasks)
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    places = "".join(f"<li>{escape(where)}</li>" for where in dict.fromkeys(run.where for run in runs))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="about">{_counted(len(runs), "run")} in {_counted(len(comparison.groups), "group")}. '
        "Score: newest evaluation of each run; "
        f"{COLUMNS}.</p>"
        + _overall(comparison)
        + sections
        + (f'<section class="notes"><h2>Mind</h2><ul>{notes}</ul></section>' if notes else "")
        + f'<section class="notes"><h2>Where</h2><ul>{places}</ul></section></main></body></html>\n'
    )


def _section(comparison: Comparison, task: str, folder: Path) -> str:
    groups = comparison.of(task)
    figures = _figures(groups, comparison.axis) if has_matplotlib() else ""
    return f"<section><h2>{escape(task)}</h2>{_table(groups, folder)}{figures}</section>"


def _figures(groups: Sequence[Group], axis: str) -> str:
    legend = "".join(
        f'<li><i style="background:{colour_of(index)}"></i>{escape(group.label)}</li>'
        for index, group in enumerate(groups)
    )
    known = " and ".join(name for name, _ in references(groups)) or "nothing known"
    return (
        f'<figure><ul class="legend">{legend}</ul>{_wide(curves_svg(groups, axis))}'
        f"<figcaption>Score by {escape(AXIS_TITLES.get(axis, axis))}: interquartile mean, its interval, and every run "
        f"as a thin line.</figcaption></figure><figure>{_wide(scores_svg(groups))}<figcaption>Final scores, in the "
        "order of the table: a dot per run, a mark for the interquartile mean, a bar for its interval; dashed: "
        f"{known}.</figcaption></figure>"
    )


def colour_of(index: int) -> str:
    """Return the CSS colour of the group with this number in its task."""
    return f"var(--c{index % len(LIGHT)})"


def _wide(svg: str) -> str:
    """Wrap a chart in an element that scrolls in a narrow window, instead of shrinking its text."""
    return f'<div class="scroll" tabindex="0">{svg}</div>'


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _table(groups: Sequence[Group], folder: Path) -> str:
    environment = any(group.median("environment_steps") is not None for group in groups)
    heads = ["runs", "IQM", "interval", "best", "P(better)", "interval", "steps"]
    heads += ["environment steps"] * environment + ["seconds"]
    rows = []
    for index, group in enumerate(groups):
        cells = [
            f"{len(group.runs)}",
            f"<b>{number(group.score)}</b>",
            _range(group.interval, number),
            number(group.best),
            "first row" if group.versus is None else _percent(group.improvement),
            _range(group.improvement_interval, _percent),
            _count(group.median("step")),
            *([_count(group.median("environment_steps"))] if environment else []),
            _count(group.median("seconds")),
        ]
        swatch = f'<i style="background:{colour_of(index)}"></i>'
        data = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(
            f'<tr><th scope="row">{swatch}{escape(group.label)}</th>{data}<td>{_links(group, folder)}</td></tr>'
        )
    blanks = "<td></td>" * (len(heads) - 1)
    for name, value in references(groups):
        rows.append(f'<tr class="known"><th scope="row">{name}</th><td></td><td>{number(value)}</td>{blanks}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">core</th>{head}<th scope="col">seeds</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _links(group: Group, folder: Path) -> str:
    links = []
    for run in group.runs:
        target = quote(Path(path.relpath(run.path.resolve(), folder.resolve())).as_posix())
        mark = "*" if run.ending == "unfinished" else ""
        title = escape(f"{run.path}: {run.ending}, score {number(run.score)}")
        seed = "?" if run.seed is None else run.seed
        links.append(f'<a href="{escape(target)}/" title="{title}">{seed}{mark}</a>')
    return " ".join(links)


def _overall(comparison: Comparison) -> str:
    if not comparison.overall:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(row.label)}</th><td><b>{number(row.score)}</b></td>'
        f"<td>{_range(row.interval, number)}</td></tr>"
        for row in comparison.overall
    )
    return (
        "<section><h2>All tasks</h2><p>Scores are scaled so that chance is 0 and the oracle is 1.</p>"
        '<table><thead><tr><th scope="col">core</th><th scope="col">IQM</th><th scope="col">interval</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def table_rows(groups: Sequence[Group]) -> list[dict[str, str]]:
    """Return the table of one task for a terminal: a row per group; chance and oracle at the end."""
    rows = [
        {
            "": group.label,
            "runs": f"{len(group.runs)}",
            "IQM": number(group.score),
            "interval": _range(group.interval, number, "–"),
            "best": number(group.best),
            "P(better)": "first row" if group.versus is None else _percent(group.improvement),
            "its interval": _range(group.improvement_interval, _percent, "–"),
            "steps": _count(group.median("step")),
            "seconds": _count(group.median("seconds")),
        }
        for group in groups
    ]
    blank = dict.fromkeys(rows[0], "")
    return rows + [blank | {"": name, "IQM": number(value)} for name, value in references(groups)]


def number(value: float) -> str:
    """Format a score with three decimals, or with one when it is large."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}".replace(",", " ")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", " ")


def _range(interval: Interval | None, form: Callable[[float], str], between: str = " to ") -> str:
    return "–" if interval is None else f"{form(interval.low)}{between}{form(interval.high)}"
