"""Measurements: memory cores (speed, bytes and FLOPs, each beside the machine's own peak) and hand-written kernels."""

from typing import Any

from recollect.benchmark.cores import CoresBenchmark, run
from recollect.benchmark.ops import OpsBenchmark, render_ops, run_ops
from recollect.benchmark.results import Results
from recollect.benchmark.table import render

BENCHMARKS: dict[str, tuple[type[Any], Any, Any]] = {
    "cores": (CoresBenchmark, run, render),
    "ops": (OpsBenchmark, run_ops, render_ops),
}
"""What ``recollect benchmark`` can measure: settings, the measurement, its table for a terminal."""

__all__ = ["BENCHMARKS", "CoresBenchmark", "OpsBenchmark", "Results", "render", "render_ops", "run", "run_ops"]
