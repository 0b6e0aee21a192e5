"""``recollect list``: tables of what exists, in the width of the terminal, or of 80 columns in a pipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from tyro.conf import Positional

from recollect.config import lookup
from recollect.terminal import print_json, print_status, print_table, table

TABLES = ("cores", "tasks", "agents", "trainers", "recipes", "models")
PROSE = ("about",)
"""Columns whose cells may be broken into lines."""
JSON_ONLY = ("source",)
"""Columns that are too long for a table."""
NOTES = {
    "tasks": "chance: score without a memory; lag: steps from an item to its use (median, 95 %); ends: ends of "
    "episodes between them (median, 95 %); past: other items between them; bits: to remember; -: not known"
}
"""Meanings of columns, below a table."""
UNLIMITED = 10_000
"""Width in which no line of a table is broken."""


@dataclass(frozen=True)
class List:
    """Show what there is, here and in installed packages: cores, tasks, agents, trainers, recipes, models."""

    room: Positional[str] = "all"
    """Table to list: cores, tasks, agents, trainers, recipes, models or all."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print the tables that were asked for."""
        names = TABLES if self.room == "all" else (lookup({name: name for name in TABLES}, self.room, "table"),)
        from recollect.entry_points import KINDS
        from recollect.recipes.table_of_contents import TABLE_OF_CONTENTS, installed_rows

        tables = {name: TABLE_OF_CONTENTS[name]() for name in names}
        for kind in KINDS:
            if kind in tables:
                rows, broken = installed_rows(kind)
                tables[kind] += rows
                for line in broken:
                    print_status(line, style="yellow")
        if self.json:
            print_json(tables)
            return 0
        for name, rows in tables.items():
            _print(name, [{k: row[k] for k in row if k not in JSON_ONLY} for row in rows], console)
        return 0


def _print(name: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one table, or, in a narrow terminal, one of the short columns and one of the prose."""
    prose = [column for column in rows[0] if column in PROSE]
    whole = table(name, rows, prose=PROSE)
    if not prose or console.measure(whole, options=console.options.update(max_width=UNLIMITED)).maximum > console.width:
        short = [column for column in rows[0] if column not in PROSE]
        if not prose or len(short) > 1:
            print_table(console, name, [{column: row[column] for column in short} for row in rows])
            console.print()
        rows = [{column: row[column] for column in ("key", *prose)} for row in rows]
    if prose:
        console.print(table(name, rows, prose=PROSE), "")
    if name in NOTES:
        console.print(NOTES[name], "", style="dim", highlight=False)
