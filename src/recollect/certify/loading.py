"""Modules to certify: a key of the table of cores, or ``package.module:factory``."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from recollect import cores
from recollect.config import did_you_mean, load_object
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
"""Sizes at which a core is certified: wide enough for its mechanism, with memories short enough to overflow often."""

INPUT_DIM = 10


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A module to certify, with what its sizes can be."""

    name: str
    core: nn.Module
    config: str = ""  # the config as Python
    input_shape: tuple[int, ...] | None = None  # shape of one step's input, where the module has no `input_shape`
    rebuild: Callable[[], nn.Module] | None = None  # makes another module of the same config
    steps: int | None = None  # length of the test sequences, which crosses every window


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message, with the nearest known name or all of them."""
    known = list(known)
    return f"; {did_you_mean(name, known).rstrip() or 'there are ' + ', '.join(known)}"


def small_config(config_class: type[CoreConfig]) -> CoreConfig:
    """Return the defaults of a config at certification size.

    Only fields with a number as default are made smaller; a size that the config rejects together with the others
    keeps its default.
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
    """Return a sequence length that crosses every window and chunk twice and every capacity once, from 24 to 128."""
    names = ("memory_len", "chunk_len", "num_chunks", "max_chunks", "capacity")
    sizes = [getattr(config, name, None) for name in names]
    window, chunk, *counts = [size if isinstance(size, int) else 0 for size in sizes]
    return min(128, max(24, 2 * max(window, chunk) + 9, chunk * max(counts) + 2 * chunk + 5))


def from_config(config: CoreConfig, *, name: str, input_dim: int = INPUT_DIM, seed: int = 0) -> Candidate:
    """Return the core of a config, with reproducible weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        core = config.build(input_dim)
    rebuild = partial(config.build, input_dim)
    return Candidate(name=name, core=core, config=describe(config), rebuild=rebuild, steps=crossing_steps(config))


def load(spec: str) -> Candidate:
    """Return the core with a name.

    Args:
        spec: a key of the table of cores (its defaults at certification size), or ``package.module:factory`` where
            ``factory`` is a module, a class or function without arguments that returns one, or a config. Modules in
            the current folder are found too.

    Raises:
        ValueError: the name is unknown, or it names no core.
    """
    if ":" in spec:
        return _candidate(spec, load_object(spec, "core"))
    if spec not in cores.CORES:
        hint = suggest(spec, cores.CORES)
        raise ValueError(f"core={spec!r} is unknown{hint} (or give package.module:factory for a module of yours)")
    return from_config(small_config(cores.CORES[spec]), name=spec)


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function ``package.module:function``.

    Raises:
        ValueError: the name is unknown, or it names no function.
    """
    found = load_object(spec, "reference") if ":" in spec else None
    if not callable(found):
        raise ValueError(f"reference={spec!r}: give package.module:function(core, inputs, state, is_first)")
    return found


def _candidate(spec: str, found: Any) -> Candidate:
    if isinstance(found, type) and issubclass(found, CoreConfig):
        _require_no_arguments(spec, found)
        return from_config(small_config(found), name=spec)
    if isinstance(found, CoreConfig):
        return from_config(found, name=spec)
    if isinstance(found, nn.Module):
        return Candidate(name=spec, core=found)
    if not callable(found):
        kind = type(found).__name__
        raise ValueError(f"core={spec!r}: it is a {kind}; name a module or a function that makes one")
    _require_no_arguments(spec, found)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        core = found()
    if isinstance(core, CoreConfig):
        return from_config(core, name=spec)
    if not isinstance(core, nn.Module):
        raise ValueError(f"core={spec!r}: it made a {type(core).__name__}; it must make a torch.nn.Module")
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
            f"core={spec!r}: it needs the arguments {', '.join(missing)}; name a function without arguments that "
            "calls it"
        )


def describe(config: object) -> str:
    """Return a config as Python, without the fields that have their defaults."""
    if not dataclasses.is_dataclass(config):
        return ""
    given = []
    for field in dataclasses.fields(config):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        value = getattr(config, field.name)
        if value != default:
            given.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(given)})"
