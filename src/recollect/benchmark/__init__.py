"""Measurements of memory cores: speed, bytes and FLOPs, each beside the machine's own peak."""

from recollect.benchmark.cores import CoresBenchmark, run
from recollect.benchmark.results import Results
from recollect.benchmark.table import render

__all__ = ["CoresBenchmark", "Results", "render", "run"]
