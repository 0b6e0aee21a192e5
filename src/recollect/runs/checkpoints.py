"""Checkpoints that survive a kill or a full disk at any moment of writing.

    checkpoint/
      step-000000200/
        weights.safetensors     the agent
        config.json, spec.json  with the weights a model folder, which needs no task or trainer (agents/saved_model.py)
        training.safetensors    optimiser, random states, memory carried between unrolls
        progress.json           step, counters, config of the run
        manifest.json           sha256 of every other file; written last, it marks the checkpoint as complete

A checkpoint is written to a folder ``.writing-...``, synced to the disk and renamed, so that the earlier ones are
untouched until it is complete. A checkpoint without a manifest that agrees is torn: it is skipped, and the one before
it is used. A checkpoint of the same step first renames the old one to ``.aside-...``, which stays valid until the new
one has its name.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from recollect import files
from recollect.agents.saved_model import CONFIG, SPEC, independent_copies
from recollect.runs.errors import RunError

WEIGHTS, TRAINING, PROGRESS, MANIFEST = "weights.safetensors", "training.safetensors", "progress.json", "manifest.json"
_NAME = re.compile(rf"({re.escape(files.BACKUP)})?step-(\d{{9,}})")


class Checkpoint(NamedTuple):
    """Contents of a checkpoint."""

    weights: Mapping[str, Tensor]
    """The agent's parameters and buffers."""
    training: Mapping[str, Tensor]
    """All other tensors that the run needs to continue."""
    progress: Mapping[str, Any]
    """JSON data; ``progress["step"]`` is the number of finished steps."""
    model: Mapping[str, str] = MappingProxyType({})
    """Texts of config.json and spec.json; empty where it was read, or is of an older version."""


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest ``keep``.

    One of the same step is replaced unless its contents are equal: the step may have been scored since, or have been
    reached by other steps.

    Raises:
        RunError: the disk is full, the folder cannot be written, ...; names the newest checkpoint that is left.
    """
    step = checkpoint.progress["step"]
    target = folder / f"step-{step:09d}"
    contents = {
        WEIGHTS: safetensors.torch.save(independent_copies(checkpoint.weights)),
        TRAINING: safetensors.torch.save(independent_copies(checkpoint.training)),
        PROGRESS: (json.dumps(checkpoint.progress, indent=2) + "\n").encode(),
        **{name: text.encode() for name, text in checkpoint.model.items()},
    }
    manifest = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    if _has_contents(target, manifest):  # the run resumed here and stopped before its next step
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
        raise RunError(
            f"could not write the checkpoint of step {step} to {target}: {error.strerror or error}; "
            f"{describe_newest(folder)}. Make room or make the folder writable, then resume"
        ) from error
    present = steps(folder)
    # Later ones are torn, else the run would have resumed there; or the best of steps that were not saved.
    later = [old for old in present if old > step]
    for old in [*later, *[old for old in present if old <= step][:-keep]]:
        removed = folder / f"step-{old:09d}"
        shutil.rmtree(files.backup_path(removed), ignore_errors=True)
        shutil.rmtree(removed, ignore_errors=True)
    return target


def describe_newest(folder: Path) -> str:
    """Return a clause for error messages that names the newest checkpoint in a folder."""
    present = steps(folder)
    return f"the checkpoint of step {present[-1]} is intact" if present else "there is no checkpoint yet"


NONE_LEFT = "no checkpoint and no best evaluation is complete: the run begins again at step 0"


def steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, oldest first, torn ones included."""
    if not folder.is_dir():
        return []
    return sorted({int(match[2]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))})


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of a step's checkpoint: its backup, if its replacement was killed before it was complete."""
    path = folder / f"step-{step:09d}"
    backup = files.backup_path(path)
    return backup if backup.is_dir() and not path.exists() else path


def step_of(path: Path) -> int:
    """Return the step of the checkpoint at a path."""
    return int(path.name.removeprefix(files.BACKUP).removeprefix("step-"))


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the path of the newest complete checkpoint, or None, and one line for every torn one after it."""
    torn = []
    for step in reversed(steps(folder)):
        path = checkpoint_path(folder, step)
        reason = find_defect(path)
        if reason is None:
            return path, torn
        torn.append(f"{path} is torn ({reason}): skipped")
    return None, torn


def read_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest complete checkpoint, or None, and one line for every torn one after it."""
    path, torn = newest(folder)
    return (None if path is None else read(path)), torn


def find_defect(path: Path) -> str | None:
    """Return why a checkpoint is torn, or None for a complete one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        older = [name for name in (CONFIG, SPEC) if name not in manifest]  # which had no such files
        for name in (WEIGHTS, TRAINING, PROGRESS, CONFIG, SPEC):
            if name in older:
                continue
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != manifest.get(name):
                return f"{name} does not agree with its checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, AttributeError) as error:
        return f"{MANIFEST} is unreadable: {error}"
    return None


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, onto the CPU.

    Raises:
        ValueError: a file does not hold what a run writes; names it.
    """
    progress = read_progress(path)
    return Checkpoint(_tensors(path / WEIGHTS), _tensors(path / TRAINING), progress, {})


def read_progress(path: Path) -> dict[str, Any]:
    """Read the JSON data of a checkpoint, without its tensors.

    Raises:
        ValueError: the file does not hold what a run writes; names it.
    """
    progress = files.read_json(path / PROGRESS, f"remove {path} to use the checkpoint before it")
    files.require_json_type(progress, dict, path / PROGRESS)
    if progress.get("step") != step_of(path):
        raise ValueError(f"{path / PROGRESS} is of step {progress.get('step')!r}: it belongs to another checkpoint")
    return progress


@contextmanager
def mismatch_errors(folder: Path, step: int) -> Iterator[None]:
    """Name the checkpoint of a step in errors of a block that loads its contents into a run.

    Raises:
        ValueError: the block met a name, shape or value that does not fit the run.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        path = checkpoint_path(folder, step)
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(
            f"the checkpoint {path} is complete, but its contents do not fit this run ({reason[:300]}): "
            "remove it to use the one before it"
        ) from error


def _has_contents(path: Path, manifest: Mapping[str, str]) -> bool:
    """Return whether there is a complete checkpoint with just these contents."""
    return find_defect(path) is None and json.loads((path / MANIFEST).read_text()) == manifest


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} holds no tensors ({error}): remove {path.parent} to use the one before it") from None
