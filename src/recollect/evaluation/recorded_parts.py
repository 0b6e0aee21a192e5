"""What the parts of recorded episodes may hold: how a file gives them, and what a world allows.

A file's arrays are brought to one form where it is read: whole numbers as int64 where they are actions or lengths, bool
for what ended, the machine's byte order, and 0 as the action of an episode's last step, at which nobody acts.
"""

import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from recollect.agents.spaces import space_from_json
from recollect.config import require

PARTS = {
    "action": ("iuf", "whole numbers or floats [steps, ...]"),
    "reward": ("iuf", "numbers [steps]"),
    "lengths": ("iu", "whole numbers [episodes]"),
    "terminated": ("biu", "True or False, or 1 or 0, [episodes]"),
    "score": ("biuf", "numbers [episodes]"),
}
"""Kinds of numbers of every part, in NumPy's letters, and what to give."""
SEEN = ("biuf", "numbers [steps, ...]")
ROWS = 1 << 16
"""Steps that are looked at a time: what is found is as large as what is looked at."""


def parts_of(arrays: Mapping[str, np.ndarray], source: str) -> dict[str, Any]:
    """The parts of a recording, from the arrays of a file.

    Raises:
        ValueError: one is missing, or holds something else; names the file and the part.
    """
    missing = [name for name in ("action", "lengths") if name not in arrays]
    seen = {
        name.removeprefix("observation").removeprefix("."): _as_given(name, leaf, SEEN, source)
        for name, leaf in arrays.items()
        if name == "observation" or name.startswith("observation.")
    }
    if missing or not seen:
        raise ValueError(f"{source} has no {', '.join(missing or ['observation'])}: it has {', '.join(arrays)}")
    parts: dict[str, Any] = {
        name: _as_given(name, arrays[name], asked, source) for name, asked in PARTS.items() if name in arrays
    }
    lengths, action = parts["lengths"].astype(np.int64), parts["action"]
    whole = action.dtype.kind in "iu"
    parts = {
        "reward": np.zeros(len(action), np.float32),
        "terminated": np.ones(len(lengths), bool),
        "score": np.zeros(len(lengths), np.float32),
    } | parts
    return parts | {
        "observation": seen,
        "action": _idle_at_the_end(action.astype(np.int64 if whole else np.float32), lengths),
        "lengths": lengths,
        "terminated": _as_bool(parts["terminated"], source),
        "action_space": None if "action_space" not in arrays else _space(arrays["action_space"], source),
        "words": () if "words" not in arrays else _words(arrays["words"], source),
    }


def require_finite(part: str, array: np.ndarray, lengths: np.ndarray, name: str) -> None:
    """Raise ``ValueError`` where a part of episodes, ``[n, ...]``, is infinite or no number; says at which step."""
    if array.dtype.kind != "f":
        return
    for begin in range(0, len(array), ROWS):
        wrong = ~np.isfinite(array[begin : begin + ROWS])
        if wrong.any():
            at = np.argwhere(wrong)[0]
            at[0] += begin
            step = int(at[0])
            value = float(array[tuple(at)])
            raise ValueError(f"{part}={value}: {name}, {_place(step, lengths)}: leave this episode out")


def require_inside(
    part: str, array: np.ndarray, space: gymnasium.Space[Any], lengths: np.ndarray, name: str
) -> None:  # fmt: skip
    """Raise ``ValueError`` where what was seen, ``[n, ...]``, is none of a space's whole numbers; says at which step.

    Args:
        part: of the observation.
        array: of the space's shape, behind the steps.
        space: of the world; one of floats, or with parts, allows everything here.
        lengths: of the episodes.
        name: of the recording, for messages.
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
            return  # nothing else fits in: saves a look at all pictures
    for begin in range(0, len(array), ROWS):
        some = array[begin : begin + ROWS]
        if (some.min(0) < low).any() or (some.max(0) > high).any():
            at = np.argwhere((some < low) | (some > high))[0]
            value = some[tuple(at)].item()
            where = f"{name}, {_place(begin + int(at[0]), lengths)}"
            raise ValueError(
                f"{part}={value}: {where}: the world shows {space}: was it recorded with other settings of the world, "
                "as another vocabulary?"
            )


def whole_bounds(space: gymnasium.Space[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """The least and the largest numbers of a space of whole numbers, both included; None for any other space."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.array(space.start), np.array(space.start + space.n - 1)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.integer):
        return space.low, space.high
    return None


def _as_given(name: str, array: np.ndarray, asked: tuple[str, str], source: str) -> np.ndarray:
    """An array in the machine's byte order, which is the only one that torch takes."""
    kinds, give = asked
    fits = array.dtype.kind in kinds and (array.ndim >= 1 if "..." in give else array.ndim == 1)
    require(fits, name, f"{array.dtype} {list(array.shape)}", f"{source}: give {give}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _as_bool(terminated: np.ndarray, source: str) -> np.ndarray:
    wrong = np.flatnonzero((terminated != 0) & (terminated != 1))
    if len(wrong):
        found, give = terminated[wrong[0]], PARTS["terminated"][1]
        raise ValueError(f"terminated={found}: {source}, episode {wrong[0]}: give {give}")
    return terminated.astype(bool)


def _idle_at_the_end(action: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same actions, 0 at the last step of every episode: files have anything there, and learners index by it."""
    fits = len(lengths) > 0 and int(lengths.min()) >= 1 and int(lengths.sum()) == len(action)
    if fits:  # else nobody knows where episodes end, and Recording.require says so
        action[lengths.cumsum() - 1] = 0
    return action


def _space(text: np.ndarray, source: str) -> gymnasium.Space[Any]:
    try:
        return space_from_json(json.loads(str(text)))
    except Exception as error:  # gymnasium raises whatever numbers that make no space lead it to
        raise ValueError(
            f"{source}: its action_space describes no space ({type(error).__name__}: {error}): leave this array out, "
            "or write what recollect.agents.spaces.space_to_json gives, as JSON"
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
