"""Configs: frozen dataclasses that check themselves, and their JSON form.

    {"kind": "hcam", "dim": 64, ...}

A config may have others inside. Where a field may hold one of several classes (a core, a task), the JSON carries a
``kind``: the class's key in its room's table, or ``"package.module:Class"`` for a class of somebody else's. Everything
else is plain data whose type the field's annotation knows. The tables are given by the caller: this file knows none.

A field that changed its name is listed in its class, ``RENAMED: ClassVar = {"old": "new"}``, and a choice that did in
``RENAMED_VALUES: ClassVar = {"field": {"old": "new"}}``: older files still load.
"""

import dataclasses
import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise a ``ValueError`` that names the field, the value and what to do, unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{field}={value!r}: {remedy}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'hcam'? "`` where a known name is near, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry ``name`` of a table.

    Raises:
        ValueError: there is none; names the nearest ones and all that exist.
    """
    if name in table:
        return table[name]
    raise ValueError(f"unknown {what} {name!r}: {did_you_mean(name, table)}known: {', '.join(table)}")


def to_json(config: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A config as JSON data.

    Args:
        config: a dataclass instance.
        kinds: classes by the names that stand for them (the rooms' tables).
    """
    return _encode(config, {cls: key for key, cls in kinds.items()})


def from_json(data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type]) -> T:
    """The config that :func:`to_json` wrote.

    Args:
        data: JSON data.
        expected: class of the config, or a base class of it (the ``kind`` then says which).
        kinds: as in :func:`to_json`.

    Raises:
        ValueError: an unknown kind or field, or a kind that is not an ``expected``.
    """
    return _decode(data, expected, kinds, expected.__name__)


def class_of(data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type], where: str = "config") -> type[T]:
    """The class of the config in JSON data, as its ``kind`` says.

    Args:
        data: JSON data.
        expected: a base class of it; the class itself where there is no ``kind``.
        kinds: as in :func:`to_json`.
        where: what the error calls it.

    Raises:
        ValueError: an unknown kind, none where one is needed, or one that is not an ``expected``.
    """
    kind = data.get("kind")
    if kind is None:
        if inspect.isabstract(expected):
            raise ValueError(f"{where}: 'kind' is missing: name one of {', '.join(_of(expected, kinds))}")
        return expected
    if ":" in kind:
        module, _, name = kind.partition(":")
        try:
            cls = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{where}.kind={kind!r}: cannot import it ({error})") from None
    else:
        cls = lookup(_of(expected, kinds), kind, where.rpartition(".")[2])
    if not (isinstance(cls, type) and issubclass(cls, expected)):
        raise ValueError(f"{where}.kind={kind!r}: that is no {expected.__name__}")
    return cls


def renew(data: Mapping[str, Any], expected: type[Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """JSON data of an older version with the field names of this one; unchanged where it is no ``expected``.

    Args:
        data: JSON data.
        expected: as in :func:`from_json`.
        kinds: as in :func:`to_json`.
    """
    try:
        return to_json(from_json(data, expected, kinds), kinds)
    except (TypeError, ValueError):
        return dict(data)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """What differs between two JSON configs: one ``"field: old, now new"`` for every differing field."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: list[str] = []
        for key in [*old, *(key for key in new if key not in old)]:
            name = f"{prefix}.{key}" if prefix else str(key)
            if key not in old:
                found.append(f"{name}: absent, now {new[key]!r}")
            elif key not in new:
                found.append(f"{name}: {old[key]!r}, now absent")
            else:
                found += differences(old[key], new[key], name)
        return found
    return [] if old == new else [f"{prefix}: {old!r}, now {new!r}"]


def _encode(value: Any, tags: Mapping[type, str]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        kind = {}
        if cls in tags:
            kind = {"kind": tags[cls]}
        elif any(inspect.isabstract(base) for base in cls.__mro__):
            if "<locals>" in cls.__qualname__:
                raise ValueError(f"{cls.__qualname__} is defined inside a function: move it to a module to save it")
            kind = {"kind": f"{cls.__module__}:{cls.__qualname__}"}
        return kind | {f.name: _encode(getattr(value, f.name), tags) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_encode(item, tags) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _encode(item, tags) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{value!r} ({type(value).__name__}) is no JSON data: configs hold numbers, text and configs")


def _decode(data: Any, expected: Any, kinds: Mapping[str, type], where: str) -> Any:
    for candidate in _alternatives(expected):
        if dataclasses.is_dataclass(candidate) and isinstance(data, Mapping):
            cls = class_of(data, typing.cast(type, candidate), kinds, where)
            hints = typing.get_type_hints(cls)
            renamed = getattr(cls, "RENAMED", {})
            data = {renamed.get(key, key): value for key, value in data.items()}
            for field, values in getattr(cls, "RENAMED_VALUES", {}).items():
                if isinstance(data.get(field), str):
                    data[field] = values.get(data[field], data[field])
            known = {f.name for f in dataclasses.fields(cls)}
            unknown = [key for key in data if key not in known and key != "kind"]
            if unknown:
                raise ValueError(f"{where}.{unknown[0]}: {cls.__name__} has no such field, only {sorted(known)}")
            return cls(**{k: _decode(data[k], hints[k], kinds, f"{where}.{k}") for k in data if k in known})
        if typing.get_origin(candidate) is tuple and isinstance(data, list):
            # Items of tuples are plain data or, for tuple[X, ...], all alike.
            item = typing.get_args(candidate)[0] if typing.get_args(candidate)[1:] == (...,) else Any
            return tuple(_decode(entry, item, kinds, where) for entry in data)
    return data


def _alternatives(expected: Any) -> Iterator[Any]:
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        yield from typing.get_args(expected)
    else:
        yield expected


def _of(expected: type, kinds: Mapping[str, type]) -> dict[str, type]:
    return {key: cls for key, cls in kinds.items() if issubclass(cls, expected)}
