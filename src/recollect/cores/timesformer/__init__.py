"""TimeSformer that remembers frames: attention to space and time, divided or joint, over maps of features.

Read ``reference.py`` (the equations, place by place), then ``core.py`` (equations, differences, settings, state), then
``attention.py`` (all steps of a call at once), then ``stream.py`` (one step).
"""

from recollect.cores.timesformer.core import TimeSformer, TimeSformerConfig, TimeSformerState
from recollect.cores.timesformer.reference import reference_unroll
from recollect.cores.timesformer.stream import TimeSformerStream

TimeSformer.reference_unroll = reference_unroll
TimeSformer.stream_type = TimeSformerStream

__all__ = ["TimeSformer", "TimeSformerConfig", "TimeSformerState", "TimeSformerStream"]
