"""What there is, as rows of plain text and numbers: the tables of ``recollect list`` and of the docs."""

import math
from collections.abc import Callable
from typing import Any

from recollect.agents import AGENTS
from recollect.cores import CORES
from recollect.recipes import RECIPES
from recollect.state import nbytes
from recollect.tasks import TASKS, StreamTask
from recollect.training import TRAINERS

Row = dict[str, Any]


def cores() -> list[Row]:
    """Every core at its default sizes, for inputs of width 128."""
    rows: list[Row] = []
    for key, config in CORES.items():
        core = config().build(input_dim=128)
        rows.append(
            {
                "key": key,
                "core": type(core).__name__,
                "parameters": sum(p.numel() for p in core.parameters()),
                "state bytes": nbytes(core.initial_state(1)),
                "MFLOP per step": round(core.flops_per_step() / 1e6, 2),
            }
        )
    return rows


def tasks() -> list[Row]:
    """Every task at its default difficulty."""
    rows: list[Row] = []
    for key, task in TASKS.items():
        spec = task().spec
        kind = "rows" if issubclass(task, StreamTask) else "world"
        chance = "-" if math.isnan(spec.chance) else f"{spec.chance:.3f}"
        span = f"{spec.memory_span}" if spec.memory_span else "-"
        rows.append({"key": key, "kind": kind, "chance": chance, "memory span": span, "about": _summary(task)})
    return rows


def agents() -> list[Row]:
    """Every agent."""
    return [{"key": key, "about": _summary(config)} for key, config in AGENTS.items()]


def trainers() -> list[Row]:
    """Every trainer."""
    return [{"key": key, "about": _summary(config)} for key, config in TRAINERS.items()]


def recipes() -> list[Row]:
    """Every recipe."""
    return [
        {"key": key, "scales": ", ".join(recipe.runs), "about": recipe.title, "source": recipe.source}
        for key, recipe in RECIPES.items()
    ]


CONTENTS: dict[str, Callable[[], list[Row]]] = {
    "cores": cores,
    "tasks": tasks,
    "agents": agents,
    "trainers": trainers,
    "recipes": recipes,
}


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").splitlines()[0]
