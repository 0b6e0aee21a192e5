"""Benchmark of steps beside busy processes: answer times by the number of threads, and by the default of streams."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import NeighboursBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.cores import CORES
from recollect.ops import threads as stream_threads

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"
"""Program of a busy process, which ends with the one that started it."""
FORMS = ("one thread", "all threads", "default")


@dataclass(frozen=True)
class NeighbourRow:
    """Answer times of one core, form and number of neighbours, in microseconds."""

    core: str
    form: str
    threads: int
    neighbours: int
    p50_us: float
    p99_us: float
    worst_us: float
    p99_over_p50: float
    steps: int


@dataclass(frozen=True)
class NeighbourResults(Measurements):
    """Results of one run of the benchmark."""

    busy_before: float
    """Load of the machine before, in busy processes."""
    rows: list[NeighbourRow]


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep so many other processes busy."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def run_neighbours(config: NeighboursBenchmark, progress: Progress = no_progress) -> NeighbourResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of each part.

    Raises:
        ValueError: the output folder cannot be written.
    """
    results = NeighbourResults(describe(), asdict(config), round(os.getloadavg()[0], 1), [])
    before = torch.get_num_threads()
    for number in config.neighbours:
        for name in config.cores:
            progress(f"{name}, {number} neighbours")
            with busy_processes(number):
                results.rows.extend(_measure(name, number, before, config))
    save_rows(config.output, "neighbours", results, results.rows)
    return results


def _measure(name: str, number: int, threads: int, config: NeighboursBenchmark) -> list[NeighbourRow]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        core: Any = CORES[name]().build(config.input_dim).eval()
    stream, inputs = core.stream(1), torch.randn(1, *core.input_shape)
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    chosen, small = stream_threads.SMALL, -1
    try:
        for _ in range(config.repeats):
            for form in FORMS:  # in turns
                torch.set_num_threads(1 if form == "one thread" else threads)
                stream_threads.SMALL = chosen if form == "default" else small
                for _ in range(config.steps):
                    begin = time.perf_counter()
                    stream.step(inputs)
                    times[form].append(time.perf_counter() - begin)
    finally:
        stream_threads.SMALL = chosen
        torch.set_num_threads(threads)
    rows = []
    for form in FORMS:
        middle, slow = (1e6 * float(value) for value in np.quantile(times[form], (0.5, 0.99)))
        worst, used = 1e6 * max(times[form]), 1 if form == "one thread" else threads
        numbers = round(middle, 1), round(slow, 1), round(worst, 1), round(slow / middle, 2)
        rows.append(NeighbourRow(name, form, used, number, *numbers, len(times[form])))
    return rows


def render_neighbours(results: NeighbourResults) -> Group:
    """Return the results as a table for a terminal."""
    table = Table(title="Steps of one row beside busy processes, microseconds")
    for name in ("core", "threads", "neighbours", "p50", "p99", "worst", "p99 / p50"):
        table.add_column(name, justify="left" if name in ("core", "threads") else "right")
    for row in results.rows:
        times = f"{row.p50_us:,.0f}", f"{row.p99_us:,.0f}", f"{row.worst_us:,.0f}", f"{row.p99_over_p50:.1f}"
        table.add_row(row.core, row.form, str(row.neighbours), *times)
    return Group(table, results.hardware(), f"Busy processes before the run: {results.busy_before}.")
