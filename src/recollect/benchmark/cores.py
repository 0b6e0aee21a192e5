"""Benchmark of all cores at the same shapes: training, whole sequences, single steps.

Training is forward and backward without optimiser, from a full memory, so that every step does the work of the
core's FLOP formula. Inputs are random, dropout is off, bfloat16 is autocast.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from recollect.benchmark.config import QUICK, CoresBenchmark
from recollect.benchmark.flops import count
from recollect.benchmark.machine import describe
from recollect.benchmark.positions import Waypoint, time_steps, walk
from recollect.benchmark.results import CoreFacts, Progress, Results, Row, no_progress
from recollect.benchmark.timing import Timing, matmul_peak, measure
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.find import find_core
from recollect.state import nbytes, take_rows

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RESET_RATE = 1 / 50


def run(config: CoresBenchmark, progress: Progress = no_progress) -> Results:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of every measurement.

    Raises:
        ValueError: the output folder cannot be written.
    """
    if config.quick:
        config = dataclasses.replace(config, **QUICK, repeats=2)
    results = Results(describe(), dataclasses.asdict(config), [], [])
    for name in config.cores or CORES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            facts, rows = measure_core(name, config, progress)
        results.cores.append(facts)
        results.rows.extend(rows)
        if config.output:  # after every core, for interrupted runs
            results.save(config.output)
    return results


def core_config(name: str, config: CoresBenchmark) -> CoreConfig:
    """Return the config of core ``name`` at the benchmark's shape; other fields keep their defaults."""
    cls = find_core(name)
    if isinstance(cls, CoreConfig):
        return cls
    known = {field.name: field.default for field in dataclasses.fields(cls)}
    wanted = {
        "dim": config.dim,
        "num_layers": config.layers,
        "num_heads": config.heads,
        "memory_len": config.memory_len,
        "chunk_len": config.chunk_len,
        "num_chunks": config.chunks,
        "num_segments": config.chunks,
        "top_k": config.top_k,
    }
    # A field whose default is None is an option that stays off.
    return cls(**{field: value for field, value in wanted.items() if known.get(field) is not None})


def measure_core(name: str, config: CoresBenchmark, report: Progress) -> tuple[CoreFacts, list[Row]]:
    """Time training and stream steps of one core."""
    settings = core_config(name, config)
    core = settings.build(config.dim)
    size, repeats = (256, 2) if config.quick else (2048, 6)
    peak = {dtype: matmul_peak(kind, size, repeats) for dtype, kind in DTYPES.items()}
    report(f"{name}: walking to step {config.positions[-1]:,}")
    limit = 2.0 if config.quick else config.patience
    waypoints = walk(core.eval(), config.positions, step_seconds=limit, jump_seconds=4 * limit)
    full = waypoints[min(1, len(waypoints) - 1)].state  # at position 10^3 every memory is full

    report(f"{name}: counting FLOPs")
    cycle = max(getattr(settings, "chunk_len", 1), 8)
    stream = core.stream(1)
    stream.load_state(full)
    inputs = torch.randn(cycle, 1, *core.input_shape)
    counted = count(lambda: [stream.step(step) for step in inputs]) / cycle
    train_counted = count(train_call(core, full, (1, config.steps))) / config.steps
    facts = CoreFacts(
        core=name,
        config=dataclasses.asdict(settings),
        parameters=sum(p.numel() for p in core.parameters()),
        state_bytes=nbytes(core.initial_state(1)),
        stream_bytes=stream.nbytes,
        flops_per_step=core.flops_per_step(),
        flops_counted=counted,
        train_flops_counted=train_counted,
        peak=peak,
        walk=[{f: getattr(w, f) for f in ("position", "how", "resident_growth", "seconds")} for w in waypoints],
    )
    rows: list[Row] = []
    for dtype in DTYPES:
        for batch in config.batches:
            report(f"{name}: {dtype}, batch {batch}")
            rows += sequence_rows(core, full, facts, dtype, batch, config)
            rows += stream_rows(core, waypoints, facts, dtype, batch, config)
    return facts, rows


