"""Snapshots of all data that an object holds, to find changes and growth."""

import functools
import random
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FOREIGN = ("torch", "builtins", "typing", "abc", "collections", "numpy", "functools", "enum", "weakref", "_thread")
"""Packages whose classes and globals are not inspected."""
DEEPEST = 12
LARGEST = 100_000


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Return copies of all data of a module and its children, by name.

    Included: parameters, buffers, attributes, containers (also deques and NumPy arrays), objects, closures, random
    generators, attributes of classes, and the globals that methods of their classes use, also through functions.
    """
    return {name: _copy(value) for name, value in _walk(module)}


def settings() -> dict[str, Any]:
    """Return global settings of torch, by name."""
    return {
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch's default device": str(torch.get_default_device()),
        "torch's precision of float32 products": torch.get_float32_matmul_precision(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's use of deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's detection of anomalies": torch.is_anomaly_enabled(),
    }


@contextmanager
def settings_kept() -> Iterator[None]:
    """Restore global settings that change numbers or speed, at the end of a context."""
    kept = (torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.get_num_threads())
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch.set_default_dtype(kept[0])
            torch.set_float32_matmul_precision(kept[1])
            if torch.get_num_threads() != kept[2]:
                torch.set_num_threads(kept[2])


def find_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return the first name for which two snapshots differ."""
    for name in [*before, *(name for name in after if name not in before)]:
        if not (name in before and name in after and _equal(before[name], after[name])):
            return name
    return None


def held_bytes(thing: Any) -> int:
    """Return the bytes of all data that an object holds, in and outside tensors."""
    return sum(_size(value) for _, value in _walk(thing))


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield plain values, tensors and containers (as their lengths), depth first, each object once."""
    seen: dict[int, Any] = {}  # with the objects, because ids of deleted objects are reused
    stack: list[tuple[str, Any, int]] = [("", root, 0)]
    count = 0
    while stack and count < LARGEST:
        name, value, depth = stack.pop()
        count += 1
        if _is_plain(value):
            yield name, value
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Tensor | np.ndarray | torch.Generator | random.Random):
            yield name, value
            continue
        if depth < DEEPEST:
            children = list(_children(name, value))
            if isinstance(value, list | tuple | set | frozenset | dict | deque):
                yield f"length of {name}", _Length(value)
            stack += [(child, item, depth + 1) for child, item in reversed(children)]


class _Length:
    """Length of a container, and the bytes of the container itself."""

    def __init__(self, container: Any) -> None:
        self.length = len(container)
        self.nbytes = sys.getsizeof(container)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Length) and other.length == self.length

    def __hash__(self) -> int:
        return self.length


def _children(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    dot = f"{name}." if name else ""
    if isinstance(value, nn.Module):
        yield from ((f"parameter {dot}{key}", item) for key, item in value._parameters.items())
        yield from ((f"buffer {dot}{key}", item) for key, item in value._buffers.items())
        yield from ((f"{dot}{key}", item) for key, item in value._modules.items())
        skipped = ("_parameters", "_buffers", "_modules", "training")
        own = {key: item for key, item in vars(value).items() if key not in skipped}
        yield from ((f"attribute {dot}{key}", item) for key, item in own.items())
        yield from _of_class(type(value))
    elif isinstance(value, Mapping):
        yield from ((f"{name}[{key!r:.40}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(list(value)))
    elif isinstance(value, functools.partial):
        yield from ((f"{name}.{part}", getattr(value, part)) for part in ("func", "args", "keywords"))
    elif isinstance(value, types.MethodType):
        yield f"{name}.__self__", value.__self__
        yield name, value.__func__
    elif isinstance(value, types.FunctionType):
        if not _foreign(value.__module__):
            yield from _of_function(name, value)
    elif isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return
    elif not _foreign(type(value).__module__):
        yield from ((f"{dot}{key}", item) for key, item in list(getattr(value, "__dict__", {}).items()))
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                    yield f"{dot}{slot}", getattr(value, slot)
        yield from _of_class(type(value))


def _of_class(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield attributes of a class, and the globals that its methods use."""
    for base in cls.__mro__:
        if _foreign(base.__module__):
            continue
        for key, item in vars(base).items():
            if isinstance(item, types.FunctionType):
                yield from _of_function(f"{base.__name__}.{key}", item)
            elif not key.startswith("__") and not isinstance(item, property | classmethod | staticmethod):
                yield f"class attribute {base.__name__}.{key}", item


def _of_function(name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"closure {name}.{key}", cell.cell_contents
        except ValueError:  # an empty cell
            continue
    if function.__defaults__:
        yield f"defaults of {name}", function.__defaults__
    if function.__kwdefaults__:
        yield f"keyword defaults of {name}", function.__kwdefaults__
    yield from ((f"{name}.{key}", item) for key, item in vars(function).items())
    for key in function.__code__.co_names:
        item = function.__globals__.get(key)
        if item is not None and not isinstance(item, types.ModuleType | type):
            yield f"global {key}", item


def _foreign(module: str | None) -> bool:
    return module is None or module.partition(".")[0] in FOREIGN


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | bytearray | np.generic)


def _is_unreadable(tensor: Tensor) -> bool:
    """Return whether the values of a tensor cannot be read: on the meta device, or packed by oneDNN."""
    return tensor.is_meta or tensor.layout != torch.strided


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return str((value.shape, value.dtype)) if _is_unreadable(value) else value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    return bytes(value) if isinstance(value, bytearray) else value


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        same = left.shape == right.shape and left.dtype == right.dtype
        return same and bool(((left == right) | ((left != left) & (right != right))).all())
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()
    return type(left) is type(right) and bool(left == right or (left != left and right != right))


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size() if _is_unreadable(value) else value.untyped_storage().nbytes()
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, _Length):
        return value.nbytes
    return sys.getsizeof(value) if isinstance(value, str | bytes | bytearray) else 0
