"""Checked conversion of what environments return: no value is cast, wrapped or cut off silently.

A value is right, or is taken without loss (whole floats for integers, an array of one number for a number), or is
refused with its row, its part, what was returned and what the space declares. Floats beyond the bounds of a Box are
taken with a warning, because environments often declare bounds that they do not keep.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.lazy import LazyModule, np, torch

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces
else:
    spaces = LazyModule("gymnasium.spaces")

OLD_INTERFACE = (
    "this is the interface of Gym before version 0.26: return what Gymnasium expects, or wrap the environment in "
    "shimmy's GymV21CompatibilityV0"
)


LARGEST = 3.4028234663852886e38
"""Largest number of float32, which rewards are kept in."""
NEED = "recollect"
"""Key of an info in which an environment says what must be remembered."""


class MemoryNeed(NamedTuple):
    """What an environment says about the present step: ``info["recollect"] = {"event": ..., "depends_on": [a, b]}``."""

    event: str | None = None
    """Name of what happens now; None where nothing does."""
    depends_on: tuple[int, int] | None = None
    """The present decision depends on steps ``a .. b - 1`` of this episode, counted from 0 at its first observation;
    None where it depends on none."""


class ObservationError(ValueError):
    """An observation is not in its space.

    Args:
        row: its index in the batch.
        message: part, value, space and remedy.
    """

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class PartReader:
    """Reads one part of the observations of b rows, as arrays ``[b, *shape]``.

    Args:
        space: a Box, Discrete, MultiDiscrete or MultiBinary.
        part: its name, for errors.
    """

    def __init__(self, space: gymnasium.Space[Any], part: str) -> None:
        self.space, self.part = space, part
        self.shape: tuple[int, ...] = space.shape or ()
        self.is_float = bool(np.issubdtype(space.dtype, np.floating))
        self.start: Any = 0
        self.limits: tuple[Any, Any] | None = None
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            self.start = space.start
            size = space.n if isinstance(space, spaces.Discrete) else space.nvec
            self.limits = self.start, self.start + size - 1
        elif isinstance(space, spaces.MultiBinary):
            self.limits = 0, 1
        elif isinstance(space, spaces.Box) and not self.is_float:
            self.limits = space.low, space.high
        self.reads = 0
        self.bounds: tuple[np.ndarray, np.ndarray] | None = None  # of floats, until one is beyond them
        if self.is_float and isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).any():
            self.bounds = space.low, space.high
        is_number = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
        self.dtype = np.dtype(np.int64 if is_number else space.dtype)
        self.takes_all = self._takes_every_value()

    def read(self, values: Any) -> np.ndarray:
        """Convert a list of values, or a batch, to a new array of float32, or of the integers of the space.

        Raises:
            ObservationError: a value is not in the space and cannot be taken without loss.
        """
        array = self._to_array(values)
        if self.is_float:
            return self._to_floats(array)
        if self.takes_all and array.dtype == self.dtype:
            return array
        return (self._to_integers(array) - self.start).astype(self.dtype, copy=False)

    def _to_array(self, values: Any) -> np.ndarray:
        """Return numbers ``[b, *shape]`` of any kind, as a new array."""
        kinds = {type(values)} if isinstance(values, np.ndarray) else set(map(type, values))
        try:
            array = None if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds) else np.array(values)
        except (ValueError, RuntimeError, TypeError):  # rows of different shapes, or tensors NumPy cannot read
            array = None
        if array is not None and array.dtype.kind in "fiub" and array.shape[1:] == self.shape:
            return array
        rows = []
        for row, value in enumerate(values):
            if np.ma.is_masked(value):
                raise self._error(row, "has masked numbers", "fill them")
            one = _as_array(value)
            if one.dtype.kind not in "fiub":
                raise self._error(row, f"is {value!r:.80} ({type(value).__name__})", "return numbers")
            if one.shape != self.shape and not one.size == 1 == int(np.prod(self.shape)):
                raise self._error(row, f"has shape {one.shape}", "return this shape, or declare the other one")
            rows.append(one.reshape(self.shape))
        return np.stack(rows)

    def _to_floats(self, array: np.ndarray) -> np.ndarray:
        if self.bounds is not None:
            self.reads += 1
            if self.reads <= 64 or self.reads % 16 == 0:
                self._warn_beyond(array, *self.bounds)
        if array.dtype == np.float32:
            return array
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        self._require(np.isfinite(narrow) | ~np.isfinite(array), array, "which float32 cannot hold: scale it")
        return narrow

    def _warn_beyond(self, array: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Warn once of floats beyond the bounds, which are taken as they are; only some of many reads are looked at."""
        beyond = (array < low) | (array > high)  # false where a number is NaN, which is reported elsewhere
        if not beyond.any():
            return
        self.bounds = None
        place = tuple(int(axis[0]) for axis in np.nonzero(beyond))
        warnings.warn(
            f"{self.part} is {array[place]!s} in row {place[0]}{self._describe_place(place)}, beyond its space "
            f"{self.space}: it is taken as it is; declare the range that the environment returns",
            RuntimeWarning,
            stacklevel=2,
        )

    def _to_integers(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                whole = array == np.floor(array)
            self._require(
                whole & np.isfinite(array), array, "which is no integer: declare a Box of floats, or round it"
            )
        if self.limits is not None:
            low, high = self.limits
            remedy = "which is out of range: declare the range that the environment returns"
            self._require((array >= low) & (array <= high), array, remedy)
        return array.astype(np.int64) if array.dtype.kind in "fb" else array

    def _require(self, right: np.ndarray, array: np.ndarray, remedy: str) -> None:
        if right.all():
            return
        place = tuple(int(axis[0]) for axis in np.nonzero(~right))
        raise self._error(place[0], f"is {array[place]!s}{self._describe_place(place)}", remedy)

    def _describe_place(self, place: tuple[int, ...]) -> str:
        return f" at {list(place[1:])}" if self.shape else ""

    def _error(self, row: int, shown: str, remedy: str) -> ObservationError:
        return ObservationError(row, f"{self.part} {shown}, and its space is {self.space}; {remedy}")

    def _takes_every_value(self) -> bool:
        """Return whether the space holds every value of its dtype, so that none need be checked."""
        if not isinstance(self.space, spaces.Box) or self.is_float:
            return False
        if self.dtype.kind == "b":
            return True
        all_values = np.iinfo(self.dtype.type)
        return bool((self.space.low == all_values.min).all() and (self.space.high == all_values.max).all())


def select_part(observations: Any, path: tuple[str | int, ...]) -> Any:
    """Select one part of all rows, from a list of single observations or from the columns of a vector environment.

    Raises:
        ObservationError: an observation has no such part.
    """
    for key in path:
        if isinstance(observations, (Mapping, tuple)):
            observations = _entry(observations, key, 0)
        else:
            observations = [_entry(observation, key, row) for row, observation in enumerate(observations)]
    return observations


def _entry(observation: Any, key: str | int, row: int) -> Any:
    try:
        return observation[key]
    except (KeyError, IndexError, TypeError):
        found = ", ".join(map(repr, observation)) if isinstance(observation, Mapping) else repr(observation)[:80]
        raise ObservationError(row, f"the part {key!r} is missing: the observation has {found}") from None


def read_reset(answer: Any) -> tuple[Any, MemoryNeed | None]:
    """Return the observation of what ``reset`` returned, and what must be remembered, where it says so.

    Raises:
        ValueError: it is not a pair of an observation and a dict.
    """
    if isinstance(answer, (tuple, list)) and len(answer) == 2:
        if isinstance(answer[1], Mapping):
            return answer[0], read_need(answer[1])
        if answer[1] is None:
            raise ValueError("reset returned (observation, None): return a dict as info, {} if there is nothing to say")
    raise ValueError(f"reset returned {_describe(answer)} instead of (observation, info): {OLD_INTERFACE}")


def read_step(answer: Any) -> tuple[Any, float, bool, bool, MemoryNeed | None]:
    """Return observation, reward, terminated and truncated of what ``step`` returned, and what must be remembered.

    Raises:
        ValueError: there are not five values, the reward is no number, or a flag is neither true nor false.
    """
    _require_five(answer)
    observation, reward, terminated, truncated, info = answer
    # What is right already takes no further call: this runs for every row at every step.
    if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
        reward = _number("reward", reward)
    if type(terminated) is not bool:
        terminated = _flag("terminated", terminated)
    if type(truncated) is not bool:
        truncated = _flag("truncated", truncated)
    need = None if type(info) is dict and NEED not in info else read_need(info)
    return observation, reward, terminated, truncated, need


def read_vector_step(answer: Any, size: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Any]:
    """Return what ``step`` of a vector environment of ``size`` rows returned, as new arrays of float32 and bool.

    Raises:
        ValueError: there are not five values, or rewards and flags are not one number for each row.
    """
    _require_five(answer)
    observation, reward, terminated, truncated, info = answer
    ended, cut = _row_flags("terminated", terminated, size), _row_flags("truncated", truncated, size)
    return observation, _row_numbers("reward", reward, size), ended, cut, info


def _require_five(answer: Any) -> None:
    if not isinstance(answer, (tuple, list)) or len(answer) != 5:
        wanted = "(observation, reward, terminated, truncated, info)"
        is_old = isinstance(answer, (tuple, list)) and len(answer) == 4
        remedy = OLD_INTERFACE if is_old else "return these five values"
        raise ValueError(f"step returned {_describe(answer)} instead of {wanted}: {remedy}")


def _row_numbers(name: str, value: Any, size: int) -> np.ndarray:
    array = _as_array(value)
    if array.shape != (size,) or array.dtype.kind not in "fiub" or np.ma.is_masked(value):
        raise ValueError(f"{name} is {value!r:.80}: return one number for each of {size} environments")
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if array.dtype != np.float32 and (wrong := np.isinf(narrow) & np.isfinite(array)).any():
        raise ValueError(f"{name} is {array[wrong][0]!s} in row {wrong.argmax()}, which float32 cannot hold: scale it")
    return narrow


def _row_flags(name: str, value: Any, size: int) -> np.ndarray:
    array = _as_array(value)
    if array.shape == (size,) and array.dtype == bool:
        return array.copy()
    if array.shape != (size,) or array.dtype.kind not in "fiu" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} is {value!r:.80}: return True or False for each of {size} environments")
    return array.astype(bool)


