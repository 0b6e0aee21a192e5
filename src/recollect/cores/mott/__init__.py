"""Spatial attention with queries from the memory, between a ConvLSTM and an LSTM.

Read ``core.py`` (the equations, the state and the core), then ``reference.py`` (the same, one place after the other);
``config.py`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.mott.config import SpatialAttentionMemoryConfig as SpatialAttentionMemoryConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.mott.core import SpatialAttentionMemory as SpatialAttentionMemory
    from recollect.cores.mott.core import SpatialAttentionMemoryState as SpatialAttentionMemoryState

__getattr__ = attach(__name__, {"SpatialAttentionMemory": "core", "SpatialAttentionMemoryState": "core"})
