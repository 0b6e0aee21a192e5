"""A run directory describes itself.

config.json         every setting, with ``kind`` tags: enough to build the run again
environment.json    versions, hardware, threads, commit and command of every process that worked on it
metrics.csv         one row per report
checkpoint/         see checkpoints.py
tensorboard/        when asked for
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from recollect.config import differences
from recollect.files import write_atomically

# Settings that change what is kept, but no number: a run may resume with others.
FREE = ("fit.checkpoint_every", "fit.keep_checkpoints")


class RunDirectory:
    """A folder that belongs to one run.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.csv"
        self.checkpoints = self.path / "checkpoint"
        self.tensorboard = self.path / "tensorboard"

    def open(self, config: Mapping[str, Any], *, resume: bool, renew: Callable[[Any], Any] = dict) -> None:
        """Make the folder, or check that it holds a run of the same config.

        Args:
            config: of the run, as JSON data.
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
                self._compare(config, renew(self.read_config()))
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

    def _compare(self, config: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        changed = [line for line in differences(written, config) if not line.startswith(FREE)]
        if changed:
            raise ValueError(
                f"run directory {self.path} belongs to another config: {'; '.join(changed)}. "
                "Resume with the settings in its config.json, or choose another directory"
            )


def environment() -> dict[str, Any]:
    """Versions, hardware and commit of this process, as JSON data."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("recollect", "torch", "numpy", "safetensors")},
        },
        "hardware": hardware(),
        "commit": commit(),
    }


def hardware() -> dict[str, Any]:
    """Processor, memory, threads and accelerator of this machine, as JSON data."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit() -> str | None:
    """Commit of the source tree that this package runs from, with ``+changes`` if files differ; None outside git."""
    here = Path(__file__)
    # Installed into a virtual environment inside somebody's repository, the package is not of that repository.
    if not _git(here.parent, "ls-files", here.name):
        return None
    return _git(here.parent, "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*")


def _git(folder: Path, *command: str) -> str | None:
    try:
        found = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
