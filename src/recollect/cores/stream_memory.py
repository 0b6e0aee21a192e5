"""The memory of many streams in one object: read, written, saved, copied and resized row by row.

Base of the streams of cores (:class:`~recollect.cores.stream.Stream`) and of models. Rows are named by integers or by a
boolean mask. Methods for some rows read and write only these. A change of the number of rows copies all of them, so add
and remove many at once, or keep unused rows and :meth:`StreamMemory.reset` them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from recollect.files import write_atomically
from recollect.layers.rings import Rows
from recollect.state import concatenate, map_state, named_leaves

COUNTED = 2**53
"""A number that no counter of steps reaches, for :meth:`MemoryCore.largest_counters`."""

RowNames = Tensor | np.ndarray | Sequence[int] | Sequence[bool]
"""Integers, or a boolean mask with an entry for every row."""

Method = TypeVar("Method", bound=Callable[..., Any])


def outside_inference_mode(method: Method) -> Method:
    """Run a method without gradients and outside ``torch.inference_mode``.

    Tensors made in inference mode cannot be changed in place outside of it, but a stream may be stepped in both.
    """

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return method(*args, **kwargs)

    return cast(Method, call)


class StreamMemory(ABC):
    """The state of ``batch_size`` streams. A subclass defines how rows are read and written."""

    batch_size: int
    like: Tensor
    """A scalar of the dtype and on the device in which the stream computes."""
    kind: str
    """Name of the core, for errors about files."""

    @property
    def cache(self) -> str:
        """Format of what is kept of steps, for files."""
        return "float32"

    @abstractmethod
    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the state of some rows; None: of all."""

    @abstractmethod
    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""

    @abstractmethod
    def fresh_state(self, batch_size: int) -> Any:
        """Return the initial state of so many rows."""

    @abstractmethod
    def check_state(self, state: Any, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless so many rows (None: all) of this stream can continue from a state."""

    @abstractmethod
    def remade(self, batch_size: int) -> Self:
        """Return a new stream with the present weights and so many rows."""

    @abstractmethod
    def try_state(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a step from a file's state fails: a counter in it is damaged."""

    @property
    def state(self) -> Any:
        """A copy of the memory, as the functional form takes and returns it."""
        return self.read_rows(None)

    @outside_inference_mode
    def load_state(self, state: Any) -> None:
        """Continue all rows from a state.

        Raises:
            ValueError: it is of another core, config, batch size, dtype or device.
        """
        self.check_state(state)
        self.write_rows(state, None)

    def index_of(self, rows: RowNames) -> Tensor:
        """Return the index tensor of rows given by integers or a boolean mask.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        index, number = torch.as_tensor(rows, device=self.like.device), self.batch_size
        if not index.numel():
            index = index.long()  # torch makes floats of an empty list
        if index.dtype == torch.bool:
            fits = list(index.shape) == [number]
        else:
            is_whole = not (index.is_floating_point() or index.is_complex())
            fits = is_whole and all(-number <= row < number for row in index.flatten().tolist())
        if not fits:
            raise ValueError(
                f"rows={index.tolist()}: this stream has {number} rows, name some of 0 to {number - 1}, "
                f"or give a mask of {number} bools"
            )
        return index

    def named_rows(self, rows: RowNames) -> Rows:
        """Return the rows given by integers or a boolean mask, in the order in which they are named.

        Raises:
            ValueError: there is no such row, the mask is of another number of rows, or a row is named twice.
        """
        numbers = self._numbers(rows)
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"rows={numbers}: a row is named twice; a row takes one step in a call")
        return self._numbered(numbers)

    def _numbers(self, rows: RowNames) -> list[int]:
        """Return the numbers of rows given by integers or a boolean mask."""
        index = self.index_of(rows).flatten()
        return (index.nonzero()[:, 0] if index.dtype == torch.bool else index % self.batch_size).tolist()

    def _numbered(self, numbers: list[int]) -> Rows:
        index = torch.tensor(numbers, dtype=torch.int64, device=self.like.device)
        return Rows(index, self.batch_size, numbers)

    @outside_inference_mode
    def reset(self, rows: RowNames | None = None) -> None:
        """Reset all rows to the initial state, or those named.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        if rows is None:
            self.write_rows(self.fresh_state(self.batch_size), None)
        elif len(named := self._numbered(sorted(set(self._numbers(rows))))):
            self.write_rows(self.fresh_state(len(named)), named)

    def fork(self) -> Self:
        """Return a second, independent stream with the same memory."""
        twin = self.remade(self.batch_size)
        twin.load_state(self.state)
        return twin

    @outside_inference_mode
    def fork_rows(self, rows: RowNames, into: RowNames | None = None) -> Sequence[int]:
        """Copy rows, so that each continues twice from here on.

        Args:
            rows: to copy.
            into: as many rows that are overwritten; None adds new ones at the end.

        Returns:
            The rows that hold the copies, in the order of ``rows``.

        Raises:
            ValueError: there is no such row, one is named twice, or ``into`` has another number of rows.
        """
        return self._write_or_add(self.read_rows(self.named_rows(rows)), into)

    def add_rows(self, number: int) -> Sequence[int]:
        """Add rows at the end, with the initial state, and return them.

        Raises:
            ValueError: ``number`` is below 1.
        """
        if number < 1:
            raise ValueError(f"number={number}: add at least one row")
        return self._write_or_add(self.fresh_state(number), None)

    @outside_inference_mode
    def remove_rows(self, rows: RowNames) -> None:
        """Remove rows; the others keep their order and are numbered anew.

        Raises:
            ValueError: there is no such row, one is named twice, or none would be left.
        """
        gone = set(self.named_rows(rows).numbers)
        kept = [row for row in range(self.batch_size) if row not in gone]
        if not kept:
            raise ValueError(f"rows={sorted(gone)} are all rows of this stream: keep at least one")
        if gone:
            self._become(self.remade(len(kept)), self.read_rows(self.named_rows(kept)))

    def _write_or_add(self, state: Any, into: RowNames | None) -> Sequence[int]:
        """Write a state ``[r, ...]`` into rows, or into new ones at the end."""
        number = len(next(named_leaves(state))[1])
        if into is None:
            before = self.batch_size
            if number:
                self._become(self.remade(before + number), self.joined([self.state, state]))
            return range(before, before + number)
        rows = self.named_rows(into)
        if len(rows) != number:
            raise ValueError(f"rows={rows.numbers}: the state has {number} rows, name as many")
        if number:
            self.write_rows(state, rows)
        return rows.numbers

    def joined(self, states: list[Any]) -> Any:
        """Join the states of several streams along the batch axis."""
        return concatenate(states)

    def _become(self, other: Self, state: Any) -> None:
        """Go on as another stream, from a state."""
        other.load_state(state)
        vars(self).clear()
        vars(self).update(vars(other))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the memory of all rows to a safetensors file, atomically."""
        self._save(path, self.state)

    def save_rows(self, path: str | PathLike[str], rows: RowNames) -> None:
        """Write the memory of some rows to a safetensors file, atomically, in the order in which they are named.

        Raises:
            ValueError: there is no such row, or one is named twice.
        """
        self._save(path, self.read_rows(self.named_rows(rows)))

    def _save(self, path: str | PathLike[str], state: Any) -> None:
        tensors = {name: leaf.contiguous() for name, leaf in named_leaves(state)}
        about = {"core": self.kind} if self.cache == "float32" else {"core": self.kind, "cache": self.cache}
        write_atomically(Path(path), safetensors.torch.save(tensors, metadata=about))

    def load(self, path: str | PathLike[str]) -> None:
        """Continue all rows from a file that :meth:`save` or :meth:`save_rows` wrote, on this stream's device.

        Raises:
            ValueError: the file holds the memory of another core, config, batch size or cache format, or is damaged.
        """
        self.load_state(self._saved_state(path, self.batch_size))

    @outside_inference_mode
    def load_rows(self, path: str | PathLike[str], rows: RowNames | None = None) -> Sequence[int]:
        """Continue some rows from a file that :meth:`save_rows` or :meth:`save` wrote.

        Args:
            path: of the file.
            rows: as many rows as the file has, in its order; None adds new ones at the end.

        Returns:
            The rows.

        Raises:
            ValueError: the file holds the memory of another core, config, number of rows or cache format, or is
                damaged.
        """
        return self._write_or_add(self._saved_state(path, None if rows is None else len(self.named_rows(rows))), rows)

    def _saved_state(self, path: str | PathLike[str], number: int | None) -> Any:
        """Return the checked state of a file, with so many rows (None: as many as it has)."""
        try:
            tensors = safetensors.torch.load_file(path)
            with safe_open(path, "pt") as file:
                cache = (file.metadata() or {}).get("cache", "float32")
        except SafetensorError as error:
            raise ValueError(f"{path} holds no memory of a stream ({error}): give a file that save wrote") from None
        if cache != self.cache:
            raise ValueError(
                f"{path} was saved by a stream with cache={cache!r}, this one has cache={self.cache!r}: load it into "
                f"one with cache={cache!r}, and continue here with load_state(that.state)"
            )
        known = self.fresh_state(1)
        names = [name for name, _ in named_leaves(known)]
        if sorted(tensors) != sorted(names):
            raise ValueError(
                f"{path} holds {sorted(tensors)}; a {self.kind} stream needs {sorted(names)}: "
                "it was saved by another core"
            )
        for name, leaf in named_leaves(known):
            if tensors[name].dtype != leaf.dtype:
                raise ValueError(f"{path}: {name} is {tensors[name].dtype}, this stream keeps {leaf.dtype}")
        remaining = iter(names)
        state = map_state(lambda leaf: tensors[next(remaining)].to(leaf.device), known)
        if number is None:
            number = len(tensors[names[0]]) if tensors[names[0]].ndim else 0
        self.check_state(state, number)
        self._check_counters(state, known, path)
        if number:
            self.try_state(state, path)
        return state

    def largest_counters(self) -> dict[str, int]:
        """Return the counters of the state (integer leaves), with their largest value."""
        return {}

    def _check_counters(self, state: Any, fresh: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file is out of range."""
        most = self.largest_counters()
        for (name, leaf), (_, known) in zip(named_leaves(state), named_leaves(fresh), strict=True):
            if name not in most or not leaf.numel():
                continue
            low, high = min(0, int(known.min())), most[name]
            found = int(leaf.min()) if int(leaf.min()) < low else int(leaf.max())
            if not low <= found <= high:
                raise ValueError(f"{path}: {name} is {found}, not in {low}..{high}: the file is damaged")


def repeat_row(state: Any, number: int) -> Any:
    """Return a state of ``number`` rows that are all the first row of ``state``."""
    return map_state(lambda leaf: leaf[:1].repeat(number, *[1] * (leaf.ndim - 1)), state)
