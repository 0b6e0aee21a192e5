"""Markdown tables of results, for the recipes' pages and the report of the benchmarks."""

from collections.abc import Iterable, Sequence
from html import escape


def markdown_cell(text: str) -> str:
    """Escape a name or a message for a cell of a Markdown table."""
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def markdown_row(cells: Iterable[object]) -> str:
    """Return a line of a Markdown table; the cells are already escaped."""
    return "|" + "|".join(f" {cell} " if cell != "" else " " for cell in cells) + "|"


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[object]], align: str | None = None) -> str:
    """Return a Markdown table of heads and rows.

    Args:
        heads: titles of the columns.
        rows: cells, already escaped.
        align: ``l`` or ``r`` for each column; None aligns the first to the left and the others to the right.
    """
    sides = {"l": "---", "r": "---:"}
    rule = "|".join(sides[side] for side in align or "l" + "r" * (len(heads) - 1))
    return "\n".join([markdown_row(heads), f"|{rule}|", *map(markdown_row, rows)])
