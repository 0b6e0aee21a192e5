"""The settings in a run's config.json, as far as they can be read without importing what the file names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recollect.cli.flags import Flag
from recollect.config import require
from recollect.files import read_json
from recollect.training.trainers import TRAINERS


class SavedSettings(NamedTuple):
    """The settings in a run's ``config.json``."""

    task: str
    """Key of its task, or ``package.module:Class``."""
    core: str
    """Key of its core, or ``package.module:Class``."""
    trainer: str | None
    """Key of its trainer; None where it is the task's own."""
    values: Mapping[str, Any]
    """All of them, as JSON data."""

    def as_defaults(self, known: Mapping[str, Flag]) -> dict[str, Flag]:
        """Return the flags with the values of the file as their defaults."""
        return {name: flag._replace(default=_value(self.values, name, flag.default)) for name, flag in known.items()}


def read_settings(file: Path) -> SavedSettings:
    """Read a run's ``config.json``.

    Raises:
        ValueError: the file is missing or is no config of a run.
    """
    try:
        data = read_json(file, "give the config.json of a run")  # the error of text that is no JSON names the file
    except OSError as error:
        raise ValueError(f"config={str(file)!r}: {error.strerror or error}: give the config.json of a run") from None
    require(isinstance(data, dict), "config", str(file), "it holds no object: give the config.json of a run")
    parts = [data.get("world", data.get("task")), data.get("core")]
    if not all(isinstance(part, dict) and isinstance(part.get("kind"), str) for part in parts):
        raise ValueError(f"config={str(file)!r}: no task and core are named there; give the config.json of a run")
    trainer = data.get("kind") if data.get("kind") in TRAINERS else None
    return SavedSettings(parts[0]["kind"], parts[1]["kind"], trainer, data)


def _value(settings: Any, flag: str, default: str) -> str:
    found = settings
    for part in flag.removeprefix("--").replace("-", "_").split("."):
        if not isinstance(found, Mapping) or part not in found:
            return default
        found = found[part]
    if isinstance(found, list):
        return " ".join(map(str, found))
    return default if isinstance(found, Mapping) else str(found)
