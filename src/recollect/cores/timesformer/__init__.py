"""TimeSformer that remembers frames: attention to space and time, divided or joint, over maps of features.

Read ``reference.py`` (the equations, place by place), then ``core.py`` (equations, differences, state), then
``attention.py`` (all steps of a call at once), then ``stream.py`` (one step); ``config.py`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.timesformer.config import TimeSformerConfig as TimeSformerConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.timesformer.core import TimeSformer as TimeSformer
    from recollect.cores.timesformer.core import TimeSformerState as TimeSformerState
    from recollect.cores.timesformer.stream import TimeSformerStream as TimeSformerStream

__getattr__ = attach(__name__, {"TimeSformer": "core", "TimeSformerState": "core", "TimeSformerStream": "stream"})
