"""A table as a picture: a coloured cell for every number, a reason where there is none, a bar at the end of a row.

The SVG needs nothing else (it is shown as an image, on light and dark pages), and is written by hand: matplotlib is not
in the core install.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

WIDE, NARROW, ROW = 52, 34, 30
"""Widths of a cell, with few columns and with many, and its height."""
MANY = 16
"""Columns from which cells are narrow."""
PALE, DEEP = (243, 246, 250), (8, 81, 156)
"""Colours of 0 and 1."""
WIDE_PAGE = ("---", "hide: [toc]", "---", "")
"""First lines of a page in Markdown that leaves its pictures more room."""
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1b1f24; font-variant-numeric: tabular-nums; }
.soft { fill: #5b6470; font-size: 11.5px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.title { font-size: 16px; font-weight: 650; } .bold { font-weight: 750; } .light { fill: #fff; }
.none { fill: #fff; stroke: #d5d9de; stroke-dasharray: 3 3; } .bar { fill: #08519c; } .spread { stroke: #1b1f24; }
.group { stroke: #9aa3ad; } .orange { fill: #b8460a; font-weight: 700; }
.edge { fill: none; stroke: #d1540a; stroke-width: 2.4; }
"""


class Cell(NamedTuple):
    """One number of a heat map, or the reason why there is none."""

    value: float | None
    """From 0 to 1, which is its colour (more is cut off); None where there is no number."""
    text: str
    """What stands in it."""
    title: str
    """What it says to a mouse that rests on it."""
    bold: bool = False
    """Among the best of its column."""
    marked: bool = False
    """Framed: the caption says what for."""


class Bar(NamedTuple):
    """A number at the end of a row, from 0 to 1, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """What a picture shows."""

    title: str
    """Above everything."""
    rows: Sequence[str]
    """Names of the rows."""
    columns: Sequence[str]
    """Names of the columns, written aslant."""
    cells: Sequence[Sequence[Cell]]
    """By row and column."""
    notes: Sequence[str] = ()
    """Something small behind each row's name, for example its size."""
    feet: Sequence[str] = ()
    """Something small under each column, for example its lag."""
    foot: str = ""
    """What the feet are."""
    orange: Sequence[int] = ()
    """Columns whose feet stand out; the caption says why."""
    groups: Sequence[tuple[str, int]] = ()
    """Headings over several columns each, with their number; a line stands between them."""
    bars: Sequence[Bar | None] = ()
    """At the end of each row; empty for none."""
    bar: str = ""
    """What the bars are."""
    caption: Sequence[str] = ()
    """Lines under the picture."""

    @property
    def cell(self) -> int:
        """Width of a cell."""
        return WIDE if len(self.columns) < MANY else NARROW