def precision(dtype: str) -> AbstractContextManager[object]:
    """Return the context of autocast to a lower precision, or of nothing."""
    return nullcontext() if dtype == "float32" else torch.autocast("cpu", DTYPES[dtype])


def train_call(
    core: MemoryCore[Any], full: Any, shape: tuple[int, int], dtype: str = "float32", *, reset_rate: float = 0.0
) -> Callable[[], None]:
    """Return a function with one forward and backward pass over ``[batch, steps]``, from a full memory."""
    inputs = torch.randn(*shape, *core.input_shape)
    is_first = torch.rand(shape) < reset_rate
    state = take_rows(full, torch.zeros(shape[0], dtype=torch.long))
    core.train()

    def call() -> None:
        core.zero_grad(set_to_none=True)
        with precision(dtype):
            outputs, _ = core(inputs, state, is_first)
        outputs.float().square().mean().backward()

    return call


def forward_call(core: MemoryCore[Any], full: Any, shape: tuple[int, int], dtype: str) -> Callable[[], None]:
    """Return a function with one forward pass without gradients."""
    inputs = torch.randn(*shape, *core.input_shape)
    never = torch.zeros(shape, dtype=torch.bool)
    state = take_rows(full, torch.zeros(shape[0], dtype=torch.long))
    core.eval()

    def call() -> None:
        with torch.no_grad(), precision(dtype):
            core(inputs, state, never)

    return call


def sequence_rows(
    core: MemoryCore[Any], full: Any, facts: CoreFacts, dtype: str, batch: int, config: CoresBenchmark
) -> list[Row]:
    """Time training with and without resets, and forward passes."""
    shape = (batch, config.steps)
    calls = {
        "train": (train_call(core, full, shape, dtype), 3),
        "train-resets": (train_call(core, full, shape, dtype, reset_rate=RESET_RATE), 3),
        "forward": (forward_call(core, full, shape, dtype), 1),
    }
    rows = []
    for name, (call, passes) in calls.items():
        core.train(name != "forward")
        timing = measure(call, config.repeats, max_seconds=8)
        executed = facts.train_flops_counted if name == "train" else None
        needed = passes * facts.flops_per_step
        rows.append(_row(facts, name, dtype, shape, None, timing, (needed, executed)))
    core.zero_grad(set_to_none=True)
    return rows


def stream_rows(
    core: MemoryCore[Any],
    waypoints: Sequence[Waypoint],
    facts: CoreFacts,
    dtype: str,
    batch: int,
    config: CoresBenchmark,
) -> list[Row]:
    """Time single steps at all positions."""
    steps = 32 * max(1, round(facts.config.get("chunk_len", 32) / 32))
    steps += -steps % facts.config.get("chunk_len", 1)
    core.eval()
    with precision(dtype):
        timings = time_steps(core.stream(batch), waypoints, steps=steps, repeats=2 * config.repeats, max_seconds=12)
    flops = (facts.flops_per_step, facts.flops_counted)
    return [_row(facts, "stream", dtype, (batch, 1), position, timing, flops) for position, timing in timings.items()]


def _row(
    facts: CoreFacts,
    name: str,
    dtype: str,
    shape: tuple[int, int],
    position: int | None,
    timing: Timing,
    flops: tuple[float, float | None],
) -> Row:
    batch, steps = shape
    per_second = batch * steps / timing.best
    needed, executed = (None if f is None else round(f * per_second / facts.peak[dtype], 5) for f in flops)
    return Row(
        core=facts.core,
        measure=name,
        dtype=dtype,
        batch=batch,
        steps=steps,
        position=position,
        steps_per_s=round(per_second, 2),
        us_per_call=round(timing.best * 1e6, 2),
        us_per_call_median=round(timing.median * 1e6, 2),
        share_of_peak=needed or 0.0,
        executed_share=executed,
        repeats=len(timing.seconds),
    )
