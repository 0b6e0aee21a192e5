"""LSTM and GRU, with resets inside a call at full speed.

Read ``core`` (equations, states and cores), then ``reference`` (the same, one step of one row at a time); ``config``
has the settings. The loop over the steps of a layer is in ``recollect.ops.recurrent_scans``; ``stream`` takes one step
at a time.
"""

from typing import TYPE_CHECKING

from recollect.cores.recurrent.config import GRUConfig as GRUConfig
from recollect.cores.recurrent.config import LSTMConfig as LSTMConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.recurrent.core import GRU as GRU
    from recollect.cores.recurrent.core import LSTM as LSTM
    from recollect.cores.recurrent.core import GRUState as GRUState
    from recollect.cores.recurrent.core import LSTMState as LSTMState

__getattr__ = attach(__name__, {"GRU": "core", "GRUState": "core", "LSTM": "core", "LSTMState": "core"})
