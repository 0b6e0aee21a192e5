"""Spatial attention that the memory steers, with a ConvLSTM below and an LSTM above.

Read ``core`` (the equations, the config, the state and the core), then ``reference`` (the same, one place after the
other).
"""

from recollect.cores.mott.core import (
    SpatialAttentionMemory,
    SpatialAttentionMemoryConfig,
    SpatialAttentionMemoryState,
)
from recollect.cores.mott.reference import reference_unroll

SpatialAttentionMemory.reference_unroll = reference_unroll

__all__ = [
    "SpatialAttentionMemory",
    "SpatialAttentionMemoryConfig",
    "SpatialAttentionMemoryState",
    "reference_unroll",
]
