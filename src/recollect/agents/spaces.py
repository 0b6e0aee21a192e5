"""Gymnasium spaces: their parts, images and symbols, and their JSON in files of agents.

{"kind": "Box", "low": 0, "high": 255, "shape": [99, 99, 3], "dtype": "uint8"}
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.config import require
from recollect.lazy import np, spaces
from recollect.tasks.worlds.contract import escape_key

LARGEST_GRID = 16  # longest side of an integer Box that is a grid of symbols; a larger one is an image
SMALLEST_SIDE = 8  # shortest side of an image
MOST_NUMBERS = 1 << 26  # in a Box that is read from a file


def parts(space: spaces.Space[Any], name: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Yield ``(name, space)`` of every leaf of a nested space, with escaped keys joined by ``/``."""
    if isinstance(space, spaces.Dict):
        children = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        children = [(str(index), child) for index, child in enumerate(space.spaces)]
    else:
        yield name or "observation", space
        return
    for key, child in children:
        if not isinstance(key, str) or not key:
            raise ValueError(f"observation space has the key {key!r}, for {child}: give it a name, as text")
        own = escape_key(key)
        yield from parts(child, f"{name}/{own}" if name else own)


def split_name(name: str, separator: str) -> list[str]:
    """Return the keys in the name of a part."""
    signs = {"%25": "%", "%2E": ".", "%2F": "/"}
    return [re.sub("%2[5EF]", lambda found: signs[found[0]], key) for key in name.split(separator)]


def nest_parts(flat: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Return nested dicts of parts whose escaped keys are joined by a separator."""
    tree: dict[str, Any] = {}
    for name, part in flat.items():
        *groups, own = split_name(name, separator)
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[own] = part
    return tree


def symbols(space: spaces.Space[Any]) -> tuple[int, int]:
    """Return the least and the largest symbol of an integer space.

    Raises:
        ValueError: the space does not hold integers.
    """
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.start.min()), int((space.start + space.nvec).max()) - 1
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
        return int(space.low.min()), int(space.high.max())
    raise ValueError(f"{space} holds no symbols: use a MultiDiscrete or a Box of integers")


def sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return rows, columns and channels of an image of shape [y, x], [y, x, c] or [c, y, x]."""
    if len(shape) == 2:
        return (*shape, 1)
    first = shape[0] < shape[2]
    return (shape[1], shape[2], shape[0]) if first else (shape[0], shape[1], shape[2])


def is_image(space: spaces.Box) -> bool:
    """Whether a Box holds images: bytes, or numbers with three axes, larger than a grid of symbols."""
    if len(space.shape) not in (2, 3) or 0 in space.shape:
        return False
    y, x, _ = sides(space.shape)
    large = max(y, x) > LARGEST_GRID and min(y, x) >= SMALLEST_SIDE
    return large and (space.dtype == np.uint8 or len(space.shape) == 3)


def is_same_space(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Return whether two spaces have the same elements; integers may differ in their dtype, which no file keeps."""
    if one == other:
        return True
    choices = (spaces.Discrete, spaces.MultiDiscrete)
    return isinstance(one, choices) and isinstance(other, choices) and space_to_json(one) == space_to_json(other)


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as JSON data.

    Raises:
        ValueError: no agent can read or act in a space of this kind.
    """
    match space:
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
        case spaces.Box():
            bounds = {"low": _bound(space.low), "high": _bound(space.high)}
            return {"kind": "Box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {key: space_to_json(child) for key, child in space.spaces.items()}}
        case spaces.Tuple():
            return {"kind": "Tuple", "spaces": [space_to_json(child) for child in space.spaces]}
    raise ValueError(f"{space}: a {type(space).__name__} space cannot be saved")


def space_from_json(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that :func:`space_to_json` wrote.

    Raises:
        ValueError: an unknown kind, or a Box of more numbers than an observation has.
    """
    match data["kind"]:
        case "Discrete":
            return spaces.Discrete(data["n"], start=data["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
        case "MultiBinary":
            return spaces.MultiBinary(data["n"])
        case "Box":
            shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
            require(math.prod(shape) <= MOST_NUMBERS, "shape", shape, f"give at most {MOST_NUMBERS} numbers")
            require(dtype.kind in "fiub", "dtype", data["dtype"], "give numbers")
            low, high = (_array(data[name], shape, dtype) for name in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        case "Dict":
            # A list of pairs keeps the order in which the agent concatenates the parts.
            return spaces.Dict([(key, space_from_json(child)) for key, child in data["spaces"].items()])
        case "Tuple":
            return spaces.Tuple([space_from_json(child) for child in data["spaces"]])
    raise ValueError(f"unknown kind of space {data['kind']!r}")


def _bound(array: np.ndarray) -> Any:
    """Return one number where all are equal, else a nested list; infinities as text, because JSON has none."""
    values = array.tolist() if array.size == 0 or (array != array.flat[0]).any() else array.flat[0].item()
    return _infinities_as_text(values)


def _infinities_as_text(values: Any) -> Any:
    if isinstance(values, list):
        return [_infinities_as_text(value) for value in values]
    return str(values) if values in (float("inf"), float("-inf")) else values


def _array(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    numbers = np.array(values)  # an "inf" makes all of it text
    if numbers.dtype.kind == "U":
        numbers = numbers.astype(np.float64)
    return np.broadcast_to(numbers.astype(dtype), shape).copy()
