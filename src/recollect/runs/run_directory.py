"""A run directory describes itself.

config.json         every setting, with ``kind`` tags: enough to build the run again
environment.json    versions, hardware, threads, commit and command of every process that worked on it
metrics.csv         one row per report
checkpoint/         the newest checkpoints, see checkpoints.py
best/               the checkpoint of the best evaluation so far, in the same format
lock                while a process works on it: which one
tensorboard/        when asked for
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from recollect.config import differences
from recollect.files import read_json, require_json_type, write_atomically
from recollect.runs import checkpoints
from recollect.runs.lock import NAME, Lock
from recollect.runs.provenance import environment

Config = Mapping[str, Any]
"""Every setting of a run, as JSON data."""

FREE = (
    *("fit.steps", "fit.stop_score", "fit.processor_seconds"),
    *("fit.report_every", "fit.report_seconds", "fit.evaluate_every", "fit.checkpoint_every", "fit.keep_checkpoints"),
    *("evaluation", "evaluation_rows"),
)
"""Settings with which a run may resume although they are others: how long it goes on, what it writes down and keeps,
and how it is scored. What an optimiser step computes does not change, but for a learning rate that falls towards the
last step."""


def changes(old: Config, new: Config) -> list[str]:
    """The settings in which two configs differ, but for those of :data:`FREE` and what is inside them."""
    inside = tuple(f"{name}." for name in FREE)
    lines = {line: line.partition(":")[0] for line in differences(old, new)}
    return [line for line, name in lines.items() if name not in FREE and not name.startswith(inside)]


class RunDirectory:
    """A folder that belongs to one run.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.csv"
        self.checkpoints = self.path / "checkpoint"
        self.best = self.path / "best"
        self.lock = Lock(self.path)
        self._is_new = False
        self.tensorboard = self.path / "tensorboard"

    def check(self, config: Config, *, resume: bool, renew: Callable[[Config], Config] = dict) -> None:
        """Could :meth:`open` work? Writes nothing.

        Args:
            config: of the run.
            resume: continue a run that is there already (and start one when there is none).
            renew: gives the config of an older version the field names of this one.

        Raises:
            ValueError: the folder exists and ``resume`` is False; it holds something else; it holds a run of
                another config (names the fields that differ); another process works on it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run directory {self.path} is a file: choose another path")
        self.lock.check()
        self._check(config, resume, renew)

    def _check(self, config: Config, resume: bool, renew: Callable[[Config], Config]) -> None:
        # Of a run that was killed before it wrote anything only the lock is left.
        if self.path.is_dir() and any(path.name != NAME for path in self.path.iterdir()):
            if not resume:
                raise ValueError(f"run directory {self.path} exists: choose another, or continue it with --resume")
            # A run that was killed before it wrote its config has nothing to lose.
            if self.config.is_file():
                self._compare(renew(self.read_config()), config)
            elif self.metrics.exists() or self.checkpoints.exists():
                raise ValueError(f"run directory {self.path} has no config.json: it is not a run; choose another")

    def open(
        self,
        config: Config,
        *,
        resume: bool,
        renew: Callable[[Config], Config] = dict,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the folder, or go on with the run in it, and own it until :meth:`close`.

        Args:
            config: of the run.
            resume: as in :meth:`check`.
            renew: as in :meth:`check`.
            note: also goes into this process's entry of environment.json.

        Raises:
            ValueError: as :meth:`check`; the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock.take()
            self._check(config, resume, renew)  # again: somebody may have been faster
            self._is_new = not self.config.is_file()
            seen = self.processes()
            write_atomically(self.config, json.dumps(config, indent=2) + "\n")
            entry = environment() | dict(note or {})
            write_atomically(self.environment, json.dumps([*seen, entry], indent=2) + "\n")
        except OSError as error:
            raise ValueError(
                f"run directory {self.path} cannot be written ({error.strerror or error}): "
                "choose another path, or change its permissions"
            ) from error

    def close(self) -> None:
        """Let other processes work on it."""
        self.lock.release()

    def forget(self) -> None:
        """Take back what :meth:`open` wrote, if there was no run before and nothing came of this one."""
        if self._is_new and not checkpoints.steps(self.checkpoints):
            for path in (self.config, self.environment, self.metrics):
                path.unlink(missing_ok=True)
            self.lock.release()
            with suppress(OSError):  # somebody else's files are in it
                self.path.rmdir()

    def read_config(self) -> dict[str, Any]:
        """The run's config as JSON data.

        Raises:
            ValueError: this is not a run directory.
        """
        if not self.config.is_file():
            raise ValueError(f"{self.path} is not a run directory: there is no config.json in it")
        found = read_json(self.config, "restore it, or train anew in another directory")
        require_json_type(found, dict, self.config)
        return found

    def processes(self) -> list[dict[str, Any]]:
        """The entries of environment.json, oldest first; none where there is no such file.

        Raises:
            ValueError: the file does not hold a list of entries.
        """
        if not self.environment.is_file():
            return []
        found = read_json(self.environment, "move it away, and the run goes on without it")
        require_json_type(found, list, self.environment)
        for entry in found:
            require_json_type(entry, dict, self.environment)
        return found

    def started_from(self) -> dict[str, Any] | None:
        """Run and step whose weights this run began with; None for weights of its own."""
        return next((entry["started_from"] for entry in self.processes() if "started_from" in entry), None)

    def _compare(self, old: Config, new: Config) -> None:
        changed = changes(old, new)
        if changed:
            raise ValueError(
                f"run directory {self.path} belongs to another config: {'; '.join(changed)}. "
                "Resume with the settings in its config.json, or choose another directory"
            )
