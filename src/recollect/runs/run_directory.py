"""A run directory describes itself.

config.json         every setting, with ``kind`` tags: enough to build the run again
environment.json    versions, hardware, threads, commit and command of every process that worked on it
metrics.csv         one row per report
checkpoint/         the newest checkpoints, see checkpoints.py
best/               the checkpoint of the best evaluation so far, in the same format
lock                names the process that works on it
tensorboard/        if requested

:class:`RunRecord` reads it; :class:`RunDirectory` is the process that works on it.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from recollect.config import differences
from recollect.files import read_json, require_json_type, write_atomically
from recollect.runs import checkpoints, folder_lock
from recollect.runs.folder_lock import FolderLock
from recollect.runs.metrics import read_rows
from recollect.runs.provenance import environment

Config = Mapping[str, Any]
"""Every setting of a run, as JSON data."""

FREE = (
    *("fit.steps", "fit.stop_score", "fit.processor_seconds"),
    *("fit.report_every", "fit.report_seconds", "fit.evaluate_every", "fit.checkpoint_every", "fit.keep_checkpoints"),
    *("evaluation", "evaluation_rows", "schedule.address"),
)
"""Settings that may change when a run resumes: its length, what it writes and keeps, its evaluations, and the cluster
of its actors. They do not change what an optimiser step computes, except for what falls towards the last step: a
learning rate, and the weights of teacher and supervision."""


def changed_settings(old: Config, new: Config) -> list[str]:
    """Return the settings in which two configs differ, without those of :data:`FREE` and their parts."""
    inside = tuple(f"{name}." for name in FREE)
    lines = {line: line.partition(":")[0] for line in differences(old, new)}
    return [line for line, name in lines.items() if name not in FREE and not name.startswith(inside)]


class RunPaths:
    """Paths of the files in a run directory.

    Args:
        path: of the directory.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.environment_file = self.path / "environment.json"
        self.metrics_file = self.path / "metrics.csv"
        self.checkpoints = self.path / "checkpoint"
        self.best = self.path / "best"
        self.tensorboard = self.path / "tensorboard"


class RunRecord(RunPaths):
    """Contents of a run directory. Each part is read once, when it is first used.

    Args:
        path: of the directory.
    """

    @cached_property
    def config(self) -> dict[str, Any]:
        """Every setting, as JSON data.

        Raises:
            ValueError: this is not a run directory.
        """
        if not self.config_file.is_file():
            raise ValueError(f"{self.path} is not a run directory: there is no config.json in it")
        config = read_json(self.config_file, f"restore it{self.describe_copy()}, or train anew in another directory")
        require_json_type(config, dict, self.config_file)
        return config

    def describe_copy(self) -> str:
        """Return where there is a copy of config.json; nothing without a checkpoint."""
        path, _ = checkpoints.newest(self.checkpoints)
        return "" if path is None else f' ("config" in {path / checkpoints.PROGRESS} is a copy)'

    @cached_property
    def processes(self) -> list[dict[str, Any]]:
        """Entries of environment.json, oldest first; none without such a file.

        Raises:
            ValueError: the file does not hold a list of entries.
        """
        if not self.environment_file.is_file():
            return []
        entries = read_json(self.environment_file, "move it away, and the run goes on without it")
        require_json_type(entries, list, self.environment_file)
        for entry in entries:
            require_json_type(entry, dict, self.environment_file)
        return entries

    @property
    def started_from(self) -> dict[str, Any] | None:
        """Run and step whose weights this run began with; None for weights of its own."""
        return next((entry["started_from"] for entry in self.processes if "started_from" in entry), None)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Complete rows of metrics.csv, as text.

        Raises:
            ValueError: the file holds no metrics, or a cell is no number.
        """
        return read_rows(self.metrics_file)

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv, NaN where a row has no value. Raises like :attr:`rows`."""
        names = self.rows[0] if self.rows else ()
        return {name: np.array([float(row[name] or "nan") for row in self.rows]) for name in names}

    @cached_property
    def progress(self) -> dict[str, Any]:
        """JSON data of the newest complete checkpoint; empty without one.

        Raises:
            ValueError: the file does not hold what a run writes.
        """
        path, _ = checkpoints.newest(self.checkpoints)
        return {} if path is None else checkpoints.read_progress(path)

    def checkpoint_folder(self, *, best: bool) -> Path:
        """Return the folder of the newest checkpoints, or of that of the best evaluation."""
        return self.best if best else self.checkpoints


