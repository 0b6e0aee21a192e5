"""Configs: frozen dataclasses that validate themselves, and their JSON form.

    {"kind": "hcam", "dim": 64, ...}

A config may contain others. Where a field may hold one of several classes (a core, a task), its JSON has a ``kind``:
the key of the class in its table, or ``"package.module:Class"`` for a user-defined class. Everything else is plain data
of the type in the field's annotation. The caller passes the tables.

Older files still load: a class lists renamed fields in ``RENAMED: ClassVar = {"old": "new"}``, renamed choices in
``RENAMED_VALUES: ClassVar = {"field": {"old": "new"}}``, and removed fields, with the only value that files may still
have, in ``REMOVED: ClassVar = {"field": value}``.
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
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from recollect.entry_points import Kind, installed_names, package_of, resolve

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise a ``ValueError`` that names the field, the value and the remedy, unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"{field}={value!r}: {remedy}")


def require_one_of(owner: object, *fields: str) -> None:
    """Raise a ``ValueError`` unless each of these fields, annotated ``Literal[...]``, has one of its choices."""
    hints = typing.get_type_hints(type(owner))
    for field in fields:
        value, choices = getattr(owner, field), typing.get_args(hints[field])
        require(value in choices, field, value, f"choose one of {', '.join(map(repr, choices))}")


def require_at_least(owner: object, **minimums: float) -> None:
    """Raise a ``ValueError`` unless each named field has at least its minimum."""
    for field, least in minimums.items():
        value = getattr(owner, field)
        require(value >= least, field, value, f"give at least {least}")


def is_integer(value: object) -> bool:
    """Return whether a value is an integer (Python's or NumPy's), and not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_types(owner: object) -> None:
    """Raise a ``ValueError`` unless the fields of a config have values of their annotated types.

    Checked are fields annotated ``int``, ``float``, ``bool``, a config, a ``tuple`` of these or of text, or one of
    these ``| None``. Floats must be finite. A list is stored as a tuple: configs are hashed, and compared with those
    read from files.
    """
    for field, (kind, optional) in _plain_fields(type(owner)).items():
        value = getattr(owner, field)
        if optional and value is None:
            continue
        require(_has_type(value, kind), field, value, f"give {_type_name(kind)}{' or None' if optional else ''}")
        if typing.get_origin(kind) is tuple:
            object.__setattr__(owner, field, _to_tuple(value))


_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a finite number", bool: "True or False"}


def _has_type(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (tuple, list)):
            return False
        first, *others = typing.get_args(kind)
        as_many = others == [...] or len(value) == 1 + len(others)
        return as_many and all(_has_type(item, first) for item in value)
    if kind is int:
        return is_integer(value)
    return _matches(value, kind) and (kind is not float or math.isfinite(value))


def _to_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_to_tuple(value) if isinstance(value, (list, tuple)) else value for value in values)


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is not tuple:
        return _NUMBERS.get(kind) or f"a {kind.__name__}"
    first, *others = typing.get_args(kind)
    return f"a tuple of {'' if others == [...] else f'{1 + len(others)} '}{_PLURALS.get(first) or first.__name__}"


_PLURALS: dict[Any, str] = {int: "whole numbers", float: "finite numbers", bool: "True and False", str: "texts"}


@functools.cache
def _plain_fields(cls: type) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field that :func:`require_types` checks, and whether the field may be None."""
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # a class defined in a function may use local names in its annotations
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
    return kind in _NUMBERS or dataclasses.is_dataclass(kind)


def with_check(check: Callable[..., None], method: Method) -> Method:
    """Return the method with ``check`` called on its arguments first."""

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return method(*args, **kwargs)

    return cast(Method, checked)


class CheckedConfig:
    """Base of configs: checks the types of the fields before a subclass's ``__post_init__`` reads them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = with_check(require_types, vars(cls)["__post_init__"])  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        require_types(self)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'hcam'? "`` where a known name is similar, else an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry ``name`` of a table.

    Raises:
        ValueError: an unknown name; the message has the most similar one and all others.
    """
    if name in table:
        return table[name]
    raise ValueError(f"unknown {what} {name!r}: {did_you_mean(name, table)}known: {', '.join(table)}")


def require_name(kind: Kind, name: str, own: Mapping[str, Any]) -> str:
    """Return the key of a core, task or recipe, or ``package.module:Name``; nothing is imported.

    Args:
        kind: table that the name belongs to.
        name: a key, ``package.module:Name`` (``gym:ID`` alike), or a name that an installed package declares.
        own: table of this library.

    Raises:
        ValueError: an unknown name, with the most similar one in the message, or one of several packages.
    """
    found = resolve(kind, name, own)
    if ":" not in found:
        lookup({**own, **dict.fromkeys(installed_names(kind))}, found, kind.removesuffix("s"))
    return found


def load_object(name: str, what: str) -> Any:
    """Import ``package.module:attribute``; the current folder is searched too.

    Args:
        name: of the object.
        what: its name in errors, as ``core``.

    Raises:
        ValueError: the module or the attribute is missing.
    """
    module_name, _, attribute = name.partition(":")
    found: Any = import_user_module(module_name, f"{what}={name!r}")
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [known for known, x in vars(found).items() if callable(x) and not known.startswith("_")]
            hint = did_you_mean(part, public) or f"it has {', '.join(public[:12])}"
            raise ValueError(f"{what}={name!r}: {module_name} has no {attribute!r}; {hint}".rstrip())
        found = getattr(found, part)
    return found


def import_user_module(module: str, what: str) -> types.ModuleType:
    """Import a module that is installed or is in the current folder.

    Raises:
        ValueError: it cannot be imported; the message begins with ``what``.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except (ImportError, ValueError, TypeError) as error:
        package = package_of(module)
        remedy = "install it, or go to its folder" if package is None else f"update or uninstall {package}"
        raise ValueError(f"{what}: cannot import {module!r} ({error}): {remedy}") from None
    except Exception as error:
        package = package_of(module)
        if package is None:
            raise  # a mistake in the user's own module: its traceback says where
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{what}: cannot import {module!r} ({reason}): update or uninstall {package}") from None


