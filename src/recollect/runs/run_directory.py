"""A run directory describes itself.

config.json         every setting, with ``kind`` tags: enough to build the run again
environment.json    versions, hardware, threads, commit and command of every process that worked on it
metrics.csv         one row per report
checkpoint/         see checkpoints.py
tensorboard/        when asked for
"""

import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from recollect.config import differences
from recollect.files import write_atomically
from recollect.runs.provenance import environment

Config = Mapping[str, Any]
"""Every setting of a run, as JSON data."""

FREE = ("fit.checkpoint_every", "fit.keep_checkpoints")
"""Settings that change what is kept, but no number: a run may resume with others."""


def changes(old: Config, new: Config) -> list[str]:
    """The settings in which two configs differ, but for those that a run may resume with."""
    return [line for line in differences(old, new) if not line.startswith(FREE)]


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
        self.tensorboard = self.path / "tensorboard"

    def open(self, config: Config, *, resume: bool, renew: Callable[[Config], Config] = dict) -> None:
        """Make the folder, or check that it holds a run of the same config.

        Args:
            config: of the run.
            resume: continue a run that is there already (and start one when there is none).
            renew: gives the config of an older version the field names of this one.

        Raises:
            ValueError: the folder exists and ``resume`` is False; it holds something else; it holds a run of
                another config (names the fields that differ); it cannot be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run directory {self.path} is a file: choose another path")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not resume:
                raise ValueError(f"run directory {self.path} exists: choose another, or continue it with --resume")
            # A run that was killed before it wrote its config has nothing to lose.
            if self.config.is_file():
                self._compare(renew(self.read_config()), config)
            elif self.metrics.exists() or self.checkpoints.exists():
                raise ValueError(f"run directory {self.path} has no config.json: it is not a run; choose another")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.config, json.dumps(config, indent=2) + "\n")
            seen = json.loads(self.environment.read_text()) if self.environment.is_file() else []
            write_atomically(self.environment, json.dumps([*seen, environment()], indent=2) + "\n")
        except OSError as error:
            raise ValueError(
                f"run directory {self.path} cannot be written ({error.strerror or error}): "
                "choose another path, or change its permissions"
            ) from error

    def read_config(self) -> dict[str, Any]:
        """The run's config as JSON data.

        Raises:
            ValueError: this is not a run directory.
        """
        if not self.config.is_file():
            raise ValueError(f"{self.path} is not a run directory: there is no config.json in it")
        try:
            return json.loads(self.config.read_text())
        except ValueError as error:
            raise ValueError(f"{self.config} is not JSON ({error})") from None

    def _compare(self, old: Config, new: Config) -> None:
        changed = changes(old, new)
        if changed:
            raise ValueError(
                f"run directory {self.path} belongs to another config: {'; '.join(changed)}. "
                "Resume with the settings in its config.json, or choose another directory"
            )
