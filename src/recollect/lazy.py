"""Import heavy packages when they are first used, so that configs and help do not wait for them.

A file that only computes with torch inside functions writes ``from recollect.lazy import torch`` and has type
annotations as text (``from __future__ import annotations``). A package whose classes need torch writes:

    from recollect.cores.hcam.config import HierarchicalChunkMemoryConfig
    from recollect.lazy import attach

    if TYPE_CHECKING:
        from recollect.cores.hcam.core import HierarchicalChunkMemory as HierarchicalChunkMemory

    __getattr__ = attach(__name__, {"HierarchicalChunkMemory": "core"})
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """A module that is imported when one of its attributes is first read."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        self.__dict__[name] = value  # the next read is an ordinary one
        return value


def attach(package: str, sources: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that exports names from submodules on first use (PEP 562).

    Args:
        package: ``__name__`` of the package.
        sources: submodule of every exported name, relative to the package.
    """

    def export(name: str) -> Any:
        if name == "__all__":  # read by `from package import *`: what is bound already, and what is still to come
            bound = vars(sys.modules[package])
            own = (key for key, value in bound.items() if not key.startswith("_") and not isinstance(value, ModuleType))
            return sorted({*own, *sources} - {"TYPE_CHECKING", "annotations", "attach"})
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{sources[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return export


if TYPE_CHECKING:
    import gymnasium as gymnasium
    import numpy as np
    import torch as torch
    from gymnasium import spaces as spaces
else:
    torch, gymnasium, np = LazyModule("torch"), LazyModule("gymnasium"), LazyModule("numpy")
    spaces = LazyModule("gymnasium.spaces")

__all__ = ["LazyModule", "attach", "gymnasium", "np", "spaces", "torch"]
