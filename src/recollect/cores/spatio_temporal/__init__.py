"""Attention to places of a map, with queries from a Transformer-XL that remembers what they read.

Read ``core.py`` (the equations, the state and the core), then ``reference.py`` (the same, one place after the other),
then ``stream.py`` (one step); ``config.py`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.spatio_temporal.config import SpatioTemporalAttentionConfig as SpatioTemporalAttentionConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.spatio_temporal.core import SpatioTemporalAttention as SpatioTemporalAttention
    from recollect.cores.spatio_temporal.core import SpatioTemporalAttentionState as SpatioTemporalAttentionState
    from recollect.cores.spatio_temporal.stream import SpatioTemporalStream as SpatioTemporalStream

__getattr__ = attach(
    __name__,
    {"SpatioTemporalAttention": "core", "SpatioTemporalAttentionState": "core", "SpatioTemporalStream": "stream"},
)
