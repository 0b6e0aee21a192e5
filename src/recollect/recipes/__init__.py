"""Complete runs as Python functions that return a config, one file per paper. ``RECIPES`` is the table of contents."""

from recollect.config import load_object, require_name
from recollect.recipes.attention_agents.study import STUDY
from recollect.recipes.babyai import BABYAI
from recollect.recipes.base import Recipe, Run, Scale, Test
from recollect.recipes.data_sheet import DATA_SHEET
from recollect.recipes.decision_transformer import DECISION_TRANSFORMER
from recollect.recipes.endless import ENDLESS
from recollect.recipes.gymnasium import GYMNASIUM
from recollect.recipes.hierarchical_transformer_memory import HTM_RECIPES
from recollect.recipes.htm_ablations import ABLATIONS
from recollect.recipes.htm_as_published import AS_PUBLISHED
from recollect.recipes.htm_inference import INFERENCE
from recollect.recipes.htm_ladder import LADDER
from recollect.recipes.long_range import LISTOPS
from recollect.recipes.long_range_arena import ARENA_RECIPES
from recollect.recipes.memory_suite import MEMORY_SUITE
from recollect.recipes.million import MILLION
from recollect.recipes.recall import RECALL
from recollect.recipes.robots import ROBOTS
from recollect.recipes.shipped_models import MODELS
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.recipes.tlb_images import IMAGES
from recollect.recipes.tlb_self_supervised import SELF_SUPERVISED
from recollect.recipes.train import TRAINING, training
from recollect.recipes.ttm_video import TTM_VIDEO


def find_recipe(name: str) -> Recipe:
    """Return a recipe of this library, of an installed package (its name there), or ``package.module:RECIPE``.

    Raises:
        ValueError: an unknown recipe, a module that cannot be imported, or something that is no recipe.
    """
    target = require_name("recipes", name, RECIPES)
    if ":" not in target:
        return RECIPES[target]
    found = load_object(target, "recipe")
    if isinstance(found, Recipe):
        return found
    raise ValueError(f"recipe={target!r} is a {type(found).__name__}: name an instance of recollect.recipes.Recipe")


RECIPES: dict[str, Recipe] = {
    "copying": COPYING,
    "listops": LISTOPS,
    "recall": RECALL,
    "gymnasium": GYMNASIUM,
    "htm-as-published": AS_PUBLISHED,
    "htm-ladder": LADDER,
    "data-sheet": DATA_SHEET,
    "memory-suite": MEMORY_SUITE,
    "million": MILLION,
    "endless": ENDLESS,
    "models": MODELS,
    "tlb-babyai": BABYAI,
    "tlb-decision-transformer": DECISION_TRANSFORMER,
    "attention-agents": STUDY,
    "ttm-robots": ROBOTS,
    "ttm-video": TTM_VIDEO,
    **{recipe.name: recipe for recipe in (*ARENA_RECIPES, IMAGES, SELF_SUPERVISED, *HTM_RECIPES, INFERENCE, ABLATIONS)},
}

__all__ = ["RECIPES", "TRAINING", "Recipe", "Run", "Scale", "Test", "find_recipe", "training"]
