"""Tables of cores, tasks, agents, trainers, recipes and models, for ``recollect list`` and the docs."""

import math
import re
from collections.abc import Callable
from typing import Any

from recollect.agents import AGENTS
from recollect.agents.model_card import score_rows
from recollect.agents.model_sources import read_results, shipped_models
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.find import make_core_config
from recollect.entry_points import Kind, installed
from recollect.recipes import RECIPES, Recipe, find_recipe
from recollect.recipes.memory_requirements import requirements_of
from recollect.recipes.train import find_task
from recollect.state import nbytes
from recollect.tasks import TASKS, StreamTask, WorldConfig
from recollect.training import TRAINERS

Row = dict[str, Any]


def cores() -> list[Row]:
    """Return a row for every core at its default sizes, for inputs of width 128."""
    return [_core_row(key, config()) for key, config in CORES.items()]


def _core_row(key: str, config: CoreConfig) -> Row:
    core = config.build(input_dim=128)
    return {
        "key": key,
        "core": type(core).__name__,
        "parameters": sum(p.numel() for p in core.parameters()),
        "state bytes": nbytes(core.initial_state(1)),
        "MFLOP per step": round(core.flops_per_step() / 1e6, 2),
    }


def tasks() -> list[Row]:
    """Return a row for every task at its default difficulty, with its memory requirements.

    lag: steps between an item and its use, median and 95 %; ends: ends of episodes in between, the same; past: other
    items in between; bits: amount to remember.
    """
    return [_task_row(key, task()) for key, task in TASKS.items()]


def _task_row(key: str, task: StreamTask | WorldConfig) -> Row:
    chance, needs = task.spec.chance, requirements_of(task)
    asked = dict.fromkeys(("lag", "ends", "past", "bits"), "-")
    if needs is not None:
        asked["lag"] = f"{needs.lag:g}, {needs.lag_high:g}"
        asked["ends"] = f"{needs.episodes:g}, {needs.episodes_high:g}"
        asked["past"] = "-" if math.isnan(needs.distractors) else f"{needs.distractors:g}"
        asked["bits"] = "-" if math.isnan(needs.bits) else f"{needs.bits:.1f}"
    row = {"key": key, "kind": "rows" if isinstance(task, StreamTask) else "world"}
    return row | {"chance": "-" if math.isnan(chance) else f"{chance:.3f}"} | asked | {"about": _summary(type(task))}


def agents() -> list[Row]:
    """Return a row for every agent."""
    return [{"key": key, "about": _summary(config)} for key, config in AGENTS.items()]


def trainers() -> list[Row]:
    """Return a row for every trainer."""
    return [{"key": key, "about": _summary(config)} for key, config in TRAINERS.items()]


def recipes() -> list[Row]:
    """Return a row for every recipe."""
    return [_recipe_row(key, recipe) for key, recipe in RECIPES.items()]


def _recipe_row(key: str, recipe: Recipe) -> Row:
    scales = ", ".join(recipe.runs)
    return {
        "key": key,
        "scales": scales,
        "after": _paper(recipe.source),
        "about": recipe.title,
        "source": recipe.source,
    }


def _paper(source: str) -> str:
    """Return authors and year of a source, which may be ours."""
    found = re.search(r"([A-Z]\w+(?: et al\.)?) \(?(\d{4})", source.partition(";")[0])
    paper = "" if found is None else f"{found[1]} {found[2]}"
    if source.startswith("ours"):
        return f"ours, after {paper}" if paper else "ours"
    return paper or source


def models() -> list[Row]:
    """Return a row for every test of every model that the library ships."""
    rows: list[Row] = []
    for name, folder in shipped_models().items():
        results = read_results(folder)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
        for test, score, interval, chance, number in score_rows(results):
            row = {"key": name, "test": test, "score": score, "interval": interval.replace(" to ", "–")}
            row |= {"chance": chance, "evaluated": number, "core": results["core"]}
            rows.append(row | {"parameters": results["parameters"], "MB": round(size, 2)})
    return rows


TABLE_OF_CONTENTS: dict[str, Callable[[], list[Row]]] = {
    "cores": cores,
    "tasks": tasks,
    "agents": agents,
    "trainers": trainers,
    "recipes": recipes,
    "models": models,
}


INSTALLED: dict[Kind, tuple[Callable[[str, Any], Row], Callable[[str], Any]]] = {
    "cores": (_core_row, make_core_config),
    "tasks": (_task_row, find_task),
    "recipes": (_recipe_row, find_recipe),
}
"""Functions that make the row of an installed name, and load its object."""


def installed_rows(kind: Kind) -> tuple[list[Row], list[str]]:
    """Return a row for everything that installed packages declare, and a line for each that cannot be loaded."""
    rows, broken = [], []
    make, load = INSTALLED[kind]
    for point in installed(kind):
        if point.name in {"cores": CORES, "tasks": TASKS, "recipes": RECIPES}[kind]:
            broken.append(f"{kind}: {point.name!r} of {point.package} is a name of this library: type {point.target}")
            continue
        try:
            rows.append(make(point.name, load(point.target)))
        except Exception as error:  # whatever the package raises
            reason = " ".join(str(error).split()) or type(error).__name__
            broken.append(f"{kind}: {point.name!r} of {point.package} cannot be loaded: {reason}")
    return rows, broken


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").splitlines()[0]
