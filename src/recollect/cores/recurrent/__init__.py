"""LSTM and GRU, with resets inside a call at full speed.

Read ``core`` (the equations of both, the configs, states and cores), then ``reference`` (the same, one step of one row
at a time). The loop over the steps of a layer is in ``recollect.ops.recurrent_scans``; ``stream`` takes one step at a
time.
"""

from recollect.cores.recurrent.core import GRU, LSTM, GRUConfig, GRUState, LSTMConfig, LSTMState
from recollect.cores.recurrent.reference import reference_unroll
from recollect.cores.recurrent.stream import GRUStream, LSTMStream

LSTM.reference_unroll = reference_unroll
LSTM.stream_type = LSTMStream
GRU.reference_unroll = reference_unroll
GRU.stream_type = GRUStream

__all__ = [
    "GRU",
    "LSTM",
    "GRUConfig",
    "GRUState",
    "GRUStream",
    "LSTMConfig",
    "LSTMState",
    "LSTMStream",
    "reference_unroll",
]
