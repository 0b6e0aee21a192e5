"""Hierarchical chunk memory (Lampinen et al. 2021).

Read ``core.py`` (equations, settings, state, core) and ``reference.py`` (the same as a plain loop); then
``attention.py``, which reads the chunks quickly. ``stream.py`` is the core step by step in deployment, with the chunks
in ``chunk_cache.py``; ``lifelong.py`` is the same for millions of steps, with ``lifelong_cache.py`` and
``chunk_store.py``. The core imports none of its streams and not its plain form: they are handed to it here.
"""

from recollect.cores.hcam.attention import ChunkAttentionVariant
from recollect.cores.hcam.core import (
    HierarchicalChunkMemory,
    HierarchicalChunkMemoryConfig,
    HierarchicalChunkMemoryState,
)
from recollect.cores.hcam.lifelong import LifelongStream
from recollect.cores.hcam.reference import reference_unroll
from recollect.cores.hcam.stream import HierarchicalChunkStream

HierarchicalChunkMemory.stream_type = HierarchicalChunkStream
HierarchicalChunkMemory.lifelong_type = LifelongStream
HierarchicalChunkMemory.reference_unroll = reference_unroll

__all__ = [
    "ChunkAttentionVariant",
    "HierarchicalChunkMemory",
    "HierarchicalChunkMemoryConfig",
    "HierarchicalChunkMemoryState",
    "HierarchicalChunkStream",
    "LifelongStream",
    "reference_unroll",
]
