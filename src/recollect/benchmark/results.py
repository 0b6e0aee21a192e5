"""Results of benchmarks, and their files."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from recollect.files import without_nan

Progress = Callable[[str], None]
"""Function that is called with the name of every measurement."""


@dataclass(frozen=True)
class Measurements:
    """Base of the results of one benchmark run."""

    environment: dict[str, Any]
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return all results as plain data."""
        return asdict(self)

    def hardware(self) -> str:
        """Return processor, threads, torch and commit, for the foot of a table."""
        where = self.environment
        return f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}, commit {where['commit']}"


@dataclass(frozen=True)
class Row:
    """One line of a table of timings."""

    core: str
    measure: str  # train, train-resets (2 % of steps are resets), forward, or stream
    dtype: str
    batch: int
    steps: int  # steps of one call
    position: int | None  # position of the stream before the timed steps
    steps_per_s: float
    """Rows x steps per second, best repeat. A step is one token, or one frame of a core that reads several tokens."""
    us_per_call: float  # best repeat
    us_per_call_median: float
    share_of_peak: float  # FLOP/s that the equations need (the core's formula; x 3 for training), over the matmul peak
    executed_share: float | None  # the same with the FLOPs of torch's counter; None where they were not counted
    repeats: int


@dataclass(frozen=True)
class CoreFacts:
    """Sizes and FLOPs of a core, independent of timings."""

    core: str
    config: dict[str, Any]
    parameters: int
    state_bytes: int  # bytes of the state of one row, in float32
    stream_bytes: int  # bytes of a stream of one row, with ring buffers and caches
    flops_per_step: int  # by the core's own formula
    flops_counted: float  # mean over the steps of one chunk of a full stream, by torch's counter
    train_flops_counted: float  # forward and backward per step of a sequence, by torch's counter
    peak: dict[str, float]  # FLOP/s of the 2048-cubed product, per dtype, measured just before this core
    walk: list[dict[str, Any]]  # how the stream reached each position, and the growth of resident memory


@dataclass(frozen=True)
class Results(Measurements):
    """Results of one run of the benchmark of cores."""

    cores: list[CoreFacts]
    rows: list[Row]

    def find(self, core: str, measure: str, dtype: str, batch: int, position: int | None = None) -> Row | None:
        """Return the timing of one cell of the table, or None."""
        wanted = (core, measure, dtype, batch, position)
        return next((r for r in self.rows if (r.core, r.measure, r.dtype, r.batch, r.position) == wanted), None)

    def save(self, folder: str | Path) -> tuple[Path, Path]:
        """Write ``cores-DATE.json`` and a flat ``cores-DATE.csv``, and return their paths.

        Raises:
            ValueError: the folder cannot be written.
        """
        return save(folder, "cores", self.environment, self.to_json(), self._table())

    def _table(self) -> list[list[Any]]:
        facts = {core.core: core for core in self.cores}
        fixed = ("parameters", "state_bytes", "stream_bytes", "flops_per_step", "flops_counted", "train_flops_counted")
        header = [field.name for field in fields(Row)]
        table: list[list[Any]] = [[*header, *fixed, "matmul_peak", *self.environment]]
        for row in self.rows:
            core = facts[row.core]
            values = [getattr(row, name) for name in header] + [getattr(core, name) for name in fixed]
            table.append([*values, core.peak[row.dtype], *self.environment.values()])
        return table


def no_progress(_: str) -> None:
    """Take the name of a measurement and show nothing."""


def save_rows(folder: str | Path, name: str, results: Measurements, rows: Sequence[Any]) -> None:
    """:func:`save` results with a table of dataclasses, each beside the environment; no ``folder``, no files."""
    if not folder:
        return
    names, environment = [field.name for field in fields(rows[0])], results.environment
    table = [[getattr(row, name) for name in names] + [*environment.values()] for row in rows]
    save(folder, name, environment, results.to_json(), [[*names, *environment], *table])


def save(
    folder: str | Path, name: str, environment: dict[str, Any], data: dict[str, Any], table: Sequence[Sequence[Any]]
) -> tuple[Path, Path]:
    """Write ``NAME-DATE.json`` and a flat ``NAME-DATE.csv``, and return their paths.

    Args:
        folder: made if it does not exist.
        name: of the benchmark.
        environment: has the date.
        data: for JSON.
        table: for CSV, header first.

    Raises:
        ValueError: the folder cannot be written.
    """
    folder = Path(folder)
    stamp = "".join(c for c in environment["date"][:19] if c.isdigit())
    paths = folder / f"{name}-{stamp}.json", folder / f"{name}-{stamp}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths[0].write_text(json.dumps(without_nan(data), indent=1, allow_nan=False) + "\n")
        with paths[1].open("w", newline="") as file:
            csv.writer(file).writerows(table)
    except OSError as error:
        raise ValueError(f"output={str(folder)!r} cannot be written ({error.strerror}): choose another") from error
    return paths
