"""Checks of the parts of recorded episodes: arrays of a file, and values that a world allows.

Arrays of a file are converted to one form: actions and lengths of whole numbers to int64, ``terminated`` to bool, all
to types that torch takes, and the action of an episode's last step, which is not taken, to 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recollect.agents.spaces import space_from_json
from recollect.config import require
from recollect.lazy import gymnasium, np

PARTS = {
    "action": ("iuf", "whole numbers or floats [steps, ...]"),
    "reward": ("iuf", "numbers [steps]"),
    "lengths": ("iu", "whole numbers [episodes]"),
    "terminated": ("biu", "True or False, or 1 or 0, [episodes]"),
    "score": ("biuf", "numbers [episodes]"),
}  # NumPy's kinds of numbers for every part, and a description
SEEN = ("biuf", "numbers [steps, ...]")
ROWS = 1 << 16  # steps per check, which bounds the memory of a check


def parts_of(arrays: Mapping[str, np.ndarray], source: str) -> dict[str, Any]:
    """Make the parts of a recording from the arrays of a file.

    Where a file lacks them, rewards and scores are 0, and every episode has terminated.

    Raises:
        ValueError: a part is missing or invalid; names the file and the part.
    """
    missing = [name for name in ("action", "lengths") if name not in arrays]
    seen = {
        name.removeprefix("observation").removeprefix("."): _check_array(name, leaf, SEEN, source)
        for name, leaf in arrays.items()
        if name == "observation" or name.startswith("observation.")
    }
    if missing or not seen:
        raise ValueError(
            f"{source} has no {', '.join(missing or ['observation'])}: it has {', '.join(arrays) or 'nothing'}; name "
            "the arrays observation (or observation.NAME), action and lengths, as recollect evaluate --record does"
        )
    parts: dict[str, Any] = {
        name: _check_array(name, arrays[name], asked, source) for name, asked in PARTS.items() if name in arrays
    }
    lengths, action = parts["lengths"].astype(np.int64), parts["action"]
    action = action.astype(np.int64 if action.dtype.kind in "iu" else np.float32)
    if len(lengths) and int(lengths.min()) >= 1 and int(lengths.sum()) == len(action):  # else Recording.require raises
        action[lengths.cumsum() - 1] = 0  # files hold anything there, and learners index by it
    terminated = parts.get("terminated", np.ones(len(lengths), bool))
    wrong = np.flatnonzero((terminated != 0) & (terminated != 1))
    if len(wrong):
        value, give = terminated[wrong[0]], PARTS["terminated"][1]
        raise ValueError(f"terminated={value}: {source}, episode {wrong[0]}: give {give}")
    missing_parts = {"reward": np.zeros(len(action), np.float32), "score": np.zeros(len(lengths), np.float32)}
    return {
        **missing_parts,
        **parts,
        "observation": seen,
        "action": action,
        "lengths": lengths,
        "terminated": terminated.astype(bool),
        "action_space": None if "action_space" not in arrays else _space(arrays["action_space"], source),
        "words": () if "words" not in arrays else _words(arrays["words"], source),
    }


def to_torch_type(array: np.ndarray) -> np.ndarray:
    """Return the same numbers in a type that torch computes with.

    It has the machine's byte order alone, no long floats, and does not calculate with unsigned numbers but bytes.
    """
    kind = array.dtype.newbyteorder("=")
    if kind.kind == "u" and kind.itemsize > 1:
        kind = np.dtype(np.int32 if kind.itemsize == 2 else np.int64)
    elif kind.kind == "f" and kind.itemsize > 8:
        kind = np.dtype(np.float64)
    return array.astype(kind, copy=False)


def require_finite(part: str, array: np.ndarray, lengths: np.ndarray, name: str) -> None:
    """Raise ``ValueError`` where a part of episodes, ``[n, ...]``, is no finite float32; names the step."""
    if array.dtype.kind != "f":
        return
    for begin in range(0, len(array), ROWS):
        wrong = ~(np.abs(array[begin : begin + ROWS]) <= np.finfo(np.float32).max)
        if wrong.any():
            at = np.argwhere(wrong)[0] + [begin, *[0] * (array.ndim - 1)]
            value, step = float(array[tuple(at)]), int(at[0])
            remedy = "scale it, since float32 cannot hold it" if np.isfinite(value) else "leave this episode out"
            raise ValueError(f"{part}={value}: {name}, {_place(step, lengths)}: {remedy}")


def require_finite_parts(parts: Mapping[str, Any], lengths: np.ndarray, name: str) -> None:
    """Raise ``ValueError`` where a number of the parts of a recording is no finite float32; names part and step."""
    for leaf, array in parts["observation"].items():
        require_finite(f"observation.{leaf}" if leaf else "observation", np.asarray(array), lengths, name)
    require_finite("reward", np.asarray(parts["reward"]), lengths, name)
    taken = np.delete(np.asarray(parts["action"]), lengths.cumsum() - 1, axis=0)
    require_finite("action", taken, lengths - 1, name)
    require_finite("score", np.repeat(np.asarray(parts["score"]), lengths), lengths, name)


def require_inside(
    part: str, array: np.ndarray, space: gymnasium.Space[Any], lengths: np.ndarray, name: str
) -> None:  # fmt: skip
    """Raise ``ValueError`` where a part of the observation, ``[n, ...]``, is outside a space of whole numbers.

    The message names the step. Spaces of floats, or with parts, allow everything here.
    """
    bounds = whole_bounds(space)
    if bounds is None:
        return
    counts = isinstance(space, (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete))
    whole = array.dtype.kind in "iu" or not counts
    require(whole, part, str(array.dtype), f"{name}: the world shows {space}: give whole numbers")
    low, high = bounds
    if array.dtype.kind in "iu" and low.size:
        reach = np.iinfo(array.dtype)
        if int(low.max()) <= reach.min and reach.max <= int(high.min()):
            return  # the dtype holds nothing else: no need to check all pictures
    for begin in range(0, len(array), ROWS):
        rows = array[begin : begin + ROWS]
        if (rows.min(0) < low).any() or (rows.max(0) > high).any():
            at = np.argwhere((rows < low) | (rows > high))[0]
            raise ValueError(
                f"{part}={rows[tuple(at)].item()}: {name}, {_place(begin + int(at[0]), lengths)}: the world shows "
                f"{space}: was it recorded with other settings of the world, as another vocabulary?"
            )


def whole_bounds(space: gymnasium.Space[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the least and largest numbers of a space of whole numbers; None for any other space."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.array(space.start), np.array(space.start + space.n - 1)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.integer):
        return space.low, space.high
    return None


def _check_array(name: str, array: np.ndarray, asked: tuple[str, str], source: str) -> np.ndarray:
    """Check an array, and convert it to a type that torch takes."""
    kinds, give = asked
    fits = array.dtype.kind in kinds and (array.ndim >= 1 if "..." in give else array.ndim == 1)
    require(fits, name, f"{array.dtype} {list(array.shape)}", f"{source}: give {give}")
    return to_torch_type(array)


def _space(text: np.ndarray, source: str) -> gymnasium.Space[Any]:
    try:
        return space_from_json(json.loads(str(text)))
    except Exception as error:  # gymnasium raises anything for invalid numbers
        raise ValueError(
            f"{source}: its action_space describes no space ({type(error).__name__}: {error}): leave this array out, "
            "or write the result of recollect.agents.spaces.space_to_json as JSON"
        ) from None


def _words(words: np.ndarray, source: str) -> tuple[str, ...]:
    fits = words.ndim == 1 and (words.dtype.kind == "U" or not len(words))
    remedy = f"{source}: give a text [words] for every number in observation.language, the first one empty"
    require(fits, "words", f"{words.dtype} {list(words.shape)}", remedy)
    return tuple(str(word) for word in words)


def _place(step: int, lengths: np.ndarray) -> str:
    ends = np.cumsum(lengths)
    episode = int(np.searchsorted(ends, step, side="right"))
    return f"step {step} (step {step - int(ends[episode] - lengths[episode])} of episode {episode})"
