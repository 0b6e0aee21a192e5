"""Hybrid: layers of several cores in one residual stack, as in Griffin and Jamba.

Read ``core`` (equations, state, core), then ``reference`` (the same through the layers' plain forms); ``stream`` takes
one step at a time; ``config`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.hybrid.config import HybridConfig as HybridConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.hybrid.core import Hybrid as Hybrid
    from recollect.cores.hybrid.core import HybridState as HybridState

__getattr__ = attach(__name__, {"Hybrid": "core", "HybridState": "core"})
