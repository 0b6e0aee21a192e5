"""Configs: frozen dataclasses that check themselves, and their JSON form.

    {"kind": "hcam", "dim": 64, ...}

A config may have others inside. Where a field may hold one of several classes (a core, a task), the JSON carries a
``kind``: the class's key in its room's table, or ``"package.module:Class"`` for a class of somebody else's. Everything
else is plain data whose type the field's annotation knows. The tables are given by the caller: this file knows none.

A field that changed its name is listed in its class, ``RENAMED: ClassVar = {"old": "new"}``, and a choice that did in
``RENAMED_VALUES: ClassVar = {"field": {"old": "new"}}``; a field that is gone, with the only value that files may still
have for it, in ``REMOVED: ClassVar = {"field": value}``: older files still load.
"""

import collections.abc
import dataclasses
import difflib
import functools
import importlib
import inspect
import json
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise a ``ValueError`` that names the field, the value and what to do, unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{field}={value!r}: {remedy}")


def require_one_of(owner: object, *fields: str) -> None:
    """Raise a ``ValueError`` unless these fields, annotated ``Literal[...]``, hold one of their choices."""
    hints = typing.get_type_hints(type(owner))
    for field in fields:
        value, choices = getattr(owner, field), typing.get_args(hints[field])
        require(value in choices, field, value, f"choose one of {', '.join(map(repr, choices))}")


def is_integer(value: object) -> bool:
    """Whether it is a whole number, NumPy's included, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_types(owner: object) -> None:
    """Raise a ``ValueError`` unless fields annotated ``int``, ``float``, ``bool`` or with a config hold such a thing.

    So do those annotated ``tuple``, of these or of text. A number is finite. Annotations that are wider, but for
    ``| None``, ask for nothing.
    """
    for field, (kind, optional) in _plain_fields(type(owner)).items():
        value = getattr(owner, field)
        if optional and value is None:
            continue
        require(_is_a(value, kind), field, value, f"give {_called(kind)}{' or None' if optional else ''}")


_KINDS: dict[Any, str] = {int: "a whole number", float: "a finite number", bool: "True or False"}


def _is_a(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (tuple, list)):
            return False
        first, *others = typing.get_args(kind)
        as_many = others == [...] or len(value) == 1 + len(others)
        return as_many and all(_is_a(item, first) for item in value)
    if kind is int:
        return is_integer(value)
    return _fits(value, kind) and (kind is not float or math.isfinite(value))


def _called(kind: Any) -> str:
    if typing.get_origin(kind) is not tuple:
        return _KINDS.get(kind) or f"a {kind.__name__}"
    first, *others = typing.get_args(kind)
    return f"a tuple of {'' if others == [...] else f'{1 + len(others)} '}{_MANY.get(first) or first.__name__}"


_MANY: dict[Any, str] = {int: "whole numbers", float: "finite numbers", bool: "True and False", str: "texts"}


@functools.cache
def _plain_fields(cls: type) -> dict[str, tuple[Any, bool]]:
    """Fields of a dataclass that :func:`require_types` looks at: what they hold, and whether it may also be None."""
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # a class inside a function may name what only that function knows
        return {}
    found = {}
    for field in dataclasses.fields(cls):
        kinds = set(_alternatives(hints[field.name]))
        one = kinds - {types.NoneType}
        if len(one) == 1 and _is_plain(kind := one.pop()):
            found[field.name] = kind, types.NoneType in kinds
    return found


def _is_plain(kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        first, *others = typing.get_args(kind)
        return (others == [...] or set(others) == {first}) and (first is str or _is_plain(first))
    return kind in _KINDS or dataclasses.is_dataclass(kind)


def with_check(check: Callable[..., None], method: Method) -> Method:
    """A method whose arguments are checked before it runs."""

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return method(*args, **kwargs)

    return cast(Method, checked)


class CheckedConfig:
    """Base of configs: the kinds of their fields are looked at before a ``__post_init__`` of their own reads them.

    Here, so that no config has to think of it, whoever wrote it.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = with_check(require_types, vars(cls)["__post_init__"])  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        require_types(self)


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