def read_need(info: Any) -> MemoryNeed | None:
    """Return what an info says must be remembered; None where it says nothing.

    Raises:
        ValueError: it says so in another form.
    """
    if not isinstance(info, Mapping) or NEED not in info:
        return None
    said = info[NEED]
    if not isinstance(said, Mapping) or not said.keys() <= {"event", "depends_on"}:
        raise ValueError(
            f"info[{NEED!r}] is {said!r:.80}: give {{'event': name, 'depends_on': [a, b]}}, or parts of it"
        )
    event, interval = said.get("event"), said.get("depends_on")
    if event is not None and not isinstance(event, str):
        raise ValueError(f"info[{NEED!r}]['event'] is {event!r:.80}: give a name, or None")
    if interval is None:
        return MemoryNeed(event)
    array = np.asarray(interval)
    if array.shape != (2,) or array.dtype.kind not in "iu" or not 0 <= array[0] < array[1]:
        raise ValueError(
            f"info[{NEED!r}]['depends_on'] is {interval!r:.80}: give [a, b] for the steps a .. b - 1 of this episode, "
            "with 0 <= a < b, or None"
        )
    return MemoryNeed(event, (int(array[0]), int(array[1])))


def _number(name: str, value: Any) -> float:
    if not isinstance(value, (float, int)):
        array = _as_array(value)
        if array.size != 1 or array.dtype.kind not in "fiub" or np.ma.is_masked(value):
            raise ValueError(f"{name} is {value!r:.80}: return one number")
        value = array.reshape(()).item()
    if LARGEST < abs(value) < math.inf:
        raise ValueError(f"{name} is {value!r:.80}, which float32 cannot hold: scale it")
    return float(value)


def _as_array(value: Any) -> np.ndarray:
    """Return an array of a value; of one object where its parts have different lengths, or are no numbers."""
    try:
        return np.asarray(value)
    except (ValueError, RuntimeError, TypeError):
        if not isinstance(value, torch.Tensor):
            return np.asarray(None)
    # NumPy reads no tensor that records gradients, is on another device, or is of bfloat16.
    tensor = value.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    array = _as_array(value)
    if array.size != 1 or array.dtype.kind not in "fiub" or float(array.reshape(())) not in (0.0, 1.0):
        raise ValueError(f"{name} is {value!r:.80}: return True or False")
    return bool(array.reshape(()))


def _describe(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, (tuple, list)) else f"a {type(answer).__name__}"
