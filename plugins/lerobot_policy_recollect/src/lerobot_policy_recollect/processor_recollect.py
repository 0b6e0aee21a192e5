"""What stands before and behind the policy: LeRobot's defaults, which with this config change no number."""

from typing import Any

from lerobot.processor import make_default_pre_post_processors

from .configuration_recollect import RecollectConfig


def make_recollect_pre_post_processors(config: RecollectConfig, dataset_stats: Any = None) -> tuple[Any, Any]:
    """Pipelines that add a batch axis, move tensors to the device and back, and normalise nothing."""
    return make_default_pre_post_processors(config, dataset_stats, normalizer_device=config.device)
