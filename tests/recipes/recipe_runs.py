"""The runs of every recipe, made once in each process of the tests."""

from functools import cache

from recollect.recipes import RECIPES
from recollect.recipes.base import Run


@cache
def runs_of(name: str, scale: str) -> list[Run]:
    """Return the runs of a recipe at a scale."""
    return RECIPES[name].rows(scale)