def resolve_run(source: str | PathLike[str]) -> tuple[RunRecord, bool]:
    """Return the run that ``RUN`` or ``RUN/best`` names, and whether its best weights are meant."""
    path = Path(source)
    parent = RunRecord(path.parent)
    if path.name == parent.best.name and parent.config_file.is_file():
        return parent, True
    return RunRecord(path), False


class RunDirectory(RunPaths):
    """Run directory that this process works on.

    Args:
        path: of the directory.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        self.lock = FolderLock(self.path)
        self._is_new = False

    def check(self, config: Config, *, resume: bool, upgrade: Callable[[Config], Config] = dict) -> None:
        """Raise where :meth:`open` would. Writes nothing.

        Args:
            config: of the run.
            resume: continue a run that is there already (and start one when there is none).
            upgrade: gives the config of an older version the field names of this one.

        Raises:
            ValueError: the folder exists and ``resume`` is False; it holds something else; it holds a run of
                another config (names the fields that differ); another process works on it.
        """
        try:
            is_file = self.path.exists() and not self.path.is_dir()
        except (OSError, ValueError) as error:  # a name that is too long, or has a null byte
            reason = getattr(error, "strerror", None) or error
            raise ValueError(f"run directory {str(self.path)!r:.80}: {reason}: choose another path") from None
        if is_file:
            raise ValueError(f"run directory {self.path} is a file: choose another path")
        for folder in (self.checkpoints, self.best):
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"{folder} is a file, where checkpoints are written: move it away")
        self.lock.check()
        self._check(config, resume, upgrade)

    def _check(self, config: Config, resume: bool, upgrade: Callable[[Config], Config]) -> None:
        # A run that was killed before it wrote anything leaves only the lock.
        if not self.path.is_dir() or all(path.name == folder_lock.NAME for path in self.path.iterdir()):
            return
        if not resume:
            raise ValueError(f"run directory {self.path} exists: choose another, or continue it with --resume")
        if self.config_file.is_file():
            changed = changed_settings(upgrade(RunRecord(self.path).config), config)
            if changed:
                raise ValueError(
                    f"run directory {self.path} belongs to another config: {'; '.join(changed)}. "
                    "Resume with the settings in its config.json, or choose another directory"
                )
        elif self.metrics_file.exists() or self.checkpoints.exists():
            raise ValueError(
                f"run directory {self.path} is not a run, because it has no config.json: restore "
                f"it{RunRecord(self.path).describe_copy()}, or choose another directory"
            )

    def open(
        self,
        config: Config,
        *,
        resume: bool,
        upgrade: Callable[[Config], Config] = dict,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the folder, or continue the run in it, and lock it until :meth:`close`.

        Args:
            config: of the run.
            resume: as in :meth:`check`.
            upgrade: as in :meth:`check`.
            note: is added to this process's entry of environment.json.

        Raises:
            ValueError: as :meth:`check`; the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock.acquire()
            self._check(config, resume, upgrade)  # again: another process may have been faster
            self._is_new = not self.config_file.is_file()
            processes = RunRecord(self.path).processes
            write_atomically(self.config_file, json.dumps(config, indent=2) + "\n")
            entry = environment() | dict(note or {})
            write_atomically(self.environment_file, json.dumps([*processes, entry], indent=2) + "\n")
        except OSError as error:
            raise ValueError(
                f"run directory {self.path} cannot be written ({error.strerror or error}): "
                "choose another path, or change its permissions"
            ) from error

    def close(self) -> None:
        """Let other processes work on it."""
        self.lock.release()

    def remove_if_new(self) -> None:
        """Remove the files of :meth:`open`, if there was no run before and this one has no checkpoint."""
        if self._is_new and not checkpoints.steps(self.checkpoints):
            for path in (self.config_file, self.environment_file, self.metrics_file):
                path.unlink(missing_ok=True)
            self.lock.release()
            with suppress(OSError):  # it holds files of the user
                self.path.rmdir()
