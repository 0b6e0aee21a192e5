"""Measurements: memory cores (speed, bytes, FLOPs, beside the machine's own peak), kernels, chunks on long rows."""

from typing import Any

from recollect.benchmark.chunks import ChunksBenchmark, render_chunks, run_chunks
from recollect.benchmark.cores import CoresBenchmark, run
from recollect.benchmark.ops import OpsBenchmark, render_ops, run_ops
from recollect.benchmark.results import Results
from recollect.benchmark.table import render

BENCHMARKS: dict[str, tuple[type[Any], Any, Any]] = {
    "cores": (CoresBenchmark, run, render),
    "ops": (OpsBenchmark, run_ops, render_ops),
    "chunks": (ChunksBenchmark, run_chunks, render_chunks),
}
"""What ``recollect benchmark`` can measure: settings, the measurement, its table for a terminal."""

__all__ = [
    "BENCHMARKS",
    "ChunksBenchmark",
    "CoresBenchmark",
    "OpsBenchmark",
    "Results",
    "render",
    "render_chunks",
    "render_ops",
    "run",
    "run_chunks",
    "run_ops",
]
