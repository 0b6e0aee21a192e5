"""Token Turing Machines (Ryoo et al. 2023), and the Recurrent Transformer of their table 2.

Read ``reference.py`` beside the paper first: equations 1 to 8 as a plain loop, and both machines. Then ``core.py``, the
machine as it is computed; its parts are ``summarizers.py`` (read and write), ``processors.py`` (between the two) and
``erase_add.py`` (another write). ``recurrent_transformer.py`` is the baseline, made of the same parts.
"""

from recollect.cores.ttm.core import TokenTuringMachine, TokenTuringMachineConfig, TokenTuringMachineStream
from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer, RecurrentTransformerConfig
from recollect.cores.ttm.reference import recurrent_reference_unroll, reference_unroll

TokenTuringMachine.stream_type = TokenTuringMachineStream
TokenTuringMachine.reference_unroll = reference_unroll
RecurrentTransformer.reference_unroll = recurrent_reference_unroll

__all__ = [
    "RecurrentTransformer",
    "RecurrentTransformerConfig",
    "TokenTuringMachine",
    "TokenTuringMachineConfig",
]
