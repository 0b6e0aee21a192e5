"""Roofline of every core: the least time that its arithmetic and its bytes take here, beside the time that it takes.

    arithmetic time = FLOPs / peak              peak: a product of two large matrices
    bytes time      = bytes / bandwidth         bandwidth: a pass over as many bytes
    limit           = the larger of the two     share of the limit = limit / measured time

FLOPs are those of the core's own formula, three times for training (forward, and by inputs and weights backward), or
what torch multiplies where that is less, because steps of a call share work. The formula is the work of a stream's
step, with keys of old steps kept; a call from a full memory has to make these keys again, so ``executed`` counts what
torch multiplies. Bytes of a step: weights and state once. Bytes of training: weights read forward and backward and
their gradients written, the state of every row read and written, and inputs and outputs with their gradients; what is
kept for the backward pass is not counted, because kernels differ in it.

Everything is measured in turns in one run, on one thread, in processor time, which other programs on the machine
disturb little. Peak and bandwidth are measured again just before each core.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import QUICK, CoresBenchmark, RooflineBenchmark
from recollect.benchmark.cores import core_config, train_call
from recollect.benchmark.flops import count
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.timing import least_processor_seconds
from recollect.cores import CORES
from recollect.cores.contract import MemoryCore
from recollect.ops.packed_linear import multiply
from recollect.ops.threads import one_thread
from recollect.state import nbytes

FILL, CALL = 1000, 250
"""Steps before the timing, after which every memory is full, and steps of the calls that make them."""
LEAST_BYTES, MOST_BYTES = 2**14, 2**28
"""Smallest and largest buffer of a bandwidth."""


@dataclass(frozen=True)
class RooflineRow:
    """Limit and measured time of training or of a step of one core; times are microseconds of a step of a row."""

    core: str
    work: Literal["training", "step"]
    flops: float
    """FLOPs of a step by the core's formula; three times for training."""
    executed: float
    """FLOPs of a step by torch's counter."""
    bytes: float
    peak: float
    """FLOP/s."""
    bandwidth: float
    """Bytes/s."""
    arithmetic_us: float
    bytes_us: float
    limit_us: float
    measured_us: float
    share: float
    """Limit over measured time."""
    share_of_peak: float
    """Arithmetic time over measured time."""


@dataclass(frozen=True)
class RooflineResults(Measurements):
    """Results of one run of the benchmark."""

    rows: list[RooflineRow]

    def find(self, core: str, work: str) -> RooflineRow:
        """Return the row of a core and its work."""
        return next(row for row in self.rows if (row.core, row.work) == (core, work))


