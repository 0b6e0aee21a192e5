"""Causal Transformer with a bounded key/value cache, the baseline of the other cores.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, state, and all steps of a
call at once) and ``config.py`` (settings), then ``stream.py`` (one step, in place). Code shared with other windowed
cores is in ``layers/window_attention.py`` and ``layers/ring_attention.py``.
"""

from typing import TYPE_CHECKING

from recollect.cores.causal_transformer.config import CausalTransformerConfig as CausalTransformerConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.causal_transformer.core import CausalTransformer as CausalTransformer
    from recollect.cores.causal_transformer.core import CausalTransformerState as CausalTransformerState
    from recollect.cores.causal_transformer.stream import CausalTransformerStream as CausalTransformerStream

__getattr__ = attach(
    __name__, {"CausalTransformer": "core", "CausalTransformerState": "core", "CausalTransformerStream": "stream"}
)
