"""Entry points of Gymnasium's registry: build an environment from a world's key in the TASKS table."""

from typing import Any

from gymnasium.vector import AutoresetMode

from recollect.config import lookup
from recollect.tasks import TASKS
from recollect.tasks.gymnasium.views import RecollectEnv, RecollectVectorEnv
from recollect.tasks.worlds.contract import WorldConfig


def make(task: str, *, render_mode: str | None = None, **fields: Any) -> RecollectEnv:
    """Build the environment of a world, for ``gymnasium.make``."""
    return RecollectEnv(_config(task, fields), render_mode=render_mode)


def make_vector(
    task: str,
    num_envs: int = 1,
    *,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **fields: Any,
) -> RecollectVectorEnv:
    """Build the vector environment of a world, for ``gymnasium.make_vec``."""
    config = _config(task, fields)
    return RecollectVectorEnv(config, num_envs, render_mode=render_mode, autoreset_mode=autoreset_mode)


def _config(task: str, fields: dict[str, Any]) -> WorldConfig:
    worlds = {key: entry for key, entry in TASKS.items() if issubclass(entry, WorldConfig)}
    try:
        return lookup(worlds, task, "world")(**fields)
    except TypeError as error:
        raise ValueError(f"{task}: {error}") from None
