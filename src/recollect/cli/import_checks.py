"""Checks of ``gym:ID`` and ``package.module:Name`` that import nothing."""

import ast
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path

from recollect import gymnasium_ids
from recollect.config import did_you_mean


def require_importable(name: str, field: str) -> None:
    """Check that ``gym:ID`` or ``package.module:Name`` exists; whatever only running code can decide passes.

    Args:
        name: as it was typed.
        field: task or core, for the message.

    Raises:
        ValueError: the module or the name is certainly missing.
    """
    from recollect.evaluation.recorded_world import PREFIX

    if name.startswith(PREFIX):
        return  # read when it is used
    module, _, wanted = name.rpartition(":")
    if module == "gym":
        gymnasium_ids.entry(wanted)
        return
    module = module.removeprefix("gym:")
    file = _source_file(module, f"{field}={name!r}")
    bound = None if file is None else _bound_names(file)
    if bound is not None and wanted.isidentifier() and wanted not in bound:
        defined = sorted(word for word, is_defined in bound.items() if is_defined and not word.startswith("_"))
        hint = did_you_mean(wanted, defined) or f"it has {', '.join(defined[:12])}"
        raise ValueError(f"{field}={name!r}: {module} has no {wanted!r}; {hint}".rstrip())


def _source_file(module: str, field: str) -> Path | None:
    """Find the source file of a module without importing anything; None where it has none."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    root, *rest = module.split(".")
    try:
        found = find_spec(root)
    except (ImportError, ValueError):
        return None
    if found is None:
        raise ValueError(f"{field}: cannot import {module!r} (no module {root!r}): install it, or go to its folder")
    for part in rest:
        folders = None if found is None else found.submodule_search_locations
        found = None if found is None or folders is None else PathFinder.find_spec(f"{found.name}.{part}", folders)
    is_file = found is not None and isinstance(found.loader, SourceFileLoader) and not found.submodule_search_locations
    return Path(str(found.origin)) if found is not None and is_file else None


def _bound_names(file: Path) -> dict[str, bool] | None:
    """Return every name that a module binds, and whether it defines it; None where the text does not decide it."""
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
    bound_by_code = {"__getattr__", "globals", "vars", "exec", "setattr", "*"}
    return None if bound_by_code & set(bound) else bound
