"""Put the trained models of the recipe ``models`` into the package: ``python -m recollect.recipes.pack_models [ROOT]``.

``recollect reproduce models --root ROOT`` trains them and writes their results before. A model that did not learn its
task is left out.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.agents.model_sources import RESULTS, SHIPPED
from recollect.config import to_json
from recollect.files import read_json, without_nan, write_atomically
from recollect.recipes.base import Run
from recollect.recipes.reproduce import run_folder
from recollect.recipes.result_files import has_result
from recollect.recipes.shipped_models import MODELS
from recollect.runs.run_directory import RunRecord
from recollect.training import REGISTRY
from recollect.training.saved_run import load_model_and_step
from recollect.training.sharing import write_picture

MOST_BYTES = 1_500_000
"""Of the weights of a model."""
HIDDEN = ("recipe", "scale", "label", "paper", "helps", "config", "curve", "error")
"""Entries of a result file that the package leaves out; the config is in the model's own files."""


def pack_models(root: Path, target: Path = SHIPPED) -> Iterator[str]:
    """Write the folder of every model that learned its task, and yield a line about each.

    Args:
        root: folder of ``results/`` and ``runs/``.
        target: receives a folder per model.
    """
    for run in MODELS.rows("lite"):
        path = root / "results" / MODELS.name / f"{run.label}-seed{run.config.fit.seed}.json"
        if not has_result(path, run):
            yield f"{run.label}: no result of its config in {path}"
            continue
        result = read_json(path, "train it again")
        reason = _why_not(result)
        if reason is None:
            size = _pack(run, result, root, target / run.label)
            reason = f"{size} bytes of weights" + (", MORE than allowed" if size > MOST_BYTES else "")
        yield f"{run.label}: {reason}"


def _why_not(result: Mapping[str, Any]) -> str | None:
    """Return why a model does not ship; None where it learned every test."""
    if result["status"] != "ok":
        return f"left out: {result['error']}"
    for name, test in result["tests"].items():
        if test["chance"] is not None and test["low"] <= test["chance"]:
            return f"left out: {name or 'its task'} has {test['score']:.3f}, which is not above chance"
    return None


def _pack(run: Run, result: Mapping[str, Any], root: Path, folder: Path) -> int:
    """Write one folder; return the bytes of its weights."""
    directory, config = run_folder(MODELS, run, root), run.config
    best = any(test.best for test in run.scored.values())
    model, step = load_model_and_step(config, directory, best=best)
    trained = next(process for process in RunRecord(directory).processes if process["commit"] == result["commit"])
    # The recipe's own command, without the folders of one machine, unless another command trained the run.
    command = {"command": trained["command"] if "scored_by" in result else result["command"]}
    provenance = {**trained, **command, "step": step, "seed": config.fit.seed, "config": to_json(config, REGISTRY)}
    model.save(folder, replace(config.model_spec, run=provenance))
    tests = {
        name: {key: value for key, value in test.items() if key not in ("paper", "correct", "asked")}
        for name, test in result["tests"].items()
    }
    shown = {key: value for key, value in result.items() if key not in HIDDEN}
    task = getattr(config.trained_on, "title", config.model_spec.task)  # a world has a title
    results = {**shown, **command, "task": task, "tests": tests}
    write_atomically(folder / RESULTS, json.dumps(without_nan(results), indent=1) + "\n")
    write_picture(model, config, folder)
    return (folder / "weights.safetensors").stat().st_size


if __name__ == "__main__":
    for line in pack_models(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        print(line)
