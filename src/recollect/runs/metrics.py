"""Metrics: one row per report in ``metrics.csv``, also sent to loggers.

A logger is any callable ``logger(step, metrics)``. A resumed run removes rows later than its checkpoint, since it will
write them again.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recollect.files import write_atomically

Logger = Callable[[int, Mapping[str, float]], None]


class MetricsFile:
    """A CSV file with the columns ``step`` and ``columns``; cells without a metric are empty.

    Args:
        path: of the file.
        columns: names of the metrics.
        step: rows later than this are removed from an existing file, as are lines that a kill left incomplete.
    """

    def __init__(self, path: Path, columns: Sequence[str], step: int) -> None:
        self.path = path
        self.columns = ("step", *columns)
        kept = {int(row["step"]): row for row in _good_rows(path) if int(row["step"]) <= step} if step else {}
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept[step] for step in sorted(kept))  # the later row of repeated steps
        write_atomically(path, text.getvalue())

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one row, and pass it to the operating system at once."""
        unknown = set(metrics) - set(self.columns)
        if unknown:
            raise ValueError(f"metrics {sorted(unknown)} are not among the columns {self.columns}")
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self.columns, restval="", lineterminator="\n").writerow({"step": step, **metrics})


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a metrics file, as text.

    Raises:
        ValueError: it is no file of metrics, or a cell is no number; names file and line.
    """
    if not path.is_file():
        return []
    rows = _good_rows(path)
    for row in rows:
        for name, cell in row.items():
            if cell and not _is_number(cell):
                where = f"{path}: {name}={cell!r} at step {row['step']}"
                raise ValueError(f"{where} is no number: correct it, or leave it empty")
    return rows


def _good_rows(path: Path) -> list[dict[str, str]]:
    text = path.read_bytes().decode(errors="replace") if path.is_file() else ""
    complete = text[: text.rfind("\n") + 1]
    if complete and complete.split("\n", 1)[0].split(",")[0].strip() != "step":
        raise ValueError(f"{path} is no file of metrics: its first line does not begin with 'step'; move it away")
    try:
        rows = list(csv.DictReader(io.StringIO(complete, newline="")))
    except csv.Error as error:
        raise ValueError(f"{path} is no file of metrics ({error}): move it away") from None
    whole = [row for row in rows if None not in row and None not in row.values()]
    return [row for row in whole if row["step"].isascii() and row["step"].isdigit() and len(row["step"]) < 19]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
