"""Complete runs as Python functions that return a config, one file per paper."""

from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import MakeConfig, Recipe, Run, Scale, Test
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.tasks import TASKS, GymnasiumConfig
from recollect.training.frame import TrainerConfig
from recollect.training.trainers import trainer_for

RECIPES: dict[str, Recipe] = {
    "copying": COPYING,
    "recall": RECALL,
    **{recipe.name: recipe for recipe in htm.HTM_RECIPES},
}

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
"""What ``recollect train TASK`` starts from; other tasks start from their defaults."""


def training(task: str, core: str) -> TrainerConfig:
    """A complete run of a core on a task.

    Args:
        task: key of a task, or ``gym:ID`` for a Gymnasium environment.
        core: key of a core.

    Raises:
        ValueError: there is no such task or core.
    """
    gym_id = task.removeprefix("gym:") if task.startswith("gym:") else None
    kind = lookup(TASKS, task, "task") if gym_id is None else GymnasiumConfig
    lookup(CORES, core, "core")
    if task in TRAINING:
        return TRAINING[task](core)
    trainer = trainer_for(kind)
    where = kind() if gym_id is None else GymnasiumConfig(id=gym_id)
    return trainer(**{trainer.task_field: where, "core": CORES[core]()})


__all__ = ["RECIPES", "TRAINING", "Recipe", "Run", "Scale", "Test", "training"]
