"""The figure of README and home: how far some memories get in every task of the memory suite, light and dark."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, cos, radians, sin

import source_tree  # noqa: F401
from recollect.comparison.table_pictures import INK, Cell, needs_white_text
from recollect.recipes import RECIPES
from recollect.recipes.memory_suite import memory_suite_table
from recollect.recipes.reproduce import with_memory_requirements
from report_tables import ROOT, read_runs

Colour = tuple[int, int, int]
ASSETS = ROOT / "docs" / "assets"
SHOWN = {
    "hcam": "chunks: hcam",
    "transformer-xl (full window)": "all steps: transformer-xl",
    "long-short-transformer": "landmarks: long-short",
    "gru": "a vector: gru",
    "lstm": "a vector: lstm",
    "tlb": "slots: tlb",
    "transformer-xl": "window: transformer-xl",
    "ttm": "slots: ttm",
    "memoryless": "none",
}
"""Rows of the memory suite, and what they remember."""
THEMES: dict[str, tuple[Colour, ...]] = {
    "light": ((255, 255, 255), (31, 35, 40), (47, 111, 214)),
    "dark": ((13, 17, 23), (230, 237, 243), (47, 111, 214)),
}
"""Paper, ink and full score."""
LEFT, CELL, HIGH = 206, 48, 34
SIZE, ADVANCE = 16, 10
"""Size of the text, and the most that a letter of it takes on average in any common sans-serif font."""
SLOPE = 60
"""Degrees by which the names of columns rise."""


def draw_pays() -> None:
    """Write both figures."""
    suite = memory_suite_table(with_memory_requirements(RECIPES["memory-suite"], "lite", read_runs("memory-suite")))
    found = suite.heat_map()
    cells = dict(zip(found.rows, found.cells, strict=True))
    for name, theme in THEMES.items():
        (ASSETS / f"pays-{name}.svg").write_text(_picture(found.columns, found.feet, cells, theme))


def _picture(
    columns: Sequence[str], feet: Sequence[str], cells: Mapping[str, Sequence[Cell]], theme: tuple[Colour, ...]
) -> str:
    paper, ink, full = theme
    longest, rise, run = ADVANCE * max(map(len, columns)), sin(radians(SLOPE)), cos(radians(SLOPE))
    top = ceil(longest * rise + SIZE * run) + 16
    ends = [LEFT + (place + 0.5) * CELL + ADVANCE * len(title) * run for place, title in enumerate(columns)]
    width, height = ceil(max(LEFT + CELL * len(columns), *ends)) + 8, top + HIGH * (len(SHOWN) + 1) + 8
    parts = [f'<rect width="{width}" height="{height}" fill="{_rgb(paper)}"/>']
    for place, (title, lag) in enumerate(zip(columns, feet, strict=True)):
        x = LEFT + place * CELL + CELL / 2
        parts.append(f'<text transform="translate({x + 5:g} {top - 10}) rotate(-{SLOPE})">{escape(title)}</text>')
        parts.append(f'<text x="{x:g}" y="{top + HIGH * len(SHOWN) + 24}" text-anchor="middle">{escape(lag)}</text>')
    parts.append(f'<text x="{LEFT - 10}" y="{top + HIGH * len(SHOWN) + 24}" text-anchor="end">steps between</text>')
    for line, (row, what) in enumerate(SHOWN.items()):
        y = top + line * HIGH
        parts.append(f'<text x="{LEFT - 10}" y="{y + 22}" text-anchor="end">{escape(what)}</text>')
        for place, cell in enumerate(cells[row]):
            share = 0.0 if cell.value is None else min(max(cell.value, 0.0), 1.0)
            x, colour = LEFT + place * CELL, [round(a + (b - a) * share) for a, b in zip(paper, full, strict=True)]
            text = "#ffffff" if needs_white_text([part / 255 for part in colour]) else INK
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{HIGH - 2}" rx="3" fill="{_rgb(colour)}"/>'
            )
            parts.append(
                f'<text x="{x + CELL / 2:g}" y="{y + 22}" text-anchor="middle" fill="{text}">{escape(cell.text)}</text>'
            )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="{SIZE}" fill="{_rgb(ink)}">\n{body}\n</svg>\n'
    )


def _rgb(colour: Iterable[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
