"""Soak test of the store of live streams: its resident memory over very many steps."""

import time
from dataclasses import asdict, dataclass

from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import SoakBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.serving import Askers, make_store
from recollect.machine import resident_bytes
from recollect.ops.threads import one_thread
from recollect.serving import ServingConfig
from recollect.training.saved_models import load_model


@dataclass(frozen=True)
class SoakRow:
    """One reading."""

    steps: int  # since the start, of all streams together
    resident_bytes: int  # of the process
    growth: int  # since the first reading
    steps_per_cpu_s: float  # since the reading before; by the processor time of the whole process


@dataclass(frozen=True)
class SoakResults(Measurements):
    """Results of one run of the soak test."""

    rows: list[SoakRow]


def run_soak(config: SoakBenchmark, progress: Progress = no_progress) -> SoakResults:
    """Take the steps and read the memory, and save the readings if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of each part.

    Raises:
        ValueError: there is no such model, or it cannot be served; the output folder cannot be written.
    """
    with one_thread():
        limits = ServingConfig(capacity=config.streams, most_rows=config.askers, cache=config.cache)
        progress(f"{config.streams} streams of {config.age} steps")
        store, ids = make_store(load_model(config.model), limits, config.age, config.seed)
        askers = Askers(store, ids, config.askers, config.seed)
        results, steps = SoakResults(describe(), asdict(config), []), 0
        for number in range(1, config.readings + 1):
            progress(f"{steps:,} of {config.steps:,} steps")
            cpu = time.process_time()
            taken = askers.run(steps=config.steps * number // config.readings - steps, timed=False)[0]  # keeps nothing
            rate, resident = taken / (time.process_time() - cpu), resident_bytes()
            growth = resident - results.rows[0].resident_bytes if results.rows else 0
            steps += taken
            results.rows.append(SoakRow(steps, resident, growth, round(rate)))
        store.close()
    save_rows(config.output, "soak", results, results.rows)
    return results


def render_soak(results: SoakResults) -> Group:
    """Return the readings as a table for a terminal."""
    asked = results.config
    table = Table(title=f"{asked['streams']:,} live streams of {asked['model']}, {asked['askers']} askers, one thread")
    for name in ("steps", "resident\nMB", "growth\nMB", "steps per\ncpu second"):
        table.add_column(name, justify="right")
    for row in results.rows:
        memory = f"{row.resident_bytes / 1e6:,.1f}", f"{row.growth / 1e6:+.1f}"
        table.add_row(f"{row.steps:,}", *memory, f"{row.steps_per_cpu_s:,.0f}")
    return Group(table, results.hardware())
