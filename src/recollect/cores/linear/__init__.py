"""Linear recurrences: state spaces, linear attention and delta rules, with constant memory and parallel training.

Read ``stack`` (what they share), then the file of a core (equations, state, layer, core) and its part of ``reference``
(the same, one step of one row at a time); ``config`` has the settings. All steps of a call at once are in
``recollect.ops.diagonal_scan`` and ``recollect.ops.matrix_scan``; ``stream`` takes one step at a time.
"""

from typing import TYPE_CHECKING

from recollect.cores.linear.config import GatedDeltaNetConfig as GatedDeltaNetConfig
from recollect.cores.linear.config import Mamba2Config as Mamba2Config
from recollect.cores.linear.config import MinGRUConfig as MinGRUConfig
from recollect.cores.linear.config import MLSTMConfig as MLSTMConfig
from recollect.cores.linear.config import RGLRUConfig as RGLRUConfig
from recollect.cores.linear.config import RWKV7Config as RWKV7Config
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.linear.gated_deltanet import GatedDeltaNet as GatedDeltaNet
    from recollect.cores.linear.mamba2 import Mamba2 as Mamba2
    from recollect.cores.linear.min_gru import MinGRU as MinGRU
    from recollect.cores.linear.mlstm import MLSTM as MLSTM
    from recollect.cores.linear.rg_lru import RGLRU as RGLRU
    from recollect.cores.linear.rwkv7 import RWKV7 as RWKV7

__getattr__ = attach(
    __name__,
    {
        "GatedDeltaNet": "gated_deltanet",
        "MLSTM": "mlstm",
        "Mamba2": "mamba2",
        "MinGRU": "min_gru",
        "RGLRU": "rg_lru",
        "RWKV7": "rwkv7",
    },
)