def run_roofline(config: RooflineBenchmark, progress: Progress = no_progress) -> RooflineResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of every core.

    Raises:
        ValueError: the output folder cannot be written.
    """
    with one_thread():
        results = RooflineResults(describe(), asdict(config), [])
        for name in config.cores or CORES:
            progress(name)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                settings = core_config(name, CoresBenchmark(**QUICK if config.quick else {}))
                results.rows.extend(measure_roofline(name, settings.build(getattr(settings, "dim", 512)), config))
            save_rows(config.output, "roofline", results, results.rows)  # after every core, for interrupted runs
    return results


def measure_roofline(name: str, core: MemoryCore[Any], config: RooflineBenchmark) -> list[RooflineRow]:
    """Measure training and a step of one core."""
    seconds = 0.0 if config.quick else 0.05
    peak = measured_peak(128 if config.quick else 2048, config.repeats)
    full = full_state(core.eval())
    weights = sum(weight.nbytes for weight in core.parameters())
    state, rows = nbytes(full), config.batch * config.steps
    element = next(iter(core.parameters())).element_size()
    ends = sum(torch.Size(shape).numel() for shape in (core.input_shape, core.output_shape)) * element

    def measure(work: Literal["training", "step"], call: Callable[[], object], calls: int, moved: int) -> RooflineRow:
        steps = calls if work == "step" else rows
        executed = count(call) / steps
        bandwidth = measured_bandwidth(moved, config.repeats)
        spent = 1e6 * least_processor_seconds([call], config.repeats, min_seconds=seconds) / steps
        flops = min(
            core.flops_per_step() * (3 if work == "training" else 1), int(executed)
        )  # steps of a call share work
        arithmetic, copying = 1e6 * flops / peak, 1e6 * moved * calls / bandwidth / steps
        limit = max(arithmetic, copying)
        return RooflineRow(
            core=name,
            work=work,
            flops=flops,
            executed=executed,
            bytes=moved * calls / steps,
            peak=peak,
            bandwidth=bandwidth,
            arithmetic_us=round(arithmetic, 3),
            bytes_us=round(copying, 3),
            limit_us=round(limit, 3),
            measured_us=round(spent, 3),
            share=round(limit / spent, 4),
            share_of_peak=round(arithmetic / spent, 4),
        )

    stream = core.stream(1)
    stream.load_state(full)
    cycle = list(torch.randn(max(8, getattr(core.config, "chunk_len", 1)), 1, *core.input_shape))  # whole chunks

    def walk() -> None:
        for step in cycle:
            stream.step(step)

    one_step = measure("step", walk, len(cycle), weights + state + ends)
    train = train_call(core, full, (config.batch, config.steps))
    moved = 3 * weights + 2 * config.batch * state + 2 * rows * ends
    return [measure("training", train, 1, moved), one_step]


@torch.no_grad()
def full_state(core: MemoryCore[Any]) -> Any:
    """Return the state of one row after random inputs."""
    state = core.initial_state(1)
    for _ in range(FILL // CALL):
        never = torch.zeros(1, CALL, dtype=torch.bool)
        _, state = core(torch.randn(1, CALL, *core.input_shape), state, never)
    return state


@torch.no_grad()
def measured_peak(size: int, repeats: int) -> float:
    """Return the FLOP/s of a ``size``-cubed product in float32, by the faster one of torch's two libraries."""
    a, b = torch.randn(2, size, size)
    return 2 * size**3 / least_processor_seconds([lambda: a @ b, lambda: multiply(a, b)], repeats, min_seconds=0.0)


@torch.no_grad()
def measured_bandwidth(size: int, repeats: int) -> float:
    """Return the bytes/s of a pass over about ``size`` bytes: a sum, or a matrix times a vector.

    Small buffers stay in the processor's caches, as small cores do.
    """
    numbers = min(max(size, LEAST_BYTES), MOST_BYTES) // 4
    matrix, vector = torch.randn(max(1, numbers // 1024), 1024), torch.randn(1024)
    return matrix.nbytes / least_processor_seconds([matrix.sum, lambda: matrix @ vector], repeats, min_seconds=0.01)


def render_roofline(results: RooflineResults) -> Group:
    """Return the results as a table for a terminal."""
    return Group(
        _table(results, "training", f"Training, {results.config['batch']} rows of {results.config['steps']} steps"),
        _table(results, "step", "A step of a stream of one row"),
        results.hardware(),
        "Microseconds of a step of a row: the least that arithmetic and bytes take, and measured. One thread, float32.",
        f"Matmul peak up to {max((row.peak for row in results.rows), default=0.0) / 1e9:.0f} GFLOP/s.",
    )


def _table(results: RooflineResults, work: str, title: str) -> Table:
    table = Table(title=title)
    table.add_column("core")
    for name in ("arithmetic", "bytes", "measured", "share of\nlimit", "share of\npeak", "executed /\nformula"):
        table.add_column(name, justify="right")
    for row in results.rows:
        if row.work == work:
            times = (f"{value:,.1f}" for value in (row.arithmetic_us, row.bytes_us, row.measured_us))
            shares = (f"{100 * share:.1f} %" for share in (row.share, row.share_of_peak))
            table.add_row(row.core, *times, *shares, f"{row.executed / row.flops:.2f}")
    return table
