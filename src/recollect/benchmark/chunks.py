"""Benchmark of the temporal latent bottleneck by chunk length, beside attention over the whole row: time and memory.

Both are encoders of whole rows with the paper's sizes for text: width 256, feed-forward 1024, 4 heads; the Transformer
has 4 layers, the bottleneck 2 self layers, a cross layer, and 10 slots. Attention is measured twice: explicit, with its
weights in memory, as at the time of the paper; and fused.

Training is forward and backward without optimiser. Memory is the peak of the process (or the accelerator) during one
call above its level before, without freed memory that an allocator keeps; times are measured with such memory kept, as
in training.

Source: Didolkar et al. 2022, table 5.
"""

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import Group
from rich.table import Table

from recollect.benchmark.config import ChunksBenchmark
from recollect.benchmark.flops import count
from recollect.benchmark.machine import describe
from recollect.benchmark.results import Measurements, Progress, no_progress, save_rows
from recollect.benchmark.timing import matmul_peak, measure
from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.encoders import EncoderConfig
from recollect.encoders.config import TransformerConfig, TwoWayTLBConfig
from recollect.machine import peak_bytes, reset_peak_bytes, resident_bytes
from recollect.ops.allocation import return_freed_memory, trim_heap
from recollect.training.devices import choose_device

PAPER = {  # table 5: inference speed and memory, training speed and memory, beside the paper's Transformer
    1000: (3.5, 0.09, 4.4, 0.14),
    100: (3.6, 0.08, 4.4, 0.08),
    40: (3.3, 0.12, 2.2, 0.49),
    20: (2.2, 0.08, 1.4, 0.40),
    10: (1.2, 0.1, 0.7, 0.42),
}


@dataclass(frozen=True)
class ChunkRow:
    """Times of one encoder in chunks."""

    encoder: str  # explicit or fused attention, or the chunk length of the bottleneck
    chunk: int | None
    train_s: float  # seconds of forward and backward, best repeat
    inference_s: float
    train_bytes: int | None  # memory that a call needs; None where the system does not measure it
    inference_bytes: int | None
    train_share: float  # executed FLOP/s, by torch's counter, over the peak of a matrix product
    inference_share: float


@dataclass(frozen=True)
class ChunkResults(Measurements):
    """Results of one run of the benchmark."""

    peak: float  # FLOP/s of a 2048-cubed product in this dtype
    rows: list[ChunkRow]


def run_chunks(config: ChunksBenchmark, progress: Progress = no_progress) -> ChunkResults:
    """Measure, and save the results if ``config.output`` names a folder.

    Args:
        config: settings.
        progress: called with the name of every measurement.

    Raises:
        ValueError: the device does not exist here, or the output folder cannot be written.
    """
    config = replace(config, device=str(choose_device(config.device)))
    length = 64 if config.quick else config.length
    dtype = getattr(torch, config.dtype)
    peak = matmul_peak(dtype, 128 if config.quick else 2048, device=config.device)
    results = ChunkResults(describe(), asdict(config), peak, [])
    encoders = _encoders(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with return_freed_memory():  # before all timings, because kept blocks are reused
            memory = {}
            for name, (_, encoder) in encoders.items():
                progress(f"{name}: memory")
                memory[name] = _memory(encoder, config, length)
        for name, (chunk, encoder) in encoders.items():
            progress(name)
            timing = _time(encoder, config, length, results.peak)
            results.rows.append(ChunkRow(encoder=name, chunk=chunk, **memory[name], **timing))
    save_rows(config.output, "chunks", results, results.rows)
    return results


def _encoders(config: ChunksBenchmark) -> dict[str, tuple[int | None, EncoderConfig]]:
    sizes: dict[str, Any] = {"dim": 256, "hidden_dim": 1024, "num_heads": 4}
    kinds = {"explicit attention": False, "fused attention": True}
    found: dict[str, tuple[int | None, EncoderConfig]] = {
        name: (None, TransformerConfig(**sizes, num_layers=4, fused=fused))
        for name, fused in kinds.items()
        if fused or config.explicit
    }
    for chunk in config.chunks:
        core = TemporalLatentBottleneckConfig(
            **sizes, num_layers=2, self_per_cross=2, num_slots=10, chunk_len=chunk, causal=False
        )
        found[f"chunks of {chunk}"] = chunk, TwoWayTLBConfig(core=core)
    return found


def _calls(config: EncoderConfig, settings: ChunksBenchmark, length: int) -> dict[str, Callable[[], None]]:
    """Return the measured calls: inference, and forward and backward, whose gradients remain until the next call."""
    device = torch.device(settings.device)
    encoder = config.build(256, length).to(device)
    inputs = torch.randn(settings.batch_size, length, 256, device=device)

    def forward() -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.dtype == "bfloat16"):
            outputs, summary = encoder(inputs)
        return (outputs.mean(1) if summary is None else summary).float().square().sum()

    def train() -> None:
        encoder.zero_grad(set_to_none=True)
        forward().backward()
        _wait(device)

    @torch.no_grad()
    def infer() -> None:
        forward()
        _wait(device)

    return {"inference": infer, "train": train}


