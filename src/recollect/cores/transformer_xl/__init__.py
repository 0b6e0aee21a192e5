"""Transformer-XL and GTrXL (``gate="gru" relu_outputs=True``): a layer reads its own inputs of the last w steps.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, settings, state, and all
steps of a call at once), then ``stream.py`` (one step, in place). What it shares with other windowed cores is in
``layers/window_attention.py``, ``layers/ring_attention.py`` and ``layers/gates.py``.
"""

from recollect.cores.transformer_xl.core import TransformerXL, TransformerXLConfig, TransformerXLState
from recollect.cores.transformer_xl.reference import reference_unroll
from recollect.cores.transformer_xl.stream import TransformerXLStream

TransformerXL.reference_unroll = reference_unroll
TransformerXL.stream_type = TransformerXLStream

__all__ = ["TransformerXL", "TransformerXLConfig", "TransformerXLState", "TransformerXLStream"]
