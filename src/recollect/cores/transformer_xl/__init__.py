"""Transformer-XL and GTrXL (``gate="gru" relu_outputs=True``): a layer reads its own inputs of the last w steps.

Read ``reference.py`` (the equations, step by step), then ``core.py`` (equations, differences, state, and all steps of a
call at once) and ``config.py`` (settings), then ``stream.py`` (one step, in place). Code shared with other windowed
cores is in ``layers/window_attention.py``, ``layers/ring_attention.py`` and ``layers/gates.py``.
"""

from typing import TYPE_CHECKING

from recollect.cores.transformer_xl.config import TransformerXLConfig as TransformerXLConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.transformer_xl.core import TransformerXL as TransformerXL
    from recollect.cores.transformer_xl.core import TransformerXLState as TransformerXLState
    from recollect.cores.transformer_xl.stream import TransformerXLStream as TransformerXLStream

__getattr__ = attach(__name__, {"TransformerXL": "core", "TransformerXLState": "core", "TransformerXLStream": "stream"})
