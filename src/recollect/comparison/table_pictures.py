"""Pictures of tables for the docs, by matplotlib: heat maps, performance profiles, and scores by level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recollect.comparison.plots import figure_svg
from recollect.machine import require_matplotlib

PALE, DEEP = (243 / 255, 246 / 255, 250 / 255), (8 / 255, 81 / 255, 156 / 255)
"""Colours of 0 and 1."""
INK, SOFT, ORANGE = "#1b1f24", "#5b6470", "#b8460a"
COLOURS = ("#0b6bcb", "#d1540a", "#0f8a5f", "#a43aa0", "#b58900", "#c2255c", "#3c3f9e")
"""Colours of the best methods of a profile; the others are grey and dashed, and share an entry of the legend."""
GREY, DASHED = "#9aa3ad", (0, (5, 3))
WIDE_PAGE = ("---", "hide: [toc]", "---", "")
"""First lines of a Markdown page that leaves its pictures more room."""
MANY = 16
"""Number of columns from which cells are narrow."""


class Cell(NamedTuple):
    """One number of a heat map."""

    value: float | None
    """From 0 to 1, which sets its colour (clipped); None for no number."""
    text: str
    bold: bool = False
    """Among the best of its column."""
    marked: bool = False
    """Framed; the caption has the reason."""


class Bar(NamedTuple):
    """A number at the end of a row, from 0 to 1, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Content of a heat map."""

    title: str
    rows: Sequence[str]
    """Names of the rows."""
    columns: Sequence[str]
    """Names of the columns."""
    cells: Sequence[Sequence[Cell]]
    """Cells by row and column."""
    notes: Sequence[str] = ()
    """Small text after each row's name, as its size."""
    feet: Sequence[str] = ()
    """Small text under each column, as its lag."""
    foot: str = ""
    """Heading of the feet."""
    orange: Sequence[int] = ()
    """Columns with highlighted feet; the caption has the reason."""
    groups: Sequence[tuple[str, int]] = ()
    """Headings over several columns each, with their number of columns."""
    bars: Sequence[Bar | None] = ()
    """At the end of each row; empty for none."""
    bar: str = ""
    """Heading of the bars."""
    caption: Sequence[str] = ()
    """Lines under the picture."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Scores of one measure by level."""

    title: str
    levels: Sequence[str]
    """Labels of the levels, at equal distances."""
    trained: int
    """Number of levels that are no harder than those of training; the others are shaded."""
    score: Sequence[float]
    """Scores of the subject, from 0 to 1."""
    low: Sequence[float]
    high: Sequence[float]
    """Ends of its intervals."""
    others: Sequence[Sequence[float]] = ()
    """Scores of others, in grey."""
    chance: float


def colour(value: float) -> tuple[float, float, float]:
    """Return the RGB colour of a number from 0 to 1."""
    share = min(max(value, 0.0), 1.0)
    red, green, blue = (low + (high - low) * share for low, high in zip(PALE, DEEP, strict=True))
    return red, green, blue


