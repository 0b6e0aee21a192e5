"""Complete runs as Python functions that return a config, one file per paper."""

from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import MakeConfig, Recipe, Run, RunConfig, Scale, Test
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.tasks import TASKS, GymnasiumConfig
from recollect.tasks.streams.contract import StreamTask
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.supervised import SupervisedConfig

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


def training(task: str, core: str) -> RunConfig:
    """A complete run of a core on a task.

    Args:
        task: key of a task, or ``gym:ID`` for a Gymnasium environment.
        core: key of a core.

    Raises:
        ValueError: there is no such task or core.
    """
    if task.startswith("gym:"):
        lookup(CORES, core, "core")
        return ImpalaConfig(world=GymnasiumConfig(id=task.removeprefix("gym:")), core=CORES[core]())
    kind = lookup(TASKS, task, "task")
    lookup(CORES, core, "core")
    if task in TRAINING:
        return TRAINING[task](core)
    if issubclass(kind, StreamTask):
        return SupervisedConfig(task=kind(), core=CORES[core]())
    return ImpalaConfig(world=kind(), core=CORES[core]())


__all__ = ["RECIPES", "TRAINING", "Recipe", "Run", "RunConfig", "Scale", "Test", "training"]
