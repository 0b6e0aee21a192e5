"""What Gymnasium's registry calls: an environment by its world's key in the TASKS table."""

from typing import Any

from recollect.config import lookup
from recollect.tasks import TASKS
from recollect.tasks.gymnasium.views import RecollectEnv, RecollectVectorEnv
from recollect.tasks.worlds.contract import WorldConfig


def make(task: str, *, render_mode: str | None = None, **fields: Any) -> RecollectEnv:
    """The environment of a world: what ``gymnasium.make`` calls."""
    return RecollectEnv(_config(task, fields), render_mode=render_mode)


def make_vector(task: str, num_envs: int = 1, *, render_mode: str | None = None, **fields: Any) -> RecollectVectorEnv:
    """The vector environment of a world: what ``gymnasium.make_vec`` calls."""
    return RecollectVectorEnv(_config(task, fields), num_envs, render_mode=render_mode)


def _config(task: str, fields: dict[str, Any]) -> WorldConfig:
    worlds = {key: entry for key, entry in TASKS.items() if issubclass(entry, WorldConfig)}
    try:
        return lookup(worlds, task, "world")(**fields)
    except TypeError as error:
        raise ValueError(f"{task}: {error}") from None
