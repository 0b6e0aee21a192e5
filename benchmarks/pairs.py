"""Ratios: two ways to do the same job, timed in turns in one process.

A pair says what it compares, which ratio it aims at, and how to build the functions for given shapes. The ratio is
the other form's time over ours: 2 means that ours takes half the time.
"""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.benchmark.timing import interleave, matmul_peak, ratio

Call = Callable[[], object]
PRECISIONS = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Shape:
    """Sizes of everything that is compared."""

    dim: int = 512
    heads: int = 8
    layers: int = 4
    batch: int = 32
    steps: int = 64
    memory: int = 256
    chunks: int = 16
    chunk: int = 32
    top_k: int = 8
    reset_rate: float = 1 / 50
    text_dim: int = 256
    text_steps: int = 4000
    text_batch: int = 2
    tokens: int = 3136
    slots: int = 96
    reads: int = 16
    frames: int = 6

    def quick(self) -> "Shape":
        """The same in small, to see that everything runs."""
        return replace(
            self,
            dim=32, heads=4, layers=2, batch=2, steps=8, memory=16, chunks=6, chunk=4, top_k=2,
            text_dim=32, text_steps=200, text_batch=1, tokens=64, slots=8, reads=4, frames=2,
        )  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """One comparison."""

    name: str
    about: str
    """What is compared with what."""
    build: Callable[[Shape], tuple[Call, Call]]
    """Ours, then the other one."""
    aim: float | None = None
    """Smallest ratio that is good enough."""
    precisions: tuple[str, ...] = ("f32", "bf16")


def training(module: nn.Module, forward: Callable[[], Tensor]) -> Call:
    """A call that makes a forward and a backward pass, its loss the mean square of the output."""

    def call() -> None:
        module.zero_grad(set_to_none=True)
        torch.clear_autocast_cache()  # as after an optimiser step: weights are cast anew
        loss = forward().float().square().mean()
        with torch.autocast("cpu", enabled=False):
            loss.backward()

    return call


def arguments(description: str | None, pairs: Iterable[Pair]) -> argparse.Namespace:
    """What a person may say on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="pairs whose name contains one of these words")
    parser.add_argument("--precision", nargs="+", choices=list(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--threads", type=int, help="torch's choice when not given")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90, help="time limit of a pair and precision")
    parser.add_argument("--quick", action="store_true", help="small shapes: says nothing about speed")
    parser.add_argument("--output", default="benchmarks/results", help="folder of the JSON file; '' saves nothing")
    parser.add_argument("--list", action="store_true", help="only name the pairs")
    chosen = parser.parse_args()
    if chosen.list:
        for pair in pairs:
            print(f"{pair.name:40s} {pair.about}")
        raise SystemExit
    return chosen


def measure_pairs(pairs: Iterable[Pair], options: argparse.Namespace) -> dict[str, Any]:
    """Time all pairs that ``options`` ask for."""
    if options.threads:
        torch.set_num_threads(options.threads)
    shape = Shape().quick() if options.quick else Shape()
    size = 256 if options.quick else 2048
    found = {"environment": describe(), "shape": asdict(shape), "rows": []}
    found["matmul_peak"] = {name: matmul_peak(dtype, size) for name, dtype in PRECISIONS.items()}
    console = Console(stderr=True)
    for pair in pairs:
        if options.only and not any(word in pair.name for word in options.only):
            continue
        for precision in (p for p in pair.precisions if p in options.precision):
            console.print(f"{pair.name}, {precision}", style="dim")
            found["rows"].append({"name": pair.name, **measure_pair(pair, shape, precision, options)})
    return found


def measure_pair(pair: Pair, shape: Shape, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    """Time one pair at one precision."""
    torch.manual_seed(0)
    row: dict[str, Any] = {"about": pair.about, "aim": pair.aim, "precision": precision}
    context = contextlib.nullcontext() if precision == "f32" else torch.autocast("cpu", PRECISIONS[precision])
    try:
        with context:
            ours, other = pair.build(shape)
            times = interleave(
                {"ours": ours, "other": other},
                options.repeats,
                min_seconds=min(0.1, options.seconds / 10),
                max_seconds=options.seconds,
            )
    except ImportError as missing:
        return {**row, "skipped": f"{missing}: pip install '.[peers]'"}
    middle, least, most = ratio(times["other"], times["ours"])
    best = times["other"].best / times["ours"].best
    return {
        **row,
        "ratio": round(middle, 3),
        "ratio_of_best": round(best, 3),
        "lowest": round(least, 3),
        "highest": round(most, 3),
        "ours_us": [round(s * 1e6, 1) for s in times["ours"].seconds],
        "other_us": [round(s * 1e6, 1) for s in times["other"].seconds],
    }


def report(found: dict[str, Any], name: str, output: str) -> None:
    """Print the table; save ``NAME-DATE.json``."""
    table = Table(title="The other form's time over ours: median of the rounds (lowest to highest)")
    table.add_column("pair", no_wrap=True)
    table.add_column("precision")
    for column in ("ours, us", "other, us", "ratio", "aim"):
        table.add_column(column, justify="right", no_wrap=True)
    skipped: set[str] = set()
    for row in found["rows"]:
        if "skipped" in row:
            table.add_row(row["name"], row["precision"], "-", "-", "skipped", "-")
            skipped.add(row["skipped"])
            continue
        missed = row["aim"] is not None and row["ratio"] < row["aim"]
        table.add_row(
            row["name"],
            row["precision"],
            f"{min(row['ours_us']):,.0f}",
            f"{min(row['other_us']):,.0f}",
            f"{'[red]' if missed else ''}{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})",
            "-" if row["aim"] is None else f"{row['aim']:g}",
        )
    console = Console()
    console = console if console.is_terminal else Console(width=120)
    console.print(table, *skipped, sep="\n")
    where = found["environment"]
    console.print(f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}, commit {where['commit']}")
    peaks = ", ".join(f"{name} {value / 1e9:.0f} GFLOP/s" for name, value in found["matmul_peak"].items())
    console.print(f"matmul peak: {peaks}")
    if output:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = "".join(c for c in where["date"][:19] if c.isdigit())
        (folder / f"{name}-{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
