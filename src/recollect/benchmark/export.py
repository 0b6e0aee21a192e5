"""Benchmark of exported steps beside streams: the same core in this library, in onnxruntime, and compiled by torch."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor, nn

from recollect.benchmark.config import QUICK, CoresBenchmark, ExportBenchmark
from recollect.benchmark.cores import core_config
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.timing import interleave, ratio
from recollect.cores import CORES
from recollect.export.selftest import open_onnx
from recollect.export.step import ModelStep, one_step
from recollect.export.trace import to_onnx, trace, write_program
from recollect.ops.torch_internals import load_compiled

LONGEST = 20.0  # seconds of timing per core, after the first two rounds


@dataclass(frozen=True)
class ExportRow:
    """Times of one step of one core in one format, in microseconds."""

    core: str
    format: str
    batch: int
    parameters: int
    build_seconds: float
    stream_us: float  # best round
    exported_us: float
    ratio: float  # exported over stream: median over the rounds
    lowest: float
    highest: float
    rounds: int


@dataclass(frozen=True)
class ExportResults(Measurements):
    """Results of one run of the benchmark."""

    rows: list[ExportRow]


def run_export(config: ExportBenchmark, progress: Progress = no_progress) -> ExportResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of every core and format.

    Raises:
        ValueError: the output folder cannot be written, or a core cannot be exported.
    """
    results = ExportResults(describe(), asdict(config), [])
    for name in config.cores or CORES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            settings = core_config(name, CoresBenchmark(**QUICK)) if config.quick else CORES[name]()
            core = settings.build(getattr(settings, "dim", 64)).eval()
        for format in config.formats:
            progress(f"{name}, {format}")
            results.rows.append(measure_export(name, core, format, config))
            save_rows(config.output, "export", results, results.rows)  # after every row, for interrupted runs
    return results


def measure_export(name: str, core: nn.Module, format: Any, config: ExportBenchmark) -> ExportRow:
    """Measure one core in one format; stream and program take turns, and both carry their state."""
    step, began = one_step(core), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        call = exported_call(step, format, Path(folder), config.batch)
        built = time.perf_counter() - began
        stream: Any = core.stream(config.batch)  # type: ignore[operator]  # of a core
        inputs = torch.randn(config.batch, *step.form.inputs[0].shape)
        timings = interleave(
            {"stream": partial(stream.step, inputs), "exported": call},
            config.repeats,
            min_seconds=config.seconds,
            max_seconds=LONGEST,
        )
    ours, exported = timings["stream"], timings["exported"]
    median, lowest, highest = (round(value, 3) for value in ratio(exported, ours))
    return ExportRow(
        core=name,
        format=format,
        batch=config.batch,
        parameters=sum(weight.numel() for weight in core.parameters()),
        build_seconds=round(built, 1),
        stream_us=round(ours.best * 1e6, 1),
        exported_us=round(exported.best * 1e6, 1),
        ratio=median,
        lowest=lowest,
        highest=highest,
        rounds=len(ours.seconds),
    )


def exported_call(step: ModelStep, format: Any, folder: Path, batch: int) -> Callable[[], object]:
    """Return a function that takes one exported step and keeps its state for the next."""
    program = trace(step)
    inputs, never = torch.randn(batch, *step.form.inputs[0].shape), torch.zeros(batch, dtype=torch.bool)
    if format == "onnx":
        run, state = open_onnx(to_onnx(program, step), step), [leaf.numpy() for leaf in step.initial(batch)]
        given: Sequence[np.ndarray] = (inputs.numpy(), never.numpy())

        def step_onnx() -> None:
            _, *state[:] = run([*given, *state])

        return step_onnx
    path = folder / "model.pt2"
    write_program(program, step, path, format)
    model = torch.export.load(path).module() if format == "pt2" else load_compiled(path)
    leaves: list[Tensor] = step.initial(batch)

    @torch.no_grad()
    def step_torch() -> None:
        _, *leaves[:] = model(inputs, never, *leaves)

    return step_torch


def render_export(results: ExportResults) -> Group:
    """Return the results as a table for a terminal."""
    table = Table(title=f"One exported step beside a stream, {results.config['batch']} row(s), float32")
    table.add_column("core")
    table.add_column("format")
    for name in ("parameters", "stream\nµs", "exported\nµs", "exported / stream\n(lowest to highest)", "build\ns"):
        table.add_column(name, justify="right")
    for row in results.rows:
        times = f"{row.stream_us:,.0f}", f"{row.exported_us:,.0f}"
        span = f"{row.ratio:.2f} ({row.lowest:.2f} to {row.highest:.2f})"
        table.add_row(row.core, row.format, f"{row.parameters:,}", *times, span, f"{row.build_seconds:.0f}")
    return Group(table, results.hardware(), "Best of the rounds; the ratio is the median of the rounds' ratios.")
