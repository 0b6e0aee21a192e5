"""Memory requirements of all tasks, as measured by :mod:`recollect.tasks.memory_requirements`.

``memory_requirements.json`` caches the measurements for every task of the library and of its recipes. ``make tables``
(or ``python -m recollect.recipes.memory_requirements``) measures new tasks; after a change of a world, delete its
entries first, or measure everything, for minutes, with ``--again``. Tasks that are not in the file are measured when
they are needed.

    demands     name of a task: its MemoryRequirements, null where unknown
    policies    name of a world: the scores of its named policies other than the oracle
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from recollect.config import to_json
from recollect.files import write_atomically
from recollect.recipes import RECIPES
from recollect.tasks import TASKS, GymnasiumConfig, StreamTask, WorldConfig
from recollect.tasks.gymnasium.mortar_mayhem import EndlessMortarMayhemConfig
from recollect.tasks.gymnasium.polygons import PolygonsConfig
from recollect.tasks.memory_requirements import EPISODES, MemoryRequirements, measure, policy_scores

FILE = Path(__file__).with_name("memory_requirements.json")
POLICY_EPISODES = 1024
"""Episodes that score a named policy."""

LONG, FEW = 4096, 16
"""Length from which only a few episodes are played, and how many."""
LONGEST = 50_000
"""Length from which no episodes are played; the requirements are then unknown."""

Task = StreamTask | WorldConfig


def requirements_of(task: Task) -> MemoryRequirements | None:
    """Return the memory requirements of a task; None where unknown."""
    name = name_of(task)
    kept = _kept()["demands"]
    if name not in kept:
        kept[name] = _demand(task)
    found = kept[name]
    return (
        None if found is None else MemoryRequirements(**{key: math.nan if x is None else x for key, x in found.items()})
    )


def policies_of(task: Task) -> dict[str, float]:
    """Return the scores of a world's named policies other than the oracle."""
    if not _names_policies(task):
        return {}
    name = name_of(task)
    kept = _kept()["policies"]
    if name not in kept:
        kept[name] = policy_scores(task, POLICY_EPISODES)
    return kept[name]


def _names_policies(task: Task) -> TypeGuard[WorldConfig]:
    foreign = isinstance(task, GymnasiumConfig)  # has no named policies, and its package may be missing
    return isinstance(task, WorldConfig) and not foreign and bool(task.spec.policies)


def name_of(task: Task) -> str:
    """Return the key of a task with its non-default fields, as JSON."""
    cls = type(task)
    kinds = {kind: key for key, kind in TASKS.items()}
    data, default = to_json(task, {}), to_json(cls(), {})
    changed = {field.name: data[field.name] for field in fields(task) if data[field.name] != default[field.name]}
    return kinds.get(cls, f"{cls.__module__}:{cls.__qualname__}") + (json.dumps(changed) if changed else "")


def all_tasks() -> Iterator[Task]:
    """Yield every task of the library at its defaults, and every task that a row of a recipe is scored on."""
    for task in TASKS.values():
        yield task()
    for recipe in RECIPES.values():
        for scale in recipe.runs:
            for run in recipe.rows(scale):
                yield from (test.where for test in run.scored.values())


def _demand(task: Task) -> dict[str, Any] | None:
    # Other libraries' environments have no ground truth.
    if isinstance(task, (GymnasiumConfig, EndlessMortarMayhemConfig, PolygonsConfig)):
        return None
    if isinstance(task, StreamTask) and not task.spec.memory_span:  # unknown; sampling may need files
        return None
    steps = task.spec.max_steps if isinstance(task, WorldConfig) else 0
    if steps > LONGEST:
        return None
    found = measure(task, EPISODES if steps <= LONG else FEW)
    return found and {key: None if math.isnan(x) else x for key, x in asdict(found).items()}


@cache
def _kept() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text())


def measured(*, again: bool = False) -> str:
    """Return the new text of ``memory_requirements.json``: without removed tasks, with new ones.

    Args:
        again: measure everything.
    """
    kept = {"demands": {}, "policies": {}} if again else _kept()
    tasks = {name_of(task): task for task in all_tasks()}
    worlds = {name: task for name, task in tasks.items() if _names_policies(task)}
    demands, policies = kept["demands"], kept["policies"]
    demands = {name: demands[name] if name in demands else _demand(task) for name, task in sorted(tasks.items())}
    policies = {
        name: policies[name] if name in policies else policy_scores(world, POLICY_EPISODES)
        for name, world in sorted(worlds.items())
    }
    return json.dumps({"demands": demands, "policies": policies}, indent=1) + "\n"


if __name__ == "__main__":
    write_atomically(FILE, measured(again="--again" in sys.argv[1:]))
