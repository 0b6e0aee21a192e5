"""Charts of a comparison as inline SVG: learning curves, and final scores with their intervals.

Colours are CSS variables of the page (``--c0`` ... ``--c7``, ``--ink``, ``--faint``), so that one chart serves light
and dark.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from recollect.comparison.compare import Group

COLOURS = 8
"""Colours before they come again."""
AXIS_TITLES = {"step": "optimiser steps", "environment_steps": "environment steps", "seconds": "seconds"}


class Frame(NamedTuple):
    """A rectangle of pixels, and the numbers at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        """Pixel of a number on the horizontal axis."""
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Pixel of a number on the vertical axis."""
        return self.bottom - (value - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top)


def curves_svg(groups: Sequence[Group], axis: str) -> str:
    """Learning curves of the groups of one task: middle and interval of each, single runs as thin lines."""
    tracks = [run.points(axis) for group in groups for run in group.runs]
    end = max(float(at[-1]) for at, _ in tracks)
    low, high = score_range(groups, [score for _, score in tracks])
    frame = Frame(52, 640, 14, 300, 0.0, end or 1.0, low, high)
    parts = [_grid(frame), _references(frame, groups)]
    for index, group in enumerate(groups):
        colour = colour_of(index)
        drawn = []
        for run in group.runs:
            at, score = run.points(axis)
            title = f"<title>{escape(f'{group.label}, seed {run.seed}')}</title>"
            drawn.append(_track(frame, "run", at, score, title))
        if group.curve is not None:
            at, middle, low_end, high_end = group.curve
            if low_end is not None and high_end is not None:
                outline = f"{_points(frame, at, high_end)} {_points(frame, at[::-1], low_end[::-1])}"
                drawn.append(f'<polygon class="band" points="{outline}"/>')
            drawn.append(_track(frame, "middle", at, middle))
        parts.append(f'<g style="--c:{colour}">{"".join(drawn)}</g>')
    middle_x = (frame.left + frame.right) / 2
    parts.append(f'<text x="{middle_x:.0f}" y="342" class="title">{escape(AXIS_TITLES.get(axis, axis))}</text>')
    name = escape(f"Learning curves, score by {AXIS_TITLES.get(axis, axis)}")
    return f'<svg viewBox="0 0 700 350" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def scores_svg(groups: Sequence[Group]) -> str:
    """Final scores of the groups of one task: a dot per run, a bar for their interquartile mean."""
    height = 34 * len(groups)
    low, high = score_range(groups, [group.scores for group in groups])
    left = 24 + min(7 * max(len(group.label) for group in groups), 240)
    frame = Frame(left, 640, 8, 8 + height, low, high, 0.0, 1.0)
    parts = [_upright_grid(frame), _references(frame, groups, upright=True)]
    for index, group in enumerate(groups):
        y = frame.top + 34 * index + 17
        label = group.label if len(group.label) <= 36 else f"{group.label[:35]}…"
        drawn = [f'<text class="end" x="{frame.left - 12}" y="{y + 4}">{escape(label)}</text>']
        if group.interval is not None:
            start, stop = (frame.x(value) for value in group.interval)
            drawn.append(f'<line class="interval" x1="{start:.1f}" x2="{stop:.1f}" y1="{y}" y2="{y}"/>')
        for run in group.runs:
            title = f"<title>{escape(f'{group.label}, seed {run.seed}: {run.score:.4g}')}</title>"
            drawn.append(f'<circle class="dot" cx="{frame.x(run.score):.1f}" cy="{y}" r="4">{title}</circle>')
        x = frame.x(group.score)
        drawn.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 10}" y2="{y + 10}"/>')
        parts.append(f'<g style="--c:{colour_of(index)}">{"".join(drawn)}</g>')
    name = "Final scores with intervals"
    return f'<svg viewBox="0 0 700 {height + 36}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def colour_of(index: int) -> str:
    """CSS colour of the group with this number in its task."""
    return f"var(--c{index % COLOURS})"


def references(groups: Sequence[Group]) -> list[tuple[str, float]]:
    """Chance and oracle of a task, where they are known."""
    run = groups[0].runs[0]
    return [(name, value) for name, value in (("chance", run.chance), ("oracle", run.oracle)) if value is not None]


def score_range(groups: Sequence[Group], scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """A range that holds scores, chance and oracle, with a little air."""
    values = np.concatenate([*scores, [value for _, value in references(groups)]])
    low, high = float(values.min()), float(values.max())
    air = 0.06 * (high - low) or 0.1
    return low - air, high + air


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two numbers: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step + 0.0 for index in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number for a tick: 0.25, 1 500, 20k, 3M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 10 * size or (abs(value) >= size and value % size == 0):
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _grid(frame: Frame) -> str:
    parts = []
    for value in ticks(frame.y0, frame.y1):
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{frame.left}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{frame.left - 8}" y="{y + 4:.1f}">{short(value)}</text>')
    for value in ticks(frame.x0, frame.x1, 6):
        x = frame.x(value)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 19}">{short(value)}</text>')
    return "".join(parts)


def _upright_grid(frame: Frame) -> str:
    parts = []
    for value in ticks(frame.x0, frame.x1, 7):
        x = frame.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 19}">{short(value)}</text>')
    return "".join(parts)


def _references(frame: Frame, groups: Sequence[Group], *, upright: bool = False) -> str:
    parts = []
    for name, value in references(groups):
        if upright:
            x = frame.x(value)
            parts.append(f'<line class="known" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.bottom}"/>')
        else:
            y = frame.y(value)
            parts.append(f'<line class="known" x1="{frame.left}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick start" x="{frame.right + 6}" y="{y + 4:.1f}">{name}</text>')
    return "".join(parts)


def _track(frame: Frame, kind: str, at: np.ndarray, values: np.ndarray, title: str = "") -> str:
    """A line; where there is one point only, which no line shows, a dot."""
    if len(at) == 1:
        x, y = frame.x(float(at[0])), frame.y(float(values[0]))
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    return f'<polyline class="{kind}" points="{_points(frame, at, values)}">{title}</polyline>'


def _points(frame: Frame, at: np.ndarray, values: np.ndarray) -> str:
    return " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(at.tolist(), values.tolist(), strict=True))