def _time(config: EncoderConfig, settings: ChunksBenchmark, length: int, peak: float) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for what, function in _calls(config, settings, length).items():
        timing = measure(function, settings.repeats)
        numbers[f"{what}_s"] = round(timing.best, 6)
        numbers[f"{what}_share"] = round(count(function) / timing.best / peak, 4)
    return numbers


def _memory(config: EncoderConfig, settings: ChunksBenchmark, length: int) -> dict[str, Any]:
    device, calls = torch.device(settings.device), _calls(config, settings, length)
    return {f"{what}_bytes": _most(function, device) for what, function in calls.items()}


def _most(function: Callable[[], None], device: torch.device) -> int | None:
    """Return the peak memory of a call above the level before, in bytes."""
    function()  # allocations of the first call are not counted
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return torch.cuda.max_memory_allocated(device) - before
    trim_heap()  # also that call's blocks in holes that others had left
    reset_peak_bytes()
    before = resident_bytes()
    function()
    most = peak_bytes()
    return None if most is None else max(most - before, 0)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def render_chunks(results: ChunkResults) -> Group:
    """Return the results as a table for a terminal."""
    settings = results.config
    table = Table(
        title=f"Rows of {64 if settings['quick'] else settings['length']} steps, batch {settings['batch_size']}"
    )
    table.add_column("encoder")
    for name in ("train\nms", "of peak", "inference\nms", "of peak", "train\nMB", "inference\nMB"):
        table.add_column(name, justify="right")
    baselines = [row for row in results.rows if row.chunk is None]
    for row in baselines:
        table.add_column(f"beside {row.encoder}:\ntrain, inference,\nmemory of both", justify="right")
    table.add_column("paper", justify="right")
    for row in results.rows:
        cells = [f"{1e3 * row.train_s:,.0f}", f"{row.train_share:.0%}", f"{1e3 * row.inference_s:,.0f}"]
        cells += [f"{row.inference_share:.0%}", _megabytes(row.train_bytes), _megabytes(row.inference_bytes)]
        cells += [_beside(row, other) for other in baselines]
        paper = PAPER.get(row.chunk or 0)
        published = "-" if paper is None else f"{paper[2]:.1f}x, {paper[0]:.1f}x, {paper[3]:.2f}x, {paper[1]:.2f}x"
        table.add_row(row.encoder, *cells, published)
    date = results.environment["date"]
    return Group(
        table,
        results.hardware(),
        f"{settings['dtype']}; matmul peak {results.peak / 1e9:.0f} GFLOP/s. Best of the repeats. {date}",
        "Speed-up, and share of the memory. The paper compares with explicit attention, on an accelerator.",
    )


def _beside(row: ChunkRow, other: ChunkRow) -> str:
    speeds = f"{other.train_s / row.train_s:.2f}x, {other.inference_s / row.inference_s:.2f}x"
    return (
        f"{speeds}, {_share(row.train_bytes, other.train_bytes)}, {_share(row.inference_bytes, other.inference_bytes)}"
    )


def _share(one: int | None, other: int | None) -> str:
    return "-" if one is None or not other else f"{one / other:.2f}x"


def _megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f}"
