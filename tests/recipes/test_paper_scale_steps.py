"""Runs of the papers' sizes build, take one step and save, with few rows in a batch."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from recipe_runs import runs_of

from recollect.recipes import RECIPES
from recollect.training.loop import fit
from recollect.training.saved_models import load_model

ROWS = 2
"""Rows of a batch: one step of the published ones takes minutes of a processor."""
MISSING = ("download", "says how to get it", "pip install", "No such file", "is not installed", "not found")
"""Words of the errors about data and packages that tests do not have."""


def rows_by_kind(name):
    """Return one row of every kind of model and task of a recipe at the paper's scale."""
    found = {}
    for run in runs_of(name, "paper"):
        found.setdefault((run.core, type(run.config.trained_on), type(run.config)), run)
    return list(found.values())


def with_few_rows(config):
    """Return the config with few rows in a batch, on the processor, for one step."""
    names = {field.name for field in fields(config)}
    once = replace(
        config.fit, steps=1, processor_seconds=None, report_every=1, evaluate_every=10**6, checkpoint_every=1
    )
    changes = {"fit": once, "device": "cpu"}
    changes |= {name: ROWS for name in ("batch_size", "evaluation_rows") if name in names}
    if "evaluation" in names and hasattr(config.evaluation, "episodes"):
        changes["evaluation"] = replace(config.evaluation, episodes=ROWS)
    return replace(config, **changes)


def step_and_load(config, folder: Path) -> str:
    """Take a step, load what was saved, and return why that failed; empty if it did not."""
    try:
        outcome = fit(with_few_rows(config), folder)
        loaded = load_model(folder, "cpu", trust=True)
    except (ValueError, RuntimeError, OSError) as error:
        return str(error).splitlines()[0]
    assert outcome.step == 1
    assert outcome.agent.state_dict().keys() == loaded.state_dict().keys()
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "paper" in recipe.runs])
def test_runs_of_the_papers_sizes_take_a_step_and_are_saved(name, tmp_path: Path):
    failures = {run.label: step_and_load(run.config, tmp_path / run.label) for run in rows_by_kind(name)}
    missing = {label: why for label, why in failures.items() if any(word in why for word in MISSING)}
    assert {label: why for label, why in failures.items() if why and label not in missing} == {}
    if missing:
        pytest.skip(f"{len(failures) - len(missing)} of {len(failures)} rows; without data or packages: {missing}")