def heat_map_svg(shown: HeatMap) -> str:
    """The picture."""
    left = 16 + max(7.4 * max(map(len, shown.rows)), 90) + 6.4 * max(map(len, shown.notes), default=0)
    longest = max(map(len, shown.columns))
    slant = longest * 4.6 + 18 if longest else 0
    top = 44 + (26 if shown.groups else 0) + slant
    right = left + shown.cell * len(shown.columns)
    bottom = top + ROW * len(shown.rows)
    ends = [shown.cell * (place + 0.5) + 6.2 * len(name) for place, name in enumerate(shown.columns)]
    tail = max(14 + max(176.0, 6.4 * len(shown.bar)) if shown.bars else 16.0, left + max(ends) - right)
    end = bottom + (24 if shown.feet else 6) + 18 * len(shown.caption) + 10
    lines = [9.4 * len(shown.title), *(6.0 * len(line) for line in shown.caption)]
    width = max(right + tail, max(lines) + 32)
    parts = [
        f'<rect width="{width:.0f}" height="{end:.0f}" fill="#fff" rx="8"/>',
        f'<text class="title" x="16" y="28">{escape(shown.title)}</text>',
        _heads(shown, left, top),
        *(_row(shown, number, left, top + ROW * number) for number in range(len(shown.rows))),
        _groups(shown, left, bottom),
        _feet(shown, left, bottom),
    ]
    if shown.bars:
        parts.append(f'<text class="soft" x="{right + 14}" y="{top - 10}">{escape(shown.bar)}</text>')
    below = bottom + (24 if shown.feet else 6)
    for number, line in enumerate(shown.caption):
        parts.append(f'<text class="soft" x="16" y="{below + 18 * number + 16:.0f}">{escape(line)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {end:.0f}" width="{width:.0f}" '
        f'height="{end:.0f}" role="img" aria-label="{escape(shown.title)}"><style>{STYLE}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def _heads(shown: HeatMap, left: float, top: float) -> str:
    parts = []
    for number, name in enumerate(shown.columns):
        x, y = left + shown.cell * (number + 0.5), top - 8
        parts.append(f'<text transform="translate({x:.0f} {y:.0f}) rotate(-38)">{escape(name)}</text>')
    return "".join(parts)


def _row(shown: HeatMap, number: int, left: float, y: float) -> str:
    middle = y + ROW / 2 + 4.5
    note = shown.notes[number] if shown.notes else ""
    parts = [f'<text x="16" y="{middle}">{escape(shown.rows[number])}</text>']
    parts.append(f'<text class="soft end" x="{left - 10:.0f}" y="{middle}">{escape(note)}</text>')
    for column, cell in enumerate(shown.cells[number]):
        x = left + shown.cell * column
        box = f'x="{x + 1:.0f}" y="{y + 1:.0f}" width="{shown.cell - 2}" height="{ROW - 2}" rx="3"'
        fill = 'class="none"' if cell.value is None else f'fill="{colour(cell.value)}"'
        kind = "middle" + (" bold" if cell.bold else "") + (" soft" if cell.value is None else "")
        kind += " light" if cell.value is not None and cell.value > LIGHT_TEXT else ""
        frame = ""
        if cell.marked:
            inner = f'x="{x + 2.5:.1f}" y="{y + 2.5:.1f}" width="{shown.cell - 5}" height="{ROW - 5}" rx="3"'
            frame = f'<rect class="edge" {inner}/>'
        parts.append(
            f"<g><title>{escape(cell.title)}</title><rect {box} {fill}/>{frame}"
            f'<text class="{kind}" x="{x + shown.cell / 2:.0f}" y="{middle}">{escape(cell.text)}</text></g>'
        )
    bar = shown.bars[number] if shown.bars else None
    if bar is not None:
        x = left + shown.cell * len(shown.columns) + 14
        parts.append(_bar(bar, x, y))
    return "".join(parts)


LIGHT_TEXT = 0.55
"""Value from which text is white."""
BAR = 110


def _bar(bar: Bar, x: float, y: float) -> str:
    value, low, high = (BAR * min(max(number, 0.0), 1.0) for number in bar)
    line = y + ROW / 2
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y + 8}" width="{value:.1f}" height="{ROW - 16}" rx="2"/>'
        f'<line class="spread" x1="{x + low:.1f}" x2="{x + high:.1f}" y1="{line}" y2="{line}" stroke-width="2"/>'
        f'<text x="{x + BAR + 12}" y="{line + 4.5}">{100 * bar.value:z.0f}</text>'
    )


def _groups(shown: HeatMap, left: float, bottom: float) -> str:
    parts, column = [], 0
    for place, (name, number) in enumerate(shown.groups):
        x = left + shown.cell * column
        parts.append(f'<text class="bold" x="{x + 4:.0f}" y="58">{escape(name)}</text>')
        if place:
            parts.append(f'<line class="group" x1="{x:.0f}" x2="{x:.0f}" y1="46" y2="{bottom:.0f}"/>')
        column += number
    return "".join(parts)


def _feet(shown: HeatMap, left: float, bottom: float) -> str:
    if not shown.feet:
        return ""
    parts = [f'<text class="soft end" x="{left - 10:.0f}" y="{bottom + 18:.0f}">{escape(shown.foot)}</text>']
    for column, text in enumerate(shown.feet):
        x = left + shown.cell * (column + 0.5)
        kind = "soft middle" + (" orange" if column in shown.orange else "")
        parts.append(f'<text class="{kind}" x="{x:.0f}" y="{bottom + 18:.0f}">{escape(text)}</text>')
    return "".join(parts)


def colour(value: float) -> str:
    """The colour of a number from 0 to 1."""
    share = min(max(value, 0.0), 1.0)
    return "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in zip(PALE, DEEP, strict=True))
