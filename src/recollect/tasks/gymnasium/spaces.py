"""Conversion of observations and actions between Gymnasium's spaces and those of a world.

Observations: numbers become float32, a single number a vector of one, text becomes words, and counts start at 0. A
Tuple becomes a Dict with the keys 0, 1, ..., a single text one with the key ``language``; nested entries become flat,
with keys joined by ``_``. Actions are converted back. An unsupported space is refused with the reason and a suitable
wrapper.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from recollect.lazy import gymnasium, np, spaces
from recollect.tasks.gymnasium.checked_values import ObservationError, PartReader, select_part

Arrays: TypeAlias = "np.ndarray | dict[str, np.ndarray]"


@dataclass(frozen=True, kw_only=True)
class ObservationReader:
    """Converts observations of one environment."""

    source: gymnasium.Space[Any]
    """Observation space of the environment."""
    masked: tuple[int, ...] = ()
    """Entries of a vector observation that are removed."""
    words: int = 16
    """Largest number of words read from a text."""
    vocabulary: int = 1024
    """Numbers that words are hashed to, including 0 for padding."""
    scalars: bool = False
    """Keep a Box of a single number as it is, not as a vector of one."""

    @property
    def space(self) -> gymnasium.Space[Any]:
        """The observation space of the world.

        Raises:
            ValueError: the environment's space is not supported, or ``masked`` does not fit it.
        """
        if not self.masked:
            seen = self._space(self.source, "observation")
            return spaces.Dict({"language": seen}) if is_text(self.source) else seen
        shape = self.source.shape
        if not isinstance(self.source, spaces.Box) or shape is None or len(shape) != 1:
            raise ValueError(f"masked={self.masked}: only a vector observation has entries to mask, not {self.source}")
        if not all(0 <= index < shape[0] for index in self.masked) or len(set(self.masked)) >= shape[0]:
            raise ValueError(f"masked={self.masked}: give indices 0..{shape[0] - 1}, and not all of them")
        box = self._space(self.source, "observation")
        assert isinstance(box, spaces.Box)
        return spaces.Box(box.low[self._shown], box.high[self._shown], dtype=box.dtype.type)

    def read(self, observations: Any) -> Arrays:
        """Convert observations to new arrays ``[b, ...]`` of the types in :attr:`space`.

        Args:
            observations: a list of single observations, or a batch of a vector environment.

        Raises:
            ObservationError: one is not in its space and cannot be taken without loss.
        """
        found = {
            name: self._read(select_part(observations, path), reader, is_single)
            for name, path, reader, is_single in self._parts
        }
        for path, keys in self._containers:
            self._warn_of_undeclared(select_part(observations, path), path, keys)
        if self._has_parts:
            return found
        (array,) = found.values()
        return array[:, self._shown] if self.masked else array

    @cached_property
    def _parts(self) -> list[tuple[str, Path, PartReader | None, bool]]:
        """Name, path and reader of every part, and whether it becomes a vector of one; a text has no reader."""
        parts: list[tuple[str, Path, PartReader | None, bool]] = []
        for path, space in _leaves(self.source):
            name = "_".join(map(str, path)) or "observation"
            if is_text(space):
                parts.append(("language", path, None, False))
            else:
                is_single = isinstance(space, spaces.Box) and not space.shape and not self.scalars
                parts.append((name, path, PartReader(space, name), is_single))
        return parts

    @cached_property
    def _containers(self) -> list[tuple[Path, list[str | int]]]:
        """Path and keys of every Dict and Tuple, until one has shown a part that is not declared."""
        return list(_containers(self.source))

    def _warn_of_undeclared(self, values: Any, path: Path, keys: list[str | int]) -> None:
        """Warn once of parts that the space does not declare, which no agent sees."""
        for one in (values,) if isinstance(values, (Mapping, tuple)) else values:
            if len(one) > len(keys):
                given = one if isinstance(one, Mapping) else range(len(one))
                extra = ", ".join(repr(key) for key in given if key not in keys)
                place = f" in {'_'.join(map(str, path))!r}" if path else ""
                warnings.warn(
                    f"the observation has the part {extra}{place}, which its space does not declare: no agent sees it; "
                    "declare it in observation_space, or leave it out",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._containers.clear()
                return

    @cached_property
    def _has_parts(self) -> bool:
        """Whether observations are read as a Dict."""
        return isinstance(self.source, (spaces.Dict, spaces.Tuple)) or is_text(self.source)

    @cached_property
    def _shown(self) -> list[int]:
        assert self.source.shape is not None
        return [index for index in range(self.source.shape[0]) if index not in self.masked]

    def _space(self, space: gymnasium.Space[Any], name: str) -> gymnasium.Space[Any]:
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            leaves = {"_".join(map(str, path)): part for path, part in _leaves(space)}
            if len(leaves) < sum(1 for _ in _leaves(space)):
                raise ValueError(
                    f"{name} is {space}: two of its parts have the same name when their keys are joined by "
                    "'_': give one another key"
                )
            parts = {key: self._space(part, key) for key, part in leaves.items()}
            texts = [key for key, part in leaves.items() if is_text(part)]
            if len(texts) > 1 or ("language" in parts and texts not in ([], ["language"])):
                raise ValueError(f"observation has several texts, {texts}: write a wrapper that keeps one of them")
            return spaces.Dict({"language" if key in texts else key: part for key, part in parts.items()})
        if isinstance(space, spaces.Box):
            floating = np.issubdtype(space.dtype, np.floating)
            if space.shape and not floating:
                return space
            dtype: Any = np.float32 if floating else space.dtype.type
            with np.errstate(over="ignore"):
                low, high = (bound.astype(dtype) for bound in (space.low, space.high))
            return spaces.Box(*((low, high) if self.scalars else np.atleast_1d(low, high)), dtype=dtype)
        if isinstance(space, spaces.Discrete):
            return spaces.Discrete(int(space.n))
        if isinstance(space, spaces.MultiDiscrete):
            return spaces.MultiDiscrete(space.nvec)
        if isinstance(space, spaces.MultiBinary):
            return space
        if is_text(space):
            return spaces.MultiDiscrete([self.vocabulary] * self.words)
        raise ValueError(
            f"{name} is a {type(space).__name__} space; supported are Box, Discrete, MultiDiscrete, MultiBinary, text, "
            "and Dicts and Tuples of these: wrap the environment, for instance in gymnasium.wrappers.FlattenObservation"
        )

    def _read(self, values: Any, reader: PartReader | None, is_single: bool) -> np.ndarray:
        if reader is not None:
            array = reader.read(values)
            return array.reshape(len(array), 1) if is_single else array
        for row, text in enumerate(values):
            if not isinstance(text, str):
                raise ObservationError(row, f"the text is {text!r:.80} ({type(text).__name__}); return a string")
        return np.stack([hash_words(text, self.words, self.vocabulary) for text in values])


@dataclass(frozen=True, kw_only=True)
class ActionWriter:
    """Converts actions for one environment."""

    target: gymnasium.Space[Any]
    """Action space of the environment."""

    @property
    def space(self) -> gymnasium.Space[Any]:
        """The action space of the world.

        Raises:
            ValueError: the environment's space is not supported.
        """
        if isinstance(self.target, spaces.Discrete):
            return spaces.Discrete(int(self.target.n))
        if isinstance(self.target, spaces.MultiDiscrete) and self.target.nvec.ndim == 1:
            return spaces.MultiDiscrete(self.target.nvec)
        if isinstance(self.target, spaces.Box) and np.issubdtype(self.target.dtype, np.floating):
            return spaces.Box(self.target.low.astype(np.float32), self.target.high.astype(np.float32), dtype=np.float32)
        raise ValueError(
            f"action is {self.target}; supported are Discrete, MultiDiscrete with one axis and a Box of floats: wrap "
            "the environment in a gymnasium.ActionWrapper that takes one of these"
        )

    def write(self, actions: np.ndarray) -> np.ndarray:
        """Convert actions ``[b, ...]`` for the environment; floats are clipped to the bounds of the space."""
        if isinstance(self.target, spaces.Box):
            return np.clip(actions.astype(self.target.dtype), self.target.low, self.target.high)
        assert isinstance(self.target, (spaces.Discrete, spaces.MultiDiscrete))
        return (actions + self.target.start).astype(self.target.dtype)


Path = tuple[str | int, ...]


def _leaves(space: gymnasium.Space[Any], path: Path = ()) -> Iterator[tuple[Path, gymnasium.Space[Any]]]:
    """Yield the parts of a space that are neither Dict nor Tuple, with the keys that lead to them."""
    if isinstance(space, spaces.Dict):
        for name, part in space.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place))
    else:
        yield path, space


def _containers(space: gymnasium.Space[Any], path: Path = ()) -> Iterator[tuple[Path, list[str | int]]]:
    """Yield the keys of a space that is a Dict or a Tuple, and of those inside, with the keys that lead to them."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = dict(space.items()) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        yield path, [*parts]
        for key, part in parts.items():
            yield from _containers(part, (*path, key))


def is_text(space: gymnasium.Space[Any]) -> bool:
    """Return whether observations are strings, from a sample, because environments define text spaces of their own."""
    return not isinstance(space, (spaces.Box, spaces.Discrete, spaces.Dict, spaces.Tuple)) and isinstance(
        space.sample(), str
    )


def hash_words(text: str, words: int, vocabulary: int) -> np.ndarray:
    """Return the first words of a text as numbers 1 .. vocabulary - 1, the same in every process, padded with 0.

    Two words may share a number: with v numbers and k words in use this happens to k (k - 1) / (2 v) pairs on average.
    """
    numbers = np.zeros(words, dtype=np.int64)
    found: Sequence[str] = text.lower().replace(",", " ").replace(".", " ").split()[:words]
    numbers[: len(found)] = [1 + zlib.crc32(word.encode()) % (vocabulary - 1) for word in found]
    return numbers