def parse_value(text: str) -> Any:
    """Parse a value of a command line: true, false, none, a number or other JSON; anything else is text."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def to_json(config: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return a config as JSON data.

    Args:
        config: a dataclass instance.
        kinds: classes by their keys.
    """
    return _encode(config, {cls: key for key, cls in kinds.items()})


def from_json(data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type], *, trust: bool = False) -> T:
    """Return the config that :func:`to_json` wrote.

    Args:
        data: JSON data.
        expected: class of the config, or a base class of it; the class itself then follows from ``kind``.
        kinds: as in :func:`to_json`.
        trust: import modules that the data names; otherwise they must have been imported by this process.

    Raises:
        ValueError: an unknown kind or field, a value of a wrong type, or a kind that is not an ``expected``.
    """
    return _decode(data, expected, _Kinds(kinds, trust), expected.__name__)


def needs_user_code(config: Any) -> bool:
    """Return whether reading the JSON form of a config imports modules outside this package."""
    modules = (type(config).__module__, *getattr(config, "imports", ()))
    inner = (getattr(config, field.name) for field in dataclasses.fields(config))
    return not all(map(_is_installed, modules)) or any(
        needs_user_code(part) for part in inner if dataclasses.is_dataclass(part)
    )


def _is_installed(module: str) -> bool:
    """Return whether a module is of this library, or declared by an installed package."""
    return module.partition(".")[0] == __package__ or package_of(module) is not None


def config_class(
    data: Mapping[str, Any], expected: type[T], kinds: Mapping[str, type], *, trust: bool = False
) -> type[T]:
    """Return the class that the ``kind`` in JSON data stands for.

    Args:
        data: JSON data.
        expected: a base class of it, or the class itself where there is no ``kind``.
        kinds: as in :func:`to_json`.
        trust: as in :func:`from_json`.

    Raises:
        ValueError: an unknown kind, none where one is needed, or one that is not an ``expected``.
    """
    return _class_of(data, expected, _Kinds(kinds, trust), "config")


def upgrade_json(data: Mapping[str, Any], expected: type[Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return JSON data of an older version with today's field names; unchanged where it cannot be read."""
    try:
        return to_json(from_json(data, expected, kinds), kinds)
    except (TypeError, ValueError):
        return dict(data)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Return ``"field: old, now new"`` for every field in which two JSON configs differ."""
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
    """Classes that may be created."""

    table: Mapping[str, type]
    trust: bool


def _class_of(data: Mapping[str, Any], expected: type[T], kinds: _Kinds, where: str) -> type[T]:
    kind = data.get("kind")
    if kind is None:
        if inspect.isabstract(expected):
            raise ValueError(f"{where}: 'kind' is missing: name one of {', '.join(_subclasses(expected, kinds.table))}")
        return expected
    require(isinstance(kind, str), f"{where}.kind", kind, "give the name of a kind, in quotes")
    if ":" in kind:
        module, _, name = kind.partition(":")
        _require_trust(module, f"{where}.kind", kind, kinds.trust)
        try:
            cls = operator.attrgetter(name)(import_user_module(module, f"{where}.kind={kind!r}"))  # may be nested
        except AttributeError as error:
            raise ValueError(f"{where}.kind={kind!r}: cannot import it ({error})") from None
    else:
        cls = lookup(_subclasses(expected, kinds.table), kind, where.rpartition(".")[2])
    if not (isinstance(cls, type) and issubclass(cls, expected)):
        raise ValueError(f"{where}.kind={kind!r}: that is no {expected.__name__}")
    return cls


def _require_trust(module: str, field: str, value: object, trust: bool) -> None:
    known = module in sys.modules or _is_installed(module)
    require(
        known or trust,
        field,
        value,
        f"cannot import it without --trust (trust=True), since that runs code of {module}: add it if you trust "
        f"the author; a script can also import {module} before",
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
    require(any(_matches(data, candidate) for candidate in _alternatives(expected)), where, data, _remedy(expected))
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
    for module in getattr(made, "imports", ()):  # modules that its build() imports
        _require_trust(module, where, module, kinds.trust)
    return made


def _matches(data: Any, candidate: Any) -> bool:
    """Return whether plain data is of the annotated type of a field."""
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


def _remedy(expected: Any) -> str:
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


def _subclasses(expected: type, kinds: Mapping[str, type]) -> dict[str, type]:
    return {key: cls for key, cls in kinds.items() if issubclass(cls, expected)}
