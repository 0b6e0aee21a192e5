"""Benchmark of hand-written kernels beside their plain twins, and whether they are available in this torch."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor

from recollect.benchmark.config import OpsBenchmark
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.timing import interleave, ratio
from recollect.ops import OPS
from recollect.ops.operation import Operation


@dataclass(frozen=True)
class OpRow:
    """Results of one operation in float32."""

    op: str
    available: bool  # whether the kernel can run here; otherwise both times are of the plain twin
    needs: str  # private interfaces of torch that the kernel needs
    rows: int
    dim: int
    kernel_us: float  # best repeat, in microseconds
    twin_us: float
    ratio: float  # speed-up of the kernel: median over the rounds
    lowest: float
    highest: float


@dataclass(frozen=True)
class OpResults(Measurements):
    """Results of one run of the benchmark."""

    rows: list[OpRow]


def run_ops(config: OpsBenchmark, progress: Progress = no_progress) -> OpResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of every operation.

    Raises:
        ValueError: the output folder cannot be written.
    """
    results = OpResults(describe(), asdict(config), [])
    for name in config.ops or OPS:
        progress(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results.rows.append(measure_op(name, config))
    save_rows(config.output, "ops", results, results.rows)
    return results


def measure_op(name: str, config: OpsBenchmark) -> OpRow:
    """Measure one operation at its typical number of rows."""
    op = OPS[name]
    rows, dim = (2, 16) if config.quick else (op.typical_rows, config.dim)
    tensors = op.example(rows, dim, torch.float32)
    timings = interleave(
        {"kernel": partial(_use, op, op.kernel, tensors), "twin": partial(_use, op, op.twin, tensors)},
        config.repeats,
        min_seconds=config.seconds,
    )
    kernel, twin = timings["kernel"], timings["twin"]
    median, lowest, highest = (round(value, 3) for value in ratio(twin, kernel))
    return OpRow(
        op=name,
        available=op.is_available(),
        needs=op.needs,
        rows=rows,
        dim=dim,
        kernel_us=round(kernel.best * 1e6, 2),
        twin_us=round(twin.best * 1e6, 2),
        ratio=median,
        lowest=lowest,
        highest=highest,
    )


def _use(op: Operation, implementation: Callable[..., Any], tensors: tuple[Tensor, ...]) -> None:
    if not op.differentiable:
        with torch.no_grad():
            op.use(implementation, *tensors)
        return
    sources = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    results = op.use(implementation, *sources)
    loss = torch.stack([result.sum() for result in results]).sum()
    torch.autograd.grad(loss, [source for source in sources if source.requires_grad], allow_unused=True)


def render_ops(results: OpResults) -> Group:
    """Return the results as a table for a terminal."""
    table = Table(title="Kernels beside their plain twins, float32")
    table.add_column("operation")
    for name in ("rows", "width", "kernel\nµs", "twin\nµs", "speed-up\n(lowest to highest)"):
        table.add_column(name, justify="right")
    for row in results.rows:
        gain = f"{row.ratio:.2f} ({row.lowest:.2f} to {row.highest:.2f})" if row.available else "plain twin"
        table.add_row(row.op, f"{row.rows}", f"{row.dim}", f"{row.kernel_us:,.1f}", f"{row.twin_us:,.1f}", gain)
    missing: dict[str, list[str]] = {}
    for row in results.rows:
        if not row.available:
            missing.setdefault(row.needs, []).append(row.op)
    return Group(
        table,
        *(f"plain twin: torch has no {needs}: {', '.join(names)}" for needs, names in missing.items()),
        results.hardware(),
        "Forward and backward where there are gradients. Best of the repeats; the ratio is the median of the rounds.",
        "A kernel that is slower on this kind of processor calls torch: about 1.",
    )
