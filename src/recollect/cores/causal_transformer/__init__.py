"""Causal Transformer with a bounded key/value cache: the Transformer that the other cores are measured against.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, settings, state, and all
steps of a call at once), then ``stream.py`` (one step, in place). What it shares with Transformer-XL and the
hierarchical chunk memory is in ``layers/window_attention.py`` and ``layers/ring_attention.py``.
"""

from recollect.cores.causal_transformer.core import CausalTransformer, CausalTransformerConfig, CausalTransformerState
from recollect.cores.causal_transformer.reference import reference_unroll
from recollect.cores.causal_transformer.stream import CausalTransformerStream

CausalTransformer.reference_unroll = reference_unroll
CausalTransformer.stream_type = CausalTransformerStream

__all__ = ["CausalTransformer", "CausalTransformerConfig", "CausalTransformerState", "CausalTransformerStream"]
