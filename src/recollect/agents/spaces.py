"""Gymnasium spaces as JSON, and back, so that a saved agent knows what it saw and did.

{"kind": "Box", "low": 0, "high": 255, "shape": [99, 99, 3], "dtype": "uint8"}
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as JSON data.

    Raises:
        ValueError: a kind of space that no agent can see or act in.
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
    """The space that :func:`space_to_json` wrote.

    Raises:
        ValueError: an unknown kind.
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
            low, high = (_array(data[name], shape, dtype) for name in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        case "Dict":
            # A list of pairs keeps the order in which the agent joins the parts.
            return spaces.Dict([(key, space_from_json(child)) for key, child in data["spaces"].items()])
        case "Tuple":
            return spaces.Tuple([space_from_json(child) for child in data["spaces"]])
    raise ValueError(f"unknown kind of space {data['kind']!r}")


def _bound(array: np.ndarray) -> Any:
    """One number where all are equal; infinity as text, which JSON has no number for."""
    values = array.tolist() if array.size == 0 or (array != array.flat[0]).any() else array.flat[0].item()
    return _words(values)


def _words(values: Any) -> Any:
    if isinstance(values, list):
        return [_words(value) for value in values]
    return str(values) if values in (float("inf"), float("-inf")) else values


def _array(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    numbers = np.array(values)  # "inf" makes it an array of text, which has a way back to numbers
    if numbers.dtype.kind == "U":
        numbers = numbers.astype(np.float64)
    return np.broadcast_to(numbers.astype(dtype), shape).copy()
