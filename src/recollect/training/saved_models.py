"""Load a trained model from wherever it is: a model folder, or a run directory with its newest and best weights.

    model = recollect.load("runs/sensors")            # or a folder that model.save wrote, on any machine
    stream = model.stream(batch_size=1)

A checkpoint of a run is a model folder too, so neither the run's task nor its trainer is needed. Runs of older versions
have no such folders; they are loaded with the task in their config.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import torch

from recollect.agents.model_sources import find_model
from recollect.agents.saved_model import is_model_folder, load_folder
from recollect.runs import checkpoints
from recollect.runs.run_directory import resolve_run


def load_model(
    source: str | PathLike[str],
    device: torch.device | str = "cpu",
    *,
    best: bool = False,
    trust: bool = False,
) -> Any:
    """Load a trained model, in ``eval`` mode, without its task, data, world or trainer; also ``recollect.load``.

    Args:
        source: a model folder; a run directory, for its newest weights, or its folder ``best``; ``model:NAME`` for one
            that the library ships; or ``hub:OWNER/NAME``.
        device: of the model.
        best: of a run, take the weights of its best evaluation.
        trust: import modules of user-defined cores that it names.

    Returns:
        The model in the dtype that it was saved in, with its names, units and provenance in ``model.spec``.

    Raises:
        ValueError: there is no model, or its files are damaged; names the file and the remedy.
    """
    folder = _find_folder(source, best=best)
    if folder is not None:
        return load_folder(folder, device, trust=trust)
    from recollect.training.saved_run import load_with_task

    return load_with_task(source, device, best=best, trust=trust)


def resolve_folder(source: str | PathLike[str], *, best: bool = False) -> Path:
    """Return the model folder that :func:`load_model` reads.

    Raises:
        ValueError: there is none.
    """
    folder = _find_folder(source, best=best)
    if folder is None:
        raise ValueError(
            f"{source} is a run of an older version, without a model folder: write one with "
            "recollect.load(run).save(folder)"
        )
    return folder


def _find_folder(source: str | PathLike[str], *, best: bool) -> Path | None:
    """Return the model folder of a source; None for a run of an older version."""
    run, is_best = resolve_run(find_model(source))
    path, best = run.path, best or is_best
    if not path.is_dir():
        raise ValueError(f"source={str(source)!r}: there is no such folder: give a model folder or a run directory")
    if is_model_folder(path):
        return path
    if not run.checkpoints.is_dir():
        return path  # whose error names what is missing
    newest, torn = checkpoints.newest(run.checkpoint_folder(best=best))
    if newest is None:
        also = f" ({'; '.join(torn)})" if torn else ""
        remedy = "take the newest one, or evaluate first" if best else "train it with --resume"
        raise ValueError(f"{path} has no complete {'best ' if best else ''}checkpoint yet{also}: {remedy}")
    return newest if is_model_folder(newest) else None
