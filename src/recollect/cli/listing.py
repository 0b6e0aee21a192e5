"""``recollect list``: tables of what exists, in the width of the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from recollect.config import lookup
from recollect.terminal import print_json, print_status, table

TABLES = ("cores", "tasks", "agents", "trainers", "recipes", "models")
PROSE = ("about", "source")
"""Columns whose cells may be broken into lines."""
UNLIMITED = 10_000
"""Width where the output is no terminal, so that every row is one line."""


@dataclass(frozen=True)
class List:
    """Show what there is, here and in installed packages: cores, tasks, agents, trainers, recipes, models."""

    room: Positional[str] = "all"
    """Table to list: cores, tasks, agents, trainers, recipes, models or all."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print the tables."""
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
        if not console.is_terminal:
            console.width = UNLIMITED
        for name, rows in tables.items():
            _print(name, rows, console)
        return 0


def _print(name: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one table, or, in a narrow terminal, one of the short columns and one of the prose."""
    prose = {column for column in rows[0] if column in PROSE}
    parts = [set(rows[0])]
    if prose and _width(table(name, rows), console) > console.width:
        parts = [part for part in (set(rows[0]) - prose, {"key"} | prose) if part != {"key"}]
    for part in parts:
        console.print(table(name, [{k: row[k] for k in row if k in part} for row in rows], prose=PROSE), "")


def _width(made: Table, console: Console) -> int:
    return console.measure(made, options=console.options.update(max_width=UNLIMITED)).maximum
