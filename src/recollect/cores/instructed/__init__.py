"""A temporal latent bottleneck that reads its instruction again in every chunk (Didolkar et al. 2022, section 3.2).

Read ``core`` (equations, state, core), then ``reference`` (the same as a plain loop); ``config`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.instructed.config import InstructedTransformerConfig as InstructedTransformerConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.instructed.core import InstructedTransformer as InstructedTransformer
    from recollect.cores.instructed.core import InstructedTransformerState as InstructedTransformerState

__getattr__ = attach(__name__, {"InstructedTransformer": "core", "InstructedTransformerState": "core"})
