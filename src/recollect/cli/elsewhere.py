"""What can be said of a run's file, or of a module of somebody's own, before anything is imported."""

import ast
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from recollect import gymnasium_ids
from recollect.cli.flags import Flag, trainers
from recollect.config import did_you_mean
from recollect.files import read_json, require_json_type


class Kept(NamedTuple):
    """The settings in a run's ``config.json``."""

    task: str
    """Key of its task, or ``package.module:Class``."""
    core: str
    """Key of its core, or ``package.module:Class``."""
    trainer: str | None
    """Key of its trainer; None where it is the task's own."""
    settings: Mapping[str, Any]
    """All of them."""

    def defaults(self, known: Mapping[str, Flag]) -> dict[str, Flag]:
        """Flags, with the values in the file as their defaults."""
        return {name: flag._replace(default=_shown(self.settings, name, flag.default)) for name, flag in known.items()}


def read_kept(file: Path) -> Kept:
    """Read a run's ``config.json``.

    Raises:
        ValueError: there is no such file, or it is no config of a run.
    """
    try:
        data = read_json(file, "give the config.json of a run")
        require_json_type(data, dict, file)
    except OSError as error:
        raise ValueError(f"config={str(file)!r}: {error.strerror or error}: give the config.json of a run") from None
    except ValueError as error:
        raise ValueError(f"config={str(file)!r}: {error}; give the config.json of a run") from None
    parts = [data.get("world", data.get("task")), data.get("core")]
    if not all(isinstance(part, dict) and isinstance(part.get("kind"), str) for part in parts):
        raise ValueError(f"config={str(file)!r}: no task and core are named there; give the config.json of a run")
    trainer = data.get("kind") if data.get("kind") in trainers() else None
    return Kept(parts[0]["kind"], parts[1]["kind"], trainer, data)


def require_there(name: str, what: str) -> None:
    """Look for ``gym:ID`` or ``package.module:Name``. What cannot be decided without running code is left open.

    Args:
        name: what was typed.
        what: task or core, for the message.

    Raises:
        ValueError: there is certainly no such thing.
    """
    module, _, wanted = name.rpartition(":")
    if module == "gym":
        gymnasium_ids.entry(wanted)
        return
    module = module.removeprefix("gym:")
    file = _file(module, f"{what}={name!r}")
    bound = None if file is None else _names(file)
    if bound is not None and wanted.isidentifier() and wanted not in bound:
        made = sorted(word for word, is_made in bound.items() if is_made and not word.startswith("_"))
        hint = did_you_mean(wanted, made) or f"it has {', '.join(made[:12])}"
        raise ValueError(f"{what}={name!r}: {module} has no {wanted!r}; {hint}".rstrip())


def _file(module: str, what: str) -> Path | None:
    """The file of a module with one, found without importing anything."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    root, *rest = module.split(".")
    try:
        found = find_spec(root)
    except (ImportError, ValueError):
        return None
    if found is None:
        raise ValueError(f"{what}: cannot import {module!r} (no module {root!r}): install it, or go to its folder")
    for part in rest:
        folders = None if found is None else found.submodule_search_locations
        found = None if found is None or folders is None else PathFinder.find_spec(f"{found.name}.{part}", folders)
    plain = found is not None and isinstance(found.loader, SourceFileLoader) and not found.submodule_search_locations
    return Path(str(found.origin)) if found is not None and plain else None


def _names(file: Path) -> dict[str, bool] | None:
    """Every name that a module's text binds anywhere, and whether at its top; None where text does not tell."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    bound: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            bound[node.name] = bound.get(node.name, False) or node in tree.body
        elif isinstance(node, ast.Name):
            bound.setdefault(node.id, False)
        elif isinstance(node, ast.alias):
            bound[(node.asname or node.name).split(".")[0]] = False
    written_by_code = {"__getattr__", "globals", "vars", "exec", "setattr", "*"}
    return None if written_by_code & set(bound) else bound


def _shown(settings: Any, flag: str, default: str) -> str:
    found = settings
    for part in flag.removeprefix("--").replace("-", "_").split("."):
        if not isinstance(found, Mapping) or part not in found:
            return default
        found = found[part]
    if isinstance(found, list):
        return " ".join(map(str, found))
    return default if isinstance(found, Mapping) else str(found)
