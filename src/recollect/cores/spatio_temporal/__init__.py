"""Attention to places of a map, steered by a Transformer-XL that remembers what came back.

Read ``core.py`` (the equations, the config, the state and the core), then ``reference.py`` (the same, one place after
the other), then ``stream.py`` (one step).
"""

from recollect.cores.spatio_temporal.core import (
    SpatioTemporalAttention,
    SpatioTemporalAttentionConfig,
    SpatioTemporalAttentionState,
)
from recollect.cores.spatio_temporal.reference import reference_unroll
from recollect.cores.spatio_temporal.stream import SpatioTemporalStream

SpatioTemporalAttention.reference_unroll = reference_unroll
SpatioTemporalAttention.stream_type = SpatioTemporalStream

__all__ = [
    "SpatioTemporalAttention",
    "SpatioTemporalAttentionConfig",
    "SpatioTemporalAttentionState",
    "SpatioTemporalStream",
]
