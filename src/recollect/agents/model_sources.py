"""Sources of models: a run or a model is named in the same way wherever one is asked for.

* ``runs/t-maze-hcam-seed0``: a run directory, or a model folder;
* ``model:t-maze-hcam``: a model that the library ships;
* ``hub:someone/t-maze-hcam``: a repository of the Hugging Face Hub; ``@REVISION`` behind it names a version.
"""

import os
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from recollect.agents import hub
from recollect.config import lookup
from recollect.files import read_json, require_json_type

SHIPPED = Path(__file__).parents[1] / "models"
RESULTS = "results.json"


def shipped_models() -> dict[str, Path]:
    """Return the folders of the models that the library ships, by name."""
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob("*/config.json"))}


def find_model(source: str | PathLike[str]) -> Path:
    """Return the folder that a source stands for; a path stays as it is.

    Raises:
        ValueError: the library ships no model of that name, or as :func:`recollect.agents.hub.download`.
    """
    kind, name = _split(source)
    if kind == "model":
        return lookup(shipped_models(), name, "model")
    return _fetch(name) if kind == "hub" else Path(source)


def source_name(source: str | PathLike[str]) -> str:
    """Return a short name for files about a run or a model: ``t-maze-hcam-seed0``, ``t-maze-hcam``."""
    kind, name = _split(source)
    return name.partition("@")[0].rpartition("/")[2] if kind else Path(source).resolve().name


def read_results(folder: Path) -> dict[str, Any]:
    """Return the scores that lie beside a model; empty where there are none.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / RESULTS
    found = read_json(path, "remove it") if path.is_file() else {}
    require_json_type(found, dict, path)
    require_json_type(found.get("tests", {}), dict, path)
    return found


def _split(source: str | PathLike[str]) -> tuple[str, str]:
    kind, colon, name = os.fspath(source).partition(":")
    return (kind, name) if colon and kind in ("model", "hub") else ("", "")


def ask_hub_again() -> None:
    """Let the next use of a hub's source ask the hub, in a process that lives longer than one command."""
    _fetch.cache_clear()


@cache  # one command asks for its source several times
def _fetch(name: str) -> Path:
    repository, _, revision = name.partition("@")
    return hub.download(repository, revision=revision or None)
