"""A temporal latent bottleneck that reads its instruction again in every chunk (Didolkar et al. 2022, section 3.2).

Read ``core`` (equations, config, state), then ``reference`` (the same as a plain loop).
"""

from recollect.cores.instructed.core import (
    InstructedTransformer,
    InstructedTransformerConfig,
    InstructedTransformerState,
)
from recollect.cores.instructed.reference import reference_unroll

InstructedTransformer.reference_unroll = reference_unroll

__all__ = ["InstructedTransformer", "InstructedTransformerConfig", "InstructedTransformerState"]
