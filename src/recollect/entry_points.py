"""Cores, tasks and recipes of installed packages, by the names that they declare in their ``pyproject.toml``.

    [project.entry-points."recollect.cores"]
    my-core = "my_package.cores:MyCoreConfig"

    group                object
    recollect.cores      a class derived from CoreConfig, or such a config
    recollect.tasks      a class derived from StreamTask, WorldConfig or gymnasium.Env, or a config
    recollect.recipes    a Recipe

Such a name stands for the object behind it, ``my_package.cores:MyCoreConfig``, which may be typed instead. Names of
this library come first. Reading the names imports nothing.
"""

from collections.abc import Container
from functools import cache
from importlib import metadata
from typing import Literal, NamedTuple

Kind = Literal["cores", "tasks", "recipes"]
KINDS: tuple[Kind, ...] = ("cores", "tasks", "recipes")


class EntryPoint(NamedTuple):
    """A name that an installed package declares."""

    name: str
    """What a user types."""
    target: str
    """``package.module:attribute``."""
    package: str
    """Distribution and version, for messages."""


@cache
def installed(kind: Kind) -> tuple[EntryPoint, ...]:
    """Return the entry points of a kind, by name and package; nothing is imported."""
    found = {
        EntryPoint(point.name, point.value.replace(" ", ""), f"{point.dist.name} {point.dist.version}")
        for point in metadata.entry_points(group=f"recollect.{kind}")
        if point.dist is not None
    }
    return tuple(sorted(found))


def installed_names(kind: Kind) -> list[str]:
    """Return the declared names of a kind, each once."""
    return list(dict.fromkeys(point.name for point in installed(kind)))


def resolve(kind: Kind, name: str, own: Container[str] = ()) -> str:
    """Return what a name of an installed package stands for; other names unchanged.

    Args:
        kind: of the name.
        name: as it was typed.
        own: names of this library, which come first.

    Raises:
        ValueError: several packages declare it.
    """
    found = [] if name in own or ":" in name else [point for point in installed(kind) if point.name == name]
    if len({point.target for point in found}) > 1:
        choices = ", ".join(f"{point.target} ({point.package})" for point in found)
        raise ValueError(f"{name!r} is declared by several packages: type what is meant: {choices}")
    return found[0].target if found else name


def package_of(module: str) -> str | None:
    """Return the installed package that declares something in a module; None where none does."""
    declared = (point for kind in KINDS for point in installed(kind))
    return next((point.package for point in declared if point.target.partition(":")[0] == module), None)