def load_object(name: str, what: str) -> Any:
    """What ``package.module:attribute`` names; the current folder is searched too.

    Args:
        name: of the object.
        what: what an error calls it.

    Raises:
        ValueError: no such module, or it has no such attribute.
    """
    module_name, _, attribute = name.partition(":")
    found: Any = import_user_module(module_name, f"{what}={name!r}")
    for part in attribute.split("."):
        if part not in vars(found):
            public = [known for known, x in vars(found).items() if callable(x) and not known.startswith("_")]
            hint = did_you_mean(part, public) or f"it has {', '.join(public[:12])}"
            raise ValueError(f"{what}={name!r}: {module_name} has no {attribute!r}; {hint}".rstrip())
        found = vars(found)[part]
    return found


def import_user_module(module: str, what: str) -> types.ModuleType:
    """Import a module that is installed or lies in the current folder.

    Raises:
        ValueError: it cannot be imported; the message begins with ``what``.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except (ImportError, ValueError, TypeError) as error:
        raise ValueError(f"{what}: cannot import {module!r} ({error}): install it, or go to its folder") from None


def parse_value(text: str) -> Any:
    """A value as it is typed on a command line: a number, true, false, none or JSON is that, all else is text."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def to_json(config: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A config as JSON data.

    Args:
        config: a dataclass instance.
        kinds: classes by the names that stand for them (the rooms' tables).
    """
    return _encode(config, {cls: key for key, cls in kinds.items()})


def from_json(data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type], *, trust: bool = False) -> T:
    """The config that :func:`to_json` wrote.

    Args:
        data: JSON data.
        expected: class of the config, or a base class of it (the ``kind`` then says which).
        kinds: as in :func:`to_json`.
        trust: import modules that the data names. Otherwise only what this program has imported already is used.

    Raises:
        ValueError: an unknown kind or field, a value of a wrong type, or a kind that is not an ``expected``.
    """
    return _decode(data, expected, _Kinds(kinds, trust), expected.__name__)


def needs_user_code(config: Any) -> bool:
    """Whether a config names modules of others, which whoever reads its JSON form has to trust."""
    modules = (type(config).__module__, *getattr(config, "imports", ()))
    inner = (getattr(config, field.name) for field in dataclasses.fields(config))
    return any(module.partition(".")[0] != __package__ for module in modules) or any(
        needs_user_code(part) for part in inner if dataclasses.is_dataclass(part)
    )


def config_class(
    data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type], *, trust: bool = False
) -> type[T]:
    """The class of the config in JSON data, as its ``kind`` says.

    Args:
        data: JSON data.
        expected: a base class of it; the class itself where there is no ``kind``.
        kinds: as in :func:`to_json`.
        trust: as in :func:`from_json`.

    Raises:
        ValueError: an unknown kind, none where one is needed, or one that is not an ``expected``.
    """
    return _class_of(data, expected, _Kinds(kinds, trust), "config")


def upgrade_json(data: Mapping[str, Any], expected: type[Any], kinds: Mapping[str, type]) -> dict[str, Any]:
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
    if isinstance(value, numbers.Integral):
        return int(value)  # NumPy's, which fields take
    if isinstance(value, numbers.Real):
        return float(value)
    raise ValueError(f"{value!r} ({type(value).__name__}) is no JSON data: configs hold numbers, text and configs")


class _Kinds(NamedTuple):
    """Which classes may be made."""

    table: Mapping[str, type]
    trust: bool


def _class_of(data: Mapping[str, Any], expected: type[T], kinds: _Kinds, where: str) -> type[T]:
    kind = data.get("kind")
    if kind is None:
        if inspect.isabstract(expected):
            raise ValueError(f"{where}: 'kind' is missing: name one of {', '.join(_of(expected, kinds.table))}")
        return expected
    require(isinstance(kind, str), f"{where}.kind", kind, "give the name of a kind, in quotes")
    if ":" in kind:
        module, _, name = kind.partition(":")
        _require_trust(module, f"{where}.kind", kind, kinds.trust)
        try:
            cls = getattr(import_user_module(module, f"{where}.kind={kind!r}"), name)
        except AttributeError as error:
            raise ValueError(f"{where}.kind={kind!r}: cannot import it ({error})") from None
    else:
        cls = lookup(_of(expected, kinds.table), kind, where.rpartition(".")[2])
    if not (isinstance(cls, type) and issubclass(cls, expected)):
        raise ValueError(f"{where}.kind={kind!r}: that is no {expected.__name__}")
    return cls


def _require_trust(module: str, field: str, value: object, trust: bool) -> None:
    """A file may come from anybody, and an import runs code."""
    known = module in sys.modules or module.partition(".")[0] == __package__
    require(
        known or trust,
        field,
        value,
        f"cannot import it unasked, since that runs code of {module}: import {module} first, or allow it with --trust "
        "(trust=True) if you know who wrote it",
    )


def _decode(data: Any, expected: Any, kinds: _Kinds, where: str) -> Any:
    for candidate in _alternatives(expected):
        if dataclasses.is_dataclass(candidate) and isinstance(data, Mapping):
            return _decode_config(data, typing.cast(type, candidate), kinds, where)
        if typing.get_origin(candidate) is tuple and isinstance(data, list):
            items = typing.get_args(candidate)
            # Items are all alike in tuple[X, ...]; else there are as many as types.
            types_ = [items[0]] * len(data) if items[1:] == (...,) else list(items)
            wrong = f"give a list of {len(types_)}"
            require(len(types_) == len(data), where, data, wrong)
            return tuple(_decode(entry, item, kinds, where) for entry, item in zip(data, types_, strict=True))
    require(any(_fits(data, candidate) for candidate in _alternatives(expected)), where, data, _wanted(expected))
    return data


def _decode_config(data: Mapping[str, Any], expected: type, kinds: _Kinds, where: str) -> Any:
    cls = _class_of(data, expected, kinds, where)
    hints = typing.get_type_hints(cls)
    renamed = getattr(cls, "RENAMED", {})
    data = {renamed.get(key, key): value for key, value in data.items()}
    for field, values in getattr(cls, "RENAMED_VALUES", {}).items():
        if isinstance(data.get(field), (str, bool)):
            data[field] = values.get(data[field], data[field])
    removed = getattr(cls, "REMOVED", {})
    data = {key: value for key, value in data.items() if key not in removed or value != removed[key]}
    known = {f.name for f in dataclasses.fields(cls)}
    unknown = [key for key in data if key not in known and key != "kind"]
    if unknown:
        remedy = "take it out, or use the version of recollect that wrote it"
        raise ValueError(f"{where}.{unknown[0]}: {cls.__name__} has no such field, only {sorted(known)}; {remedy}")
    values = {k: _decode(data[k], hints[k], kinds, f"{where}.{k}") for k in data if k in known}
    try:
        made = cls(**values)
    except (TypeError, OverflowError, ZeroDivisionError) as error:
        raise ValueError(f"{where}: {str(error).removeprefix(f'{cls.__name__}.__init__() ')}") from None
    for module in getattr(made, "imports", ()):  # what it will import when it is built
        _require_trust(module, where, module, kinds.trust)
    return made


def _fits(data: Any, candidate: Any) -> bool:
    """Whether plain data is of the type that a field asks for."""
    plain = typing.get_origin(candidate) or candidate
    if plain is typing.Literal:
        return any(data == choice and type(data) is type(choice) for choice in typing.get_args(candidate))
    if plain is Any or isinstance(plain, TypeVar):
        return True
    if plain is float:
        return isinstance(data, numbers.Real) and not isinstance(data, bool)
    if plain is int:
        return isinstance(data, int) and not isinstance(data, bool)
    return isinstance(plain, type) and isinstance(data, plain)


def _wanted(expected: Any) -> str:
    names = []
    for candidate in _alternatives(expected):
        plain = typing.get_origin(candidate) or candidate
        if plain is typing.Literal:
            names += [repr(choice) for choice in typing.get_args(candidate)]
        elif dataclasses.is_dataclass(candidate) or plain is collections.abc.Mapping:
            names.append("an object {...}")
        else:
            names.append(_NAMES.get(plain, getattr(plain, "__name__", str(plain))))
    return f"give {' or '.join(names)}"


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list"}
_NAMES |= {type(None): "null"}


def _alternatives(expected: Any) -> Iterator[Any]:
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        yield from typing.get_args(expected)
    else:
        yield expected


def _of(expected: type, kinds: Mapping[str, type]) -> dict[str, type]:
    return {key: cls for key, cls in kinds.items() if issubclass(cls, expected)}
