"""Hierarchical chunk memory (Lampinen et al. 2021).

Read ``core.py`` (equations, state, core) and ``reference.py`` (the same as a plain loop), then ``attention.py``, which
reads the chunks quickly. ``config.py`` has the settings. ``stream.py`` is the core step by step in deployment, with the
chunks in ``chunk_cache.py``, kept as keys and values (``projected_chunks.py``) or raw (``raw_chunks.py``).
``lifelong.py`` is the same for millions of steps, with ``lifelong_cache.py`` and ``chunk_store.py``;
``external_memory.py`` reads chunks that the caller gives.
"""

from typing import TYPE_CHECKING

from recollect.cores.hcam.config import ChunkAttentionVariant as ChunkAttentionVariant
from recollect.cores.hcam.config import HierarchicalChunkMemoryConfig as HierarchicalChunkMemoryConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.hcam.core import HierarchicalChunkMemory as HierarchicalChunkMemory
    from recollect.cores.hcam.core import HierarchicalChunkMemoryState as HierarchicalChunkMemoryState
    from recollect.cores.hcam.lifelong import LifelongStream as LifelongStream
    from recollect.cores.hcam.stream import HierarchicalChunkStream as HierarchicalChunkStream

__getattr__ = attach(
    __name__,
    {
        "HierarchicalChunkMemory": "core",
        "HierarchicalChunkMemoryState": "core",
        "HierarchicalChunkStream": "stream",
        "LifelongStream": "lifelong",
    },
)
