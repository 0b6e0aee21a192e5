"""Finding the module to certify: a key of the table of cores, or ``package.module:factory``."""

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from recollect import cores
from recollect.config import did_you_mean
from recollect.cores.config import CoreConfig

SMALL = {
    "dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 32,
    "memory_len": 6,
    "chunk_len": 4,
    "num_chunks": 4,
    "max_chunks": 4,
    "capacity": 4,
    "num_slots": 4,
    "num_tokens": 3,
    "read_tokens": 3,
    "top_k": 2,
}
"""Sizes at which a core is certified: wide enough to be itself, with memories short enough to overflow many times."""

INPUT_DIM = 10


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A module to certify and what is known about it."""

    name: str
    core: nn.Module
    config: str = ""
    """The config as Python."""
    input_shape: tuple[int, ...] | None = None
    """Shape of one step's input, where the module does not say."""
    rebuild: Callable[[], nn.Module] | None = None
    """Makes another module of the same config."""
    steps: int | None = None
    """Length of the test sequences that crosses every window."""


def table() -> dict[str, type[CoreConfig]]:
    """The table of cores."""
    return dict(cores.CORES)


def nearest(name: str, known: Iterable[str]) -> str:
    """An ending for an error message: what was probably meant, or all there is."""
    known = list(known)
    return f"; {did_you_mean(name, known).rstrip() or 'there are ' + ', '.join(known)}"


def small_config(config_class: type[CoreConfig]) -> CoreConfig:
    """The defaults of a config at certification size.

    Only fields that exist and hold a number by default are made smaller; a size that the config rejects together
    with the others stays at its default.
    """
    config = config_class()
    wanted = {
        field.name: SMALL[field.name]
        for field in dataclasses.fields(config)
        if field.name in SMALL and isinstance(getattr(config, field.name), int)
    }
    try:
        return dataclasses.replace(config, **wanted)
    except ValueError:
        pass  # the sizes depend on each other: take them one at a time, keeping those that fit
    for name, size in wanted.items():
        try:
            config = dataclasses.replace(config, **{name: size})
        except ValueError:
            continue
    return config


def crossing_steps(config: object) -> int:
    """A sequence length that passes every window and chunk twice and every capacity once, between 24 and 128."""
    sizes = [
        getattr(config, name, None) for name in ("memory_len", "chunk_len", "num_chunks", "max_chunks", "capacity")
    ]
    window, chunk, *counts = [size if isinstance(size, int) else 0 for size in sizes]
    return min(128, max(24, 2 * max(window, chunk) + 9, chunk * max(counts) + 2 * chunk + 5))


def from_config(config: CoreConfig, *, name: str, input_dim: int = INPUT_DIM, seed: int = 0) -> Candidate:
    """The core of a config, with reproducible weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        core = config.build(input_dim)
    return Candidate(
        name=name,
        core=core,
        config=describe(config),
        rebuild=partial(config.build, input_dim),
        steps=crossing_steps(config),
    )


def load(spec: str) -> Candidate:
    """Resolve a core.

    Args:
        spec: a key of the table of cores (its defaults at certification size), or ``package.module:factory`` where
            ``factory`` is a module, a class or function that takes no arguments and gives one, or a config.
            The current folder is searched too.

    Raises:
        ValueError: nothing of that name, or what it names is not a core.
    """
    if ":" not in spec:
        known = table()
        if spec not in known:
            raise ValueError(
                f"core {spec!r} is unknown{nearest(spec, known)} (or give package.module:factory for a module of yours)"
            )
        return from_config(small_config(known[spec]), name=spec)
    return _candidate(spec, _attribute(spec))


def load_function(spec: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names.

    Raises:
        ValueError: nothing of that name, or it cannot be called.
    """
    found = _attribute(spec) if ":" in spec else None
    if not callable(found):
        raise ValueError(f"reference {spec!r}: give package.module:function(core, inputs, state, is_first)")
    return found


def _attribute(spec: str) -> Any:
    module_name, _, attribute = spec.partition(":")
    found: Any = _import(spec, module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(found) if not name.startswith("_")]
            raise ValueError(f"core {spec!r}: {module_name} has no {attribute!r}{nearest(part, public)}")
        found = getattr(found, part)
    return found


def _import(spec: str, module_name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"core {spec!r}: cannot import {module_name!r} ({error}): give package.module:factory, "
            "importable from here or installed"
        ) from None


def _candidate(spec: str, found: Any) -> Candidate:
    if isinstance(found, type) and issubclass(found, CoreConfig):
        _require_no_arguments(spec, found)
        return from_config(small_config(found), name=spec)
    if isinstance(found, CoreConfig):
        return from_config(found, name=spec)
    if isinstance(found, nn.Module):
        return Candidate(name=spec, core=found)
    if not callable(found):
        raise ValueError(
            f"core {spec!r}: it is a {type(found).__name__}; it must be a module or a function that makes one"
        )
    _require_no_arguments(spec, found)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        core = found()
    if isinstance(core, CoreConfig):
        return from_config(core, name=spec)
    if not isinstance(core, nn.Module):
        raise ValueError(f"core {spec!r}: it made a {type(core).__name__}; it must make a torch.nn.Module")
    return Candidate(name=spec, core=core, rebuild=cast("Callable[[], nn.Module]", found))


def _require_no_arguments(spec: str, found: Callable[..., Any]) -> None:
    missing = [
        name
        for name, parameter in inspect.signature(found).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if missing:
        raise ValueError(
            f"core {spec!r}: it needs the arguments {', '.join(missing)}; write a function without arguments that "
            "calls it, and name that"
        )


def describe(config: object) -> str:
    """A config as Python, without the fields that stand at their defaults."""
    if not dataclasses.is_dataclass(config):
        return ""
    given = []
    for field in dataclasses.fields(config):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        value = getattr(config, field.name)
        if value != default:
            given.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(given)})"