def needs_white_text(background: Sequence[float]) -> bool:
    """Tell whether white text has more contrast (WCAG 2.1) on an RGB colour of numbers from 0 to 1 than ``INK``."""
    ink = [int(INK[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return 1.05 / (_luminance(background) + 0.05) > (_luminance(background) + 0.05) / (_luminance(ink) + 0.05)


def _luminance(rgb: Sequence[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def heat_map_svg(shown: HeatMap) -> str:
    """Return a heat map as SVG."""
    width, tail = (0.62 if len(shown.columns) < MANY else 0.42), (2.4 if shown.bars else 0.5)
    left = 0.35 + 0.088 * max(map(len, shown.rows)) + 0.07 * max(map(len, shown.notes), default=0)
    top = 0.55 + 0.3 * bool(shown.groups) + 0.2 + 0.05 * max(map(len, shown.columns))
    below = 0.35 + 0.22 * (len(shown.caption) + bool(shown.feet))
    across, down = width * len(shown.columns), 0.36 * len(shown.rows)
    across_all = max(left + across + tail, 0.35 + 0.068 * max([len(shown.title) * 1.5, *map(len, shown.caption)]))
    figure, axes = _figure(across_all, top + down + below, (left, below, across, down))
    axes.set(xlim=(0, len(shown.columns)), ylim=(len(shown.rows), 0))
    axes.axis("off")
    inch_x, inch_y = 1 / width, 1 / 0.36
    axes.text(-left * inch_x + 0.2, -(top - 0.3) * inch_y, shown.title, fontsize=13, fontweight="bold")
    for column, name in enumerate(shown.columns):
        axes.text(column + 0.5, -0.15, name, rotation=38, rotation_mode="anchor", fontsize=9.5)
    for row, name in enumerate(shown.rows):
        axes.text(-left * inch_x + 0.2, row + 0.5, name, va="center")
        if shown.notes:
            axes.text(-0.15, row + 0.5, shown.notes[row], va="center", ha="right", color=SOFT, fontsize=8.5)
        for column, cell in enumerate(shown.cells[row]):
            _draw_cell(axes, column, row, cell)
        bar = shown.bars[row] if shown.bars else None
        if bar is not None:
            _draw_bar(axes, len(shown.columns) + 0.2 * inch_x, row, bar, 1.4 * inch_x)
    if shown.bars:
        axes.text(len(shown.columns) + 0.2 * inch_x, -0.25, shown.bar, color=SOFT, fontsize=8.5)
    start = 0
    for place, (name, number) in enumerate(shown.groups):
        axes.text(start + 0.05, -(top - 0.65) * inch_y, name, fontweight="bold")
        if place:
            # Beside the heading and along the cells; between them it would cross the names of columns.
            for ends in ((-(top - 0.5) * inch_y, -(top - 0.75) * inch_y), (0, len(shown.rows))):
                axes.plot([start, start], ends, color=GREY, linewidth=1, clip_on=False)
        start += number
    foot = len(shown.rows) + 0.5
    axes.text(-0.15, foot, shown.foot, color=SOFT, fontsize=8.5, ha="right", va="center")
    for column, text in enumerate(shown.feet):
        marked = column in shown.orange
        weight, shade = ("bold", ORANGE) if marked else ("normal", SOFT)
        axes.text(column + 0.5, foot, text, color=shade, fontweight=weight, fontsize=8.5, ha="center", va="center")
    for number, line in enumerate(shown.caption):
        axes.text(
            -left * inch_x + 0.2,
            foot + (0.22 * (number + bool(shown.feet))) * inch_y,
            line,
            color=SOFT,
            fontsize=8.5,
            va="center",
        )
    return figure_svg(figure)


def profile_svg(title: str, thresholds: np.ndarray, curves: Mapping[str, np.ndarray]) -> str:
    """Return a performance profile as SVG (Agarwal et al. 2021): the share of runs above each score.

    Args:
        title: heading.
        thresholds: scores from 0 to 1, ``[n]``.
        curves: share of runs above each, ``[n]`` by method.
    """
    figure, axes = _figure(9.6, 5.2, (0.8, 0.75, 6.0, 3.9))
    for place, name in enumerate(sorted(curves, key=lambda name: -float(curves[name].mean()))):
        look = (
            {"color": COLOURS[place], "label": name} if place < len(COLOURS) else {"color": GREY, "linestyle": DASHED}
        )
        if place == len(COLOURS):
            look["label"] = f"{len(curves) - place} others"
        axes.plot(100 * thresholds, 100 * curves[name], linewidth=2, **look)
    axes.set(xlim=(0, 100), ylim=(0, 102), xlabel="... per cent of the way from chance to the oracle")
    axes.set_ylabel("runs, %")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, fontsize=9)
    _tidy(axes)
    return figure_svg(figure)


def level_curves_svg(panels: Sequence[Panel]) -> str:
    """Return scores by level as SVG, two panels in a line."""
    down = -(-len(panels) // 2)
    figure = require_matplotlib().figure.Figure(figsize=(8.6, 2.6 * down), layout="constrained")
    spaces = figure.subplots(down, min(2, len(panels)), squeeze=False).ravel()
    for axes, panel in zip(spaces, panels, strict=False):
        at = np.arange(len(panel.levels))
        axes.axvspan(panel.trained - 0.5, len(at) - 0.5, color="#f3f5f7", linewidth=0)
        for other in panel.others:
            axes.plot(at, other, color="#c3c9d1", linewidth=1.2)
        axes.axhline(panel.chance, color=SOFT, linewidth=1, linestyle=(0, (5, 4)))
        axes.fill_between(at, panel.low, panel.high, color=COLOURS[0], alpha=0.18, linewidth=0)
        axes.plot(at, panel.score, "o-", color=COLOURS[0], linewidth=2.2, markersize=4.5)
        axes.set(xlim=(-0.5, len(at) - 0.5), ylim=(0, 1.03))
        axes.set_xticks(at, panel.levels)
        axes.set_yticks((0, 0.5, 1))
        axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
        _tidy(axes)
    for axes in spaces[len(panels) :]:
        axes.axis("off")
    return figure_svg(figure)


def _draw_cell(axes: Any, column: int, row: int, cell: Cell) -> None:
    patches = require_matplotlib().patches
    look: dict[str, Any] = {"facecolor": "white", "edgecolor": "#d5d9de", "linestyle": (0, (3, 3)), "linewidth": 0.8}
    if cell.value is not None:
        look = {"facecolor": colour(cell.value), "linewidth": 0}
    axes.add_patch(patches.Rectangle((column + 0.02, row + 0.03), 0.96, 0.94, **look))
    if cell.marked:
        axes.add_patch(
            patches.Rectangle((column + 0.05, row + 0.08), 0.9, 0.84, fill=False, edgecolor=COLOURS[1], linewidth=2)
        )
    light = cell.value is not None and needs_white_text(colour(cell.value))
    shade = "white" if light else SOFT if cell.value is None else INK
    size, weight = (8.5 if cell.value is None else 10), ("bold" if cell.bold else "normal")
    axes.text(
        column + 0.5, row + 0.52, cell.text, ha="center", va="center", color=shade, fontsize=size, fontweight=weight
    )


def _draw_bar(axes: Any, x: float, row: int, bar: Bar, length: float) -> None:
    value, low, high = (length * min(max(number, 0.0), 1.0) for number in bar)
    axes.barh(row + 0.5, value, 0.45, left=x, color="#08519c", clip_on=False)
    axes.plot([x + low, x + high], [row + 0.5] * 2, color=INK, linewidth=1.6, clip_on=False)
    axes.text(x + length * 1.08, row + 0.5, f"{100 * bar.value:z.0f}", va="center")


def _figure(width: float, height: float, place: tuple[float, float, float, float]) -> tuple[Any, Any]:
    """Return a figure of a size in inches, with axes at left, bottom, width, height in inches."""
    figure = require_matplotlib().figure.Figure(figsize=(width, height))
    left, bottom, across, down = place
    return figure, figure.add_axes((left / width, bottom / height, across / width, down / height))


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e7ea", linewidth=0.8)
    axes.set_axisbelow(True)
