"""``recollect list``: the tables of what there is, in the width that there is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from recollect.cli import flags
from recollect.config import lookup
from recollect.terminal import print_json, table

ROOMS = ("cores", "tasks", "agents", "trainers", "recipes")
PROSE = ("about", "source")
"""Columns whose cells may be broken into lines."""
ENDLESS = 10_000
"""Columns of what is no terminal: nothing is broken there, so that lines can be searched."""


@dataclass(frozen=True)
class List:
    """Show what there is: cores, tasks, agents, trainers, recipes."""

    room: Positional[str] = "all"
    """Which table: cores, tasks, agents, trainers, recipes or all."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        """Print the tables."""
        rooms = ROOMS if self.room == "all" else (lookup({room: room for room in ROOMS}, self.room, "table"),)
        tables = {room: flags.rows(room) or _rows_now(room) for room in rooms}
        if self.json:
            print_json(tables)
            return 0
        if not console.is_terminal:
            console.width = ENDLESS
        for room, rows in tables.items():
            _print(room, rows, console)
        return 0


def _rows_now(room: str) -> list[dict[str, Any]]:
    """The rows of a table of ``list`` with an entry that its file of rows does not know yet."""
    from recollect.recipes.contents import CONTENTS

    return CONTENTS[room]()


def _width(made: Table, console: Console) -> int:
    return console.measure(made, options=console.options.update(max_width=ENDLESS)).maximum


def _print(room: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """One table; where a terminal is too narrow for it, one of what is short and one of the prose."""
    prose = {name for name in rows[0] if name in PROSE}
    parts = [set(rows[0])]
    if prose and _width(table(room, rows), console) > console.width:
        parts = [part for part in (set(rows[0]) - prose, {"key"} | prose) if part != {"key"}]
    for part in parts:
        console.print(table(room, [{k: row[k] for k in row if k in part} for row in rows], prose=PROSE), "")
