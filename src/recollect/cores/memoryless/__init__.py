"""Memoryless: the ablation that every claim about a memory needs.

Read ``core`` (the equations, the config, the core), then ``reference`` (the same, one step of one row at a time). There
is nothing to remember, so a stream is the core itself, called with one step.
"""

from recollect.cores.memoryless.core import Memoryless, MemorylessConfig, MemorylessState
from recollect.cores.memoryless.reference import reference_unroll

Memoryless.reference_unroll = reference_unroll

__all__ = ["Memoryless", "MemorylessConfig", "MemorylessState", "reference_unroll"]
