"""Complete runs as Python functions that return a config, one file per paper."""

from recollect.recipes.base import Recipe, Run, Scale
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING

RECIPES: dict[str, Recipe] = {
    "copying": COPYING,
    "recall": RECALL,
}

__all__ = ["RECIPES", "Recipe", "Run", "Scale"]
