"""Charts of a comparison, by matplotlib: learning curves, and final scores with their intervals.

The same two panels are drawn into the PNG and, as inline SVG, into the page, where the colours are the page's CSS
variables, so that one chart serves light and dark.
"""

import io
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recollect.comparison.compare import Comparison, Group
from recollect.comparison.style import LIGHT
from recollect.machine import require_matplotlib

AXIS_TITLES = {"step": "optimiser steps", "environment_steps": "environment steps", "seconds": "seconds"}
INK, GRID = "#1b1f25", "#e5e7eb"
"""Colours of text and grid, which the page replaces by its own."""
SVG = {"svg.fonttype": "none", "svg.hashsalt": "recollect", "font.family": "sans-serif", "font.size": 10}


def has_matplotlib() -> bool:
    """Return whether matplotlib, the extra ``plots``, is installed."""
    return find_spec("matplotlib") is not None


def save_picture(comparison: Comparison, target: Path) -> None:
    """Draw all tasks of a comparison into a PNG file."""
    tasks = comparison.tasks
    figure = require_matplotlib().figure.Figure(figsize=(11, 3.9 * len(tasks)), dpi=150, layout="constrained")
    panels = figure.subplots(len(tasks), 2, squeeze=False, width_ratios=(1.5, 1))
    for (left, right), task in zip(panels, tasks, strict=True):
        groups = comparison.of(task)
        draw_curves(left, groups, comparison.axis)
        draw_scores(right, groups)
        left.set_title(_plain(task))
        left.legend(loc="best", fontsize=9, edgecolor="none", framealpha=0.9)
        right.set_title("final score, IQM and 95 % interval")
    figure.savefig(target, format="png")


def curves_svg(groups: Sequence[Group], axis: str) -> str:
    """Return the learning curves of one task as SVG for the page."""
    figure = require_matplotlib().figure.Figure(figsize=(8.4, 4.2), layout="constrained")
    draw_curves(figure.subplots(), groups, axis)
    return _inline_svg(figure, f"Learning curves, score by {AXIS_TITLES.get(axis, axis)}")


def scores_svg(groups: Sequence[Group]) -> str:
    """Return the final scores of one task as SVG for the page."""
    figure = require_matplotlib().figure.Figure(figsize=(8.4, 0.7 + 0.42 * len(groups)), layout="constrained")
    draw_scores(figure.subplots(), groups)
    return _inline_svg(figure, "Final scores with intervals")


def draw_curves(axes: Any, groups: Sequence[Group], axis: str) -> None:
    """Draw the middle and the interval of each group, and its runs as thin lines.

    Args:
        axes: of matplotlib.
        groups: of one task.
        axis: step, environment_steps or seconds.
    """
    for index, group in enumerate(groups):
        colour = LIGHT[index % len(LIGHT)]
        for run in group.runs:
            at, score = run.points(axis)
            form = "o" if len(at) == 1 else "-"  # a line does not show a single point
            axes.plot(at, score, form, color=colour, linewidth=0.7, alpha=0.35, markersize=5)
        if group.curve is not None:
            at, middle, low, high = group.curve
            form = "o-" if len(at) == 1 else "-"
            axes.plot(at, middle, form, color=colour, linewidth=2.2, label=_plain(group.label))
            if low is not None and high is not None:
                axes.fill_between(at, low, high, color=colour, alpha=0.16, linewidth=0)
    for name, value in references(groups):
        axes.axhline(value, color="0.5", linewidth=1, linestyle=(0, (4, 3)))
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        axes.annotate(name, (1, value), (4, 0), color="0.4", fontsize=9, **place)
    axes.set(xlabel=AXIS_TITLES.get(axis, axis), ylabel="score", ylim=_score_range(groups, axis))
    axes.set_xlim(left=0)
    _tidy(axes)


def draw_scores(axes: Any, groups: Sequence[Group]) -> None:
    """Draw a dot per run, a mark for the interquartile mean of each group, and a bar for its interval."""
    for index, group in enumerate(groups):
        colour = LIGHT[index % len(LIGHT)]
        if group.interval is not None:
            axes.plot(group.interval, [index, index], color=colour, linewidth=6, alpha=0.3, solid_capstyle="round")
        axes.plot(group.scores, [index] * len(group.runs), "o", color=colour, markersize=5, alpha=0.7)
        axes.plot([group.score] * 2, [index - 0.28, index + 0.28], color=colour, linewidth=2.5)
    for _, value in references(groups):
        axes.axvline(value, color="0.5", linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=_score_range(groups), ylim=(len(groups) - 0.5, -0.5))
    axes.set_yticks(range(len(groups)), [_plain(group.label) for group in groups])
    _tidy(axes)


def figure_svg(figure: Any) -> str:
    """Return a figure as SVG whose text is text, the same bytes every time."""
    content = io.StringIO()
    with require_matplotlib().rc_context(SVG):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return content.getvalue()


def references(groups: Sequence[Group]) -> list[tuple[str, float]]:
    """Return chance and oracle of a task, where they are known."""
    run = groups[0].runs[0]
    return [(name, value) for name, value in (("chance", run.chance), ("oracle", run.oracle)) if value is not None]


def _score_range(groups: Sequence[Group], axis: str | None = None) -> tuple[float, float]:
    scores = [run.points(axis)[1] for group in groups for run in group.runs] if axis else [g.scores for g in groups]
    values = np.concatenate([*scores, [value for _, value in references(groups)]])
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _plain(text: str) -> str:
    """Escape a name for matplotlib: dollars begin mathematics, and a first underscore hides it from the legend."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def _inline_svg(figure: Any, label: str) -> str:
    """Return a figure as an SVG element with CSS variables in place of its colours."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    svg = figure_svg(figure)
    svg = re.sub(r"<metadata>.*?</metadata>| xmlns(:xlink)?=\"[^\"]*\"", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href").replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    for colour, variable in (
        *((c, f"var(--c{i})") for i, c in enumerate(LIGHT)),
        (INK, "var(--ink)"),
        (GRID, "var(--faint)"),
    ):
        svg = svg.replace(colour, variable)
    return svg
