"""What commands print: tables, JSON, and notes beside the result."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class PrintOptions:
    """How results are printed."""

    json: bool = False
    """Print JSON."""


def print_status(line: str, style: str | None = None) -> None:
    """A line on the error stream, so that what a command prints stays clean."""
    Console(stderr=True).print(line, style=style, highlight=False, soft_wrap=True, markup=False)


def print_json(data: Any, indent: int | None = 2) -> None:
    """JSON on the output; NaN and infinity, which JSON does not know, become null."""
    # At once, also into a pipe: who watches reads what is told when it happens.
    print(json.dumps(_finite(data), indent=indent, allow_nan=False), flush=True)


def table(
    title: str, rows: Sequence[Mapping[str, Any]], *, figures: bool = False, prose: Collection[str] | None = None
) -> Table:
    """A table of rows with the same keys.

    Args:
        title: stands above it.
        rows: cells by the names of their columns.
        figures: every column but the first is right-aligned, and no cell is broken into lines.
        prose: the only columns whose cells may be broken; None: all but the first where there are no ``figures``.
    """
    look: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": None}
    made = Table(title=Text(title), padding=(0, 1 if figures else 2, 0, 0), **look)
    for place, (name, cell) in enumerate(rows[0].items() if rows else ()):
        right = place > 0 if figures else isinstance(cell, (int, float))
        justify = "right" if right else "left"
        # Where a terminal is narrow the names of columns are broken into lines, and figures are not.
        whole = figures if prose is None else name not in prose
        words = name.split() if prose is not None else []
        longest = max([*(len(_text(row[name])) for row in rows), *map(len, words)]) if whole else None
        fixed = name == "key" or (prose is not None and longest is not None and len(name) <= longest)
        made.add_column(Text(name), justify=justify, no_wrap=fixed, overflow="fold", min_width=longest)
    for row in rows:
        made.add_row(*(Text(_text(cell)) for cell in row.values()))
    return made


def _text(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else f"{cell}"


def two_columns(commands: Mapping[str, str]) -> Table:
    """Commands and what they do."""
    made = Table(box=None, show_header=False, padding=(0, 2))
    for _ in range(2):
        made.add_column(overflow="fold")  # where a terminal is narrow, choices of a flag are broken and not cut off
    for name, about in commands.items():
        made.add_row(f"[bold]{escape(name)}[/]", escape(about))
    return made


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
