"""Feedback Transformer (Fan et al. 2020): every layer reads memories that contain the highest layers of the past.

Read ``core.py`` (the equations, the state, the core), then ``reference.py`` (the same as a plain loop). ``config.py``
has the settings, ``attention.py`` the parts of a layer, ``stream.py`` one step in place.
"""

from typing import TYPE_CHECKING

from recollect.cores.feedback.config import FeedbackTransformerConfig as FeedbackTransformerConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.feedback.core import FeedbackState as FeedbackState
    from recollect.cores.feedback.core import FeedbackTransformer as FeedbackTransformer
    from recollect.cores.feedback.stream import FeedbackStream as FeedbackStream

__getattr__ = attach(__name__, {"FeedbackState": "core", "FeedbackStream": "stream", "FeedbackTransformer": "core"})
