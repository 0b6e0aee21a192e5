"""Cores by their names: keys of the table, names of installed packages, and ``package.module:Config``."""

from typing import Any

from recollect.config import load_object, lookup, require_name
from recollect.cores import CORES
from recollect.cores.config import CoreConfig


def find_core(name: str) -> CoreConfig | type[CoreConfig]:
    """Return the class of a core's configs, or the config itself where ``package.module:Name`` is one.

    Raises:
        ValueError: an unknown core, a module that cannot be imported, or something that is no config of a core.
    """
    name = require_name("cores", name, CORES)
    if ":" not in name:
        return CORES[name]
    found = load_object(name, "core")
    if isinstance(found, CoreConfig) or (isinstance(found, type) and issubclass(found, CoreConfig)):
        return found
    raise ValueError(f"core={name!r} is a {type(found).__name__}: name its config, a class derived from CoreConfig")


def sized_core(key: str, **sizes: Any) -> CoreConfig:
    """Return the config of a core with those of the sizes for which it has a field.

    Raises:
        ValueError: an unknown core, or a size that it cannot have.
    """
    cls = lookup(CORES, key, "core")
    return cls(**{name: value for name, value in sizes.items() if name in cls.__dataclass_fields__})


def make_core_config(name: str) -> CoreConfig:
    """Return the config of a core with its default settings.

    Raises:
        ValueError: as :func:`find_core`, or the class has fields without a default.
    """
    found = find_core(name)
    if isinstance(found, CoreConfig):
        return found
    try:
        return found()
    except TypeError as error:
        raise ValueError(f"core={name!r}: {error}: give its fields defaults, or name a config") from None
