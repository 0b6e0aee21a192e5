"""Complete runs as Python functions that return a config, one file per paper. ``RECIPES`` is the table of contents."""

from recollect.recipes.base import Recipe, Run, Scale, Test
from recollect.recipes.gymnasium import GYMNASIUM
from recollect.recipes.hierarchical_transformer_memory import HTM_RECIPES
from recollect.recipes.htm_ablations import ABLATIONS
from recollect.recipes.htm_inference import INFERENCE
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.recipes.train import TRAINING, training

RECIPES: dict[str, Recipe] = {
    "copying": COPYING,
    "recall": RECALL,
    "gymnasium": GYMNASIUM,
    **{recipe.name: recipe for recipe in (*HTM_RECIPES, INFERENCE, ABLATIONS)},
}

__all__ = ["RECIPES", "TRAINING", "Recipe", "Run", "Scale", "Test", "training"]
