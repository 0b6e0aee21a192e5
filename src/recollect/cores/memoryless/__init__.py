"""Memoryless: the ablation that every claim about a memory needs.

Read ``core`` (equations, core), then ``reference`` (the same, one step of one row at a time) and ``stream``; ``config``
has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.memoryless.config import MemorylessConfig as MemorylessConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.memoryless.core import Memoryless as Memoryless
    from recollect.cores.memoryless.core import MemorylessState as MemorylessState

__getattr__ = attach(__name__, {"Memoryless": "core", "MemorylessState": "core"})
