"""Metrics: one row per report in ``metrics.csv``, and whatever loggers a person passes in.

A logger is any callable ``logger(step, metrics)``. After a resume the file holds every step once: rows later
than the checkpoint are cut, since the run will make them again.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recollect.files import write_atomically

Logger = Callable[[int, Mapping[str, float]], None]


class MetricsFile:
    """A CSV file with the columns ``step`` and ``columns``; a metric that is not reported in a row is left empty.

    Args:
        path: of the file.
        columns: names of the metrics.
        step: rows later than this are cut from an existing file, as is a line that a kill left unfinished.
    """

    def __init__(self, path: Path, columns: Sequence[str], step: int) -> None:
        self.path = path
        self.columns = ("step", *columns)
        kept = [row for row in read_rows(path) if int(row["step"]) <= step] if step else []
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        write_atomically(path, text.getvalue())

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one row, and hand it to the operating system at once."""
        unknown = set(metrics) - set(self.columns)
        if unknown:
            raise ValueError(f"metrics {sorted(unknown)} are not among the columns {self.columns}")
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self.columns, restval="", lineterminator="\n").writerow({"step": step, **metrics})


def read_rows(path: Path) -> list[dict[str, str]]:
    """Complete rows of a metrics file, as text; an unfinished last line is left out."""
    if not path.is_file():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(io.StringIO(complete, newline=""))
    return [row for row in rows if None not in row and None not in row.values() and row["step"].isdigit()]
