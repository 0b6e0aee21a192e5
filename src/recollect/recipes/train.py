"""The runs that ``recollect train TASK --core KEY`` starts from."""

from collections.abc import Mapping
from typing import Any

from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import MakeConfig
from recollect.recipes.gymnasium import gymnasium_run
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.tasks import TASKS, GymnasiumConfig
from recollect.training.frame import TrainerConfig
from recollect.training.trainers import trainer_for

TRAINING: dict[str, MakeConfig] = {
    "copying": COPYING.config,
    "recall": RECALL.config,
    "t-maze": htm.t_maze,
    "visual-match": htm.visual_match,
    "ballet": htm.ballet,
    "word-learning": htm.words,
    "object-permanence": htm.permanence,
    "street-learn": htm.streets,
    "associative-inference": htm.inference,
}
"""Tasks whose recipe has chosen the settings; other tasks start from their defaults."""


def training(task: str, core: str) -> TrainerConfig:
    """A complete run of a core on a task.

    Args:
        task: key of a task, or ``gym:ID`` for a Gymnasium environment.
        core: key of a core.

    Raises:
        ValueError: there is no such task or core.
    """
    memory = lookup(CORES, core, "core")()
    if task.startswith("gym:"):
        return gymnasium_run(GymnasiumConfig(id=task.removeprefix("gym:")), memory)
    kind = lookup(TASKS, task, "task")
    if task in TRAINING:
        return TRAINING[task](core)
    if kind is GymnasiumConfig:
        return gymnasium_run(GymnasiumConfig(), memory)
    trainer = trainer_for(kind)
    return trainer(**{trainer.task_field: kind(), "core": memory})


def task_name(config: TrainerConfig) -> str:
    """What is typed for the task of a run: its key, ``gym:ID``, or ``package.module:Class``."""
    task = config.trained_on
    return f"gym:{task.id}" if isinstance(task, GymnasiumConfig) else _name(type(task), TASKS)


def core_name(config: Any) -> str:
    """What is typed for the core of a run: its key, or ``package.module:Class``."""
    return _name(type(config.core), CORES)


def _name(cls: type, table: Mapping[str, type]) -> str:
    return next((key for key, known in table.items() if known is cls), f"{cls.__module__}:{cls.__qualname__}")
