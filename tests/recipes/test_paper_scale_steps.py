"""Runs of the papers' sizes build, take one step and save, with few rows in a batch.

Where published data is missing, rows of its sizes are made up.
"""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from recipe_runs import runs_of

from recollect.config import to_json
from recollect.recipes import RECIPES
from recollect.tasks import AAN, CIFAR, IMDB, STL10, GreyCIFAR, Shapes
from recollect.tasks.long_range.bytes import STAND_IN
from recollect.training import REGISTRY
from recollect.training.imitation.config import BOT
from recollect.training.loop import fit
from recollect.training.saved_models import load_model

ROWS = 2
"""Rows of a batch: one step of the published ones takes minutes of a processor."""
MISSING = ("download", "says how to get it", "pip install", "No such file", "is not installed", "not found")
"""Words of the errors about data and packages that tests do not have."""


def kind_of(run):
    """Return what a row is made of, but for its numbers: its modules and their options, its task and its trainer."""
    config = to_json(run.config, REGISTRY)
    parts = {name: _without_numbers(config.get(name)) for name in ("core", "encoder", "agent", "pretraining")}
    return json.dumps([parts, type(run.config.trained_on).__name__, type(run.config).__name__], sort_keys=True)


def _without_numbers(value):
    if isinstance(value, dict):
        return {key: _without_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_numbers(part) for part in value]
    return value if isinstance(value, (str, bool)) or value is None else 0


def rows_by_kind(name):
    """Return one row of every kind of a recipe at the paper's scale."""
    found = {}
    for run in runs_of(name, "paper"):
        found.setdefault(kind_of(run), run)
    return list(found.values())


def with_made_up_rows(config):
    """Return the config with rows of the same sizes that need no files, where there are such."""
    task = config.trained_on
    if isinstance(task, (IMDB, AAN, GreyCIFAR)):
        few = {} if isinstance(task, AAN) else {"validation": 100}
        return replace(config, task=replace(task, path=STAND_IN, **few))
    if isinstance(task, (CIFAR, STL10)):
        return replace(config, task=Shapes(size=task.size, patch=task.patch))
    return config


def with_few_rows(config):
    """Return the config with few rows in a batch, or few demonstrations, on the processor, for one step."""
    names = {field.name for field in fields(config)}
    once = replace(
        config.fit, steps=1, processor_seconds=None, report_every=1, evaluate_every=10**6, checkpoint_every=1
    )
    changes = {"fit": once, "device": "cpu"}
    changes |= {name: ROWS for name in ("batch_size", "evaluation_rows") if name in names}
    if "teacher" in names and config.teacher.name.startswith(BOT):
        changes["teacher"] = replace(config.teacher, name=f"{BOT}{ROWS}")
    if "evaluation" in names and hasattr(config.evaluation, "episodes"):
        changes["evaluation"] = replace(config.evaluation, episodes=ROWS)
    return replace(config, **changes)


def step_and_load(config, folder: Path) -> str:
    """Take a step, load what was saved, and return why that failed; empty if it did not."""
    try:
        outcome = fit(with_few_rows(with_made_up_rows(config)), folder)
        loaded = load_model(folder, "cpu", trust=True)
    except (ValueError, RuntimeError, OSError) as error:
        return str(error).splitlines()[0]
    assert outcome.step == 1
    assert outcome.agent.state_dict().keys() == loaded.state_dict().keys()
    return ""


def test_kinds_tell_modules_and_options_apart():
    babyai = [run.label for run in rows_by_kind("tlb-babyai")]
    assert any(label.startswith("instructed") for label in babyai)
    assert any(label.startswith("transformer") for label in babyai), "the baseline is the same core without slots"
    assert "no-positions-on-slots-paper" in [run.label for run in rows_by_kind("arena-text")]
    assert {"per-layer-paper", "no-past-paper"} <= {run.label for run in rows_by_kind("listops")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "paper" in recipe.runs])
def test_runs_of_the_papers_sizes_take_a_step_and_are_saved(name, tmp_path: Path):
    failures = {run.label: step_and_load(run.config, tmp_path / run.label) for run in rows_by_kind(name)}
    missing = {label: why for label, why in failures.items() if any(word in why for word in MISSING)}
    assert {label: why for label, why in failures.items() if why and label not in missing} == {}
    if missing:
        pytest.skip(f"{len(failures) - len(missing)} of {len(failures)} rows; without data or packages: {missing}")
