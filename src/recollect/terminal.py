"""Output of commands: tables, JSON, and status lines on the error stream."""

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
    """Format of printed results."""

    json: bool = False
    """Print JSON."""


def print_status(line: str, style: str | None = None) -> None:
    """Print a line on the error stream, apart from the command's result."""
    Console(stderr=True, emoji=False).print(line, style=style, highlight=False, soft_wrap=True, markup=False)


def print_json(data: Any, indent: int | None = 2) -> None:
    """Print JSON; NaN and infinity, which JSON does not have, become null."""
    # Flushed, so that a reader at the other end of a pipe gets each event when it happens.
    print(json.dumps(_finite(data), indent=indent, allow_nan=False), flush=True)


def table(
    title: str, rows: Sequence[Mapping[str, Any]], *, figures: bool = False, prose: Collection[str] | None = None
) -> Table:
    """Return a table of rows with the same keys.

    Args:
        title: heading.
        rows: cells by the names of their columns.
        figures: right-align every column but the first, and break no cell of these into lines.
        prose: the only columns whose cells may be broken; None: all but the first, unless ``figures``.
    """
    look: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": None}
    made = Table(title=Text(title), padding=(0, 1 if figures else 2, 0, 0), **look)
    for place, (name, cell) in enumerate(rows[0].items() if rows else ()):
        right = place > 0 if figures else isinstance(cell, (int, float))
        justify = "right" if right else "left"
        # In a narrow terminal the names of columns are broken into lines, and figures are not.
        whole = figures and place > 0 if prose is None else name not in prose
        words = name.split() if prose is not None else []
        longest = max([*(len(_text(row[name])) for row in rows), *map(len, words)]) if whole else None
        fixed = name == "key" or (prose is not None and longest is not None and len(name) <= longest)
        made.add_column(Text(name), justify=justify, no_wrap=fixed, overflow="fold", min_width=longest)
    for row in rows:
        made.add_row(*(Text(_text(cell)) for cell in row.values()))
    return made


def print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]], *, figures: bool = False) -> None:
    """Print a table; columns that do not fit the width follow in further tables, which repeat the first column.

    Args:
        console: where.
        title: heading.
        rows: as of :func:`table`.
        figures: as of :func:`table`.
    """
    first, *others = rows[0]
    width = {name: max(len(_text(cell)) for cell in (name, *(row[name] for row in rows))) for name in rows[0]}
    pad, lead = (1 if figures else 2), min(width[first], console.width // 2)
    parts, used = [[first]], console.width
    for name in others:
        used += width[name] + pad
        if used > console.width:
            parts.append([first])
            used = lead + pad + width[name]
        parts[-1].append(name)
    for number, part in enumerate(parts[1:]):
        if number:
            console.print()
        cells = {tuple(row[name] for name in part): None for row in rows}  # rows that say the same are printed once
        kept = [dict(zip(part, row, strict=True)) for row in cells if any(cell != "" for cell in row[1:])]
        console.print(table(title, kept, figures=figures))


def _text(cell: Any) -> str:
    return f"{cell:,}" if isinstance(cell, int) else f"{cell}"


def two_columns(commands: Mapping[str, str]) -> Table:
    """Return a table of two columns without headings, as names and descriptions."""
    made = Table(box=None, show_header=False, padding=(0, 2))
    for _ in range(2):
        made.add_column(overflow="fold")  # a narrow terminal breaks the choices of a flag and cuts none off
    for name, about in commands.items():
        made.add_row(f"[bold]{escape(name)}[/]", escape(about))
    return made


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
