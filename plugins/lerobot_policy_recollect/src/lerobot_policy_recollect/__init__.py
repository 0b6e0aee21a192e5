"""Policies with a memory, trained by Recollect, for LeRobot."""

try:
    import lerobot  # noqa: F401
except ImportError:
    raise ImportError("lerobot is not installed: pip install lerobot, then use this package") from None

from .configuration_recollect import RecollectConfig
from .modeling_recollect import RecollectPolicy
from .processor_recollect import make_recollect_pre_post_processors

__all__ = ["RecollectConfig", "RecollectPolicy", "make_recollect_pre_post_processors"]
