"""Long-Short Transformer: a window of recent steps, and landmarks that summarise everything before it.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, settings, state, layers,
and all steps of a call at once) with ``attention.py`` (which query reads what, and the two forms of attention), then
``stream.py`` (one step, in place).
"""

from recollect.cores.long_short.core import (
    LongShortTransformer,
    LongShortTransformerConfig,
    LongShortTransformerState,
)
from recollect.cores.long_short.reference import reference_unroll
from recollect.cores.long_short.stream import LongShortTransformerStream

LongShortTransformer.reference_unroll = reference_unroll
LongShortTransformer.stream_type = LongShortTransformerStream

__all__ = [
    "LongShortTransformer",
    "LongShortTransformerConfig",
    "LongShortTransformerState",
    "LongShortTransformerStream",
]
