"""Feedback Transformer (Fan et al. 2020): every layer reads what the highest layers made of the past.

Read ``core`` (the equations, the config, the state, the core), then ``reference`` (the same as a plain loop).
``attention`` has the parts of a layer and how a step reads the memories quickly; ``stream`` takes one step at a time.
"""

from recollect.cores.feedback.core import FeedbackState, FeedbackTransformer, FeedbackTransformerConfig
from recollect.cores.feedback.reference import reference_unroll
from recollect.cores.feedback.stream import FeedbackStream

FeedbackTransformer.reference_unroll = reference_unroll
FeedbackTransformer.stream_type = FeedbackStream

__all__ = ["FeedbackState", "FeedbackStream", "FeedbackTransformer", "FeedbackTransformerConfig", "reference_unroll"]
