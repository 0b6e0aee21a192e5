"""Recollect: memory for agents and long streams, in PyTorch.

    from recollect import HierarchicalChunkMemoryConfig

    core = HierarchicalChunkMemoryConfig(dim=128).build(input_dim=32)
    outputs, state = core(inputs, core.initial_state(8), is_first)

    model = recollect.load("runs/mine")

What the rooms ``cores`` and ``agents`` export is exported here too. It is imported when it is first used, so that
``import recollect``, the command line's help and the pytest plugin do not wait for torch.
"""

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from recollect.gymnasium_ids import register_on_import as _register_on_import

if TYPE_CHECKING:  # what __getattr__ does, for editors
    from recollect import state as state
    from recollect.agents import *
    from recollect.cores import *

    load: Callable[..., Any]  # recollect.training.load_model; the rooms below training import this file
    push_to_hub: Callable[..., str]
    from_pretrained: Callable[..., Any]

__version__ = "0.1.0"
_ROOMS = ("cores", "agents")
_MODELS = {
    "load": ("training.saved_models", "load_model"),
    "push_to_hub": ("training.sharing", "push_to_hub"),
    "from_pretrained": ("training.sharing", "from_pretrained"),
}
_register_on_import()


def _exports(room: str) -> list[str]:
    module = importlib.import_module(f"{__name__}.{room}")
    if names := getattr(module, "__all__", None):
        return list(names)
    return [name for name, x in vars(module).items() if not name.startswith("_") and not isinstance(x, ModuleType)]


if not TYPE_CHECKING:  # an editor would take every name for one of these

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted([*_MODELS, "state", *(name for room in _ROOMS for name in _exports(room))])
        if name in _MODELS:
            module, function = _MODELS[name]
            return getattr(importlib.import_module(f"{__name__}.{module}"), function)
        if not name.startswith("_"):
            if importlib.util.find_spec(f"{__name__}.{name}"):
                return importlib.import_module(f"{__name__}.{name}")
            for room in _ROOMS:
                if name in _exports(room):
                    return getattr(importlib.import_module(f"{__name__}.{room}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __getattr__("__all__")
