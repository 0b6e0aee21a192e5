"""Provenance of results: time, command, versions, machine and commit."""

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import recollect
from recollect import machine


def environment() -> dict[str, Any]:
    """Return versions, hardware and commit of this process, as JSON data."""
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command(),
        "versions": {
            "python": platform.python_version(),
            "recollect": recollect.__version__,  # also in a source tree that is not installed
            **{name: metadata.version(name) for name in ("torch", "numpy", "safetensors")},
        },
        "hardware": hardware(),
        "commit": commit(),
    }


def hardware() -> dict[str, Any]:
    """Return processor, memory, threads and accelerator of this machine, as JSON data."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": machine.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": machine.memory_gib(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def command() -> str:
    """Return the command line of this process, quoted as a shell needs it."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # python -m NAME
    return shlex.join([name, *sys.argv[1:]])


def commit(digits: int = 40) -> str | None:
    """Return the commit of the source tree of this package, with ``+changes`` if files differ; None outside git."""
    here = Path(__file__)
    # A package in a virtual environment inside another repository does not belong to that repository.
    if not _git(here.parent, "ls-files", here.name):
        return None
    return _git(here.parent, "describe", "--always", f"--abbrev={digits}", "--dirty=+changes", "--exclude=*")


def short_commit(commit: str | None) -> str:
    """Return the first 12 digits of what :func:`commit` returned, with its ``+changes``."""
    return re.sub(r"^(\w{12})\w+", r"\1", str(commit))


def _git(folder: Path, *command: str) -> str | None:
    try:
        found = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
