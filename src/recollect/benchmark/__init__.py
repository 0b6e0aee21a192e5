"""Benchmarks of cores (speed, bytes, FLOPs, roofline), kernels, chunks on long rows, exported steps and live streams.

Importing this package does not import torch: the functions that need it are imported when they are first used.
"""

from typing import TYPE_CHECKING

from recollect.benchmark.config import (
    ChunksBenchmark,
    CoresBenchmark,
    ExportBenchmark,
    HTTPBenchmark,
    NeighboursBenchmark,
    OpsBenchmark,
    PrecisionBenchmark,
    RooflineBenchmark,
    ServingBenchmark,
    SoakBenchmark,
)
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.benchmark.chunks import render_chunks as render_chunks
    from recollect.benchmark.chunks import run_chunks as run_chunks
    from recollect.benchmark.cores import run as run
    from recollect.benchmark.export import render_export as render_export
    from recollect.benchmark.export import run_export as run_export
    from recollect.benchmark.http import render_http as render_http
    from recollect.benchmark.http import run_http as run_http
    from recollect.benchmark.neighbours import render_neighbours as render_neighbours
    from recollect.benchmark.neighbours import run_neighbours as run_neighbours
    from recollect.benchmark.ops import render_ops as render_ops
    from recollect.benchmark.ops import run_ops as run_ops
    from recollect.benchmark.precision import render_precision as render_precision
    from recollect.benchmark.precision import run_precision as run_precision
    from recollect.benchmark.results import Results as Results
    from recollect.benchmark.roofline import render_roofline as render_roofline
    from recollect.benchmark.roofline import run_roofline as run_roofline
    from recollect.benchmark.serving import render_serving as render_serving
    from recollect.benchmark.serving import run_serving as run_serving
    from recollect.benchmark.soak import render_soak as render_soak
    from recollect.benchmark.soak import run_soak as run_soak
    from recollect.benchmark.table import render as render

BENCHMARKS: dict[str, tuple[type, str, str]] = {
    "cores": (CoresBenchmark, "run", "render"),
    "ops": (OpsBenchmark, "run_ops", "render_ops"),
    "chunks": (ChunksBenchmark, "run_chunks", "render_chunks"),
    "export": (ExportBenchmark, "run_export", "render_export"),
    "roofline": (RooflineBenchmark, "run_roofline", "render_roofline"),
    "neighbours": (NeighboursBenchmark, "run_neighbours", "render_neighbours"),
    "precision": (PrecisionBenchmark, "run_precision", "render_precision"),
    "serving": (ServingBenchmark, "run_serving", "render_serving"),
    "soak": (SoakBenchmark, "run_soak", "render_soak"),
    "http": (HTTPBenchmark, "run_http", "render_http"),
}
"""Benchmarks of ``recollect benchmark``: settings, and the functions of this package that measure and make a table."""

__getattr__ = attach(
    __name__,
    {
        "Results": "results",
        "render": "table",
        "render_chunks": "chunks",
        "render_export": "export",
        "render_http": "http",
        "render_neighbours": "neighbours",
        "render_ops": "ops",
        "render_roofline": "roofline",
        "render_precision": "precision",
        "render_serving": "serving",
        "render_soak": "soak",
        "run": "cores",
        "run_chunks": "chunks",
        "run_export": "export",
        "run_http": "http",
        "run_neighbours": "neighbours",
        "run_ops": "ops",
        "run_roofline": "roofline",
        "run_precision": "precision",
        "run_serving": "serving",
        "run_soak": "soak",
    },
)
