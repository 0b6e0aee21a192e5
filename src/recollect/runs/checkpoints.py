"""Checkpoints that survive whatever happens while they are written.

    checkpoint/
      step-000000200/
        weights.safetensors     the agent, for anyone to load
        training.safetensors    optimiser, random states, memory carried between unrolls
        progress.json           step, counters, config of the run
        manifest.json           sha256 of every other file: the mark of completeness, written last

A checkpoint is written beside (``.writing-...``), synced to the disk and renamed in one stroke, so that a kill
or a full disk at any moment leaves the earlier ones untouched. One whose manifest is missing or does not agree
is torn: it is passed over, and the one before it is used. Another of the same step moves the old one aside
(``.aside-...``) until it stands itself: a kill between leaves the old one, which counts for as long as nothing
has its name.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from recollect import files
from recollect.runs.errors import RunError

WEIGHTS, TRAINING, PROGRESS, MANIFEST = "weights.safetensors", "training.safetensors", "progress.json", "manifest.json"
_NAME = re.compile(rf"({re.escape(files.BACKUP)})?step-(\d{{9,}})")


class Checkpoint(NamedTuple):
    """What is saved."""

    weights: Mapping[str, Tensor]
    """The agent's parameters and buffers."""
    training: Mapping[str, Tensor]
    """Every other tensor that the run needs to go on."""
    progress: Mapping[str, Any]
    """JSON data; ``progress["step"]`` is the number of finished steps."""


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then drop all but the newest ``keep``.

    One of the same step is replaced unless it holds the same: the step may have been scored since, or belong to
    another past of the run.

    Raises:
        RunError: the disk is full, the folder cannot be written, ...; says what still stands.
    """
    step = checkpoint.progress["step"]
    target = folder / f"step-{step:09d}"
    contents = {
        WEIGHTS: safetensors.torch.save(_plain(checkpoint.weights)),
        TRAINING: safetensors.torch.save(_plain(checkpoint.training)),
        PROGRESS: (json.dumps(checkpoint.progress, indent=2) + "\n").encode(),
    }
    manifest = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    if _is_there(target, manifest):  # the run resumed here and stopped before its next step: nothing is new
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{files.UNFINISHED}*"):  # of a run that was killed while it wrote
            shutil.rmtree(stale)
        with files.new_folder(target) as unfinished:
            for name, content in contents.items():
                files.write_synced(unfinished / name, content)
            files.write_synced(unfinished / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    except OSError as error:
        standing = steps(folder)
        left = f"the checkpoint of step {standing[-1]} stands" if standing else "no checkpoint stands yet"
        raise RunError(
            f"could not write the checkpoint of step {step} to {target}: {error.strerror or error}; {left}. "
            "Make room or make the folder writable, then resume"
        ) from error
    standing = steps(folder)
    # Torn, or the run would have resumed from there; or the best of a past that was not saved.
    later = [old for old in standing if old > step]
    for old in [*later, *[old for old in standing if old <= step][:-keep]]:
        gone = folder / f"step-{old:09d}"
        shutil.rmtree(files.backup_path(gone), ignore_errors=True)
        shutil.rmtree(gone, ignore_errors=True)
    return target


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, oldest first, torn ones included."""
    if not folder.is_dir():
        return []
    return sorted({int(match[2]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))})


def place(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies: aside, where its writer was killed before another one took its name."""
    path = folder / f"step-{step:09d}"
    aside = files.backup_path(path)
    return aside if aside.is_dir() and not path.exists() else path


def step_of(path: Path) -> int:
    """The step of the checkpoint that lies there."""
    return int(path.name.removeprefix(files.BACKUP).removeprefix("step-"))


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """Where the newest complete checkpoint lies, or None, and one line for every torn one that was passed over."""
    torn = []
    for step in reversed(steps(folder)):
        path = place(folder, step)
        reason = defect(path)
        if reason is None:
            return path, torn
        torn.append(f"{path} is torn ({reason}): passed over")
    return None, torn


def newest_progress(folder: Path) -> dict[str, Any]:
    """What the newest complete checkpoint says of its run; nothing where there is none.

    Raises:
        ValueError: it is not what a run writes; names the file.
    """
    path, _ = newest(folder)
    return {} if path is None else read_progress(path)


def read_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest complete checkpoint, or None, and one line for every torn one that was passed over."""
    path, torn = newest(folder)
    return (None if path is None else read(path)), torn


def defect(path: Path) -> str | None:
    """Why a checkpoint cannot be trusted, or None when it can."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        for name in (WEIGHTS, TRAINING, PROGRESS):
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != manifest.get(name):
                return f"{name} does not agree with its checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, AttributeError) as error:
        return f"{MANIFEST} is unreadable: {error}"
    return None


def read(path: Path) -> Checkpoint:
    """The checkpoint in a folder, on the CPU.

    Raises:
        ValueError: a file holds something else than a run writes; names it.
    """
    progress = read_progress(path)
    return Checkpoint(_tensors(path / WEIGHTS), _tensors(path / TRAINING), progress)


def read_progress(path: Path) -> dict[str, Any]:
    """What the checkpoint in a folder says of its run; the tensors are left where they are.

    Raises:
        ValueError: it is not what a run writes; names the file.
    """
    progress = files.read_json(path / PROGRESS, f"remove {path} to use the checkpoint before it")
    files.require_json_type(progress, dict, path / PROGRESS)
    if progress.get("step") != step_of(path):
        raise ValueError(f"{path / PROGRESS} is of step {progress.get('step')!r}: it belongs to another checkpoint")
    return progress


@contextmanager
def belongs(folder: Path, step: int) -> Iterator[None]:
    """What is in the checkpoint of a step is used here: where it does not fit, that is said.

    Raises:
        ValueError: the block met a name, shape or value that is not the run's.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        path = place(folder, step)
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(
            f"the checkpoint {path} is whole, but what it holds does not fit this run ({reason[:300]}): "
            "remove it to use the one before it"
        ) from error


def _is_there(path: Path, manifest: Mapping[str, str]) -> bool:
    """Whether a complete checkpoint stands there with just these contents."""
    return defect(path) is None and json.loads((path / MANIFEST).read_text()) == manifest


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} holds no tensors ({error}): remove {path.parent} to use the one before it") from None


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # safetensors refuses shared or strided storage; a copy has neither.
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
