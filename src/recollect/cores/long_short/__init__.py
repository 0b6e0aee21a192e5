"""Long-Short Transformer: a window of recent steps, and landmarks that summarize everything before it.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, state, layers, and all
steps of a call at once) with ``attention.py`` (visible steps, and the two forms of attention) and ``config.py``
(settings), then ``stream.py`` (one step, in place).
"""

from typing import TYPE_CHECKING

from recollect.cores.long_short.config import LongShortTransformerConfig as LongShortTransformerConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.long_short.core import LongShortTransformer as LongShortTransformer
    from recollect.cores.long_short.core import LongShortTransformerState as LongShortTransformerState
    from recollect.cores.long_short.stream import LongShortTransformerStream as LongShortTransformerStream

__getattr__ = attach(
    __name__,
    {"LongShortTransformer": "core", "LongShortTransformerState": "core", "LongShortTransformerStream": "stream"},
)
