"""Broken cores of the eighth kind: streams of a class of their own, wrong once they are in use."""

import copy
import pickle
from pathlib import Path
from typing import Any

import torch
from correct_cores import Recurrent
from torch import Tensor, nn

from recollect.state import clone, map_state, nbytes, put_rows, take_rows


class OwnStream:
    """A correct stream that inherits nothing."""

    def __init__(self, core: Any, batch_size: int) -> None:
        self.core, self.batch_size = core, batch_size
        with torch.no_grad():
            self._state = clone(core.initial_state(batch_size))

    @property
    def state(self) -> Any:
        return clone(self._state)

    def load_state(self, state: Any) -> None:
        self._state = clone(state)

    @torch.no_grad()
    def step(self, inputs: Tensor, is_first: Tensor | None = None) -> Tensor:
        first = torch.zeros(self.batch_size, dtype=torch.bool) if is_first is None else is_first
        out, state = self.core(inputs[:, None], self._state, first[:, None])
        self.keep(state)
        return out[:, 0]

    def keep(self, state: Any) -> None:
        self._state = state

    @torch.no_grad()
    def reset(self, rows: Any = None) -> None:
        fresh, index = self.core.initial_state(self.batch_size), slice(None) if rows is None else torch.as_tensor(rows)
        self._state = put_rows(self._state, index, take_rows(fresh, index))

    def fork(self) -> Any:
        twin = copy.copy(self)
        twin._state = clone(self._state)
        return twin

    def save(self, path: Path) -> None:
        torch.save(tuple(self._state), path)

    def load(self, path: Path) -> None:
        self.load_state(type(self._state)(*torch.load(path)))

    @property
    def nbytes(self) -> int:
        return nbytes(self._state)


class HasOwnStream(Recurrent):
    """Correct."""

    kind: type[OwnStream] = OwnStream

    def stream(self, batch_size: int) -> Any:  # type: ignore[override]
        return self.kind(self, batch_size)


class _OneBuffer(OwnStream):
    """Writes every memory into a buffer that its first step makes, and that its forks share."""

    buffer: Any = None

    def keep(self, state: Any) -> None:
        if self.buffer is None:
            with torch.inference_mode(False):
                self.buffer = map_state(torch.zeros_like, self.core.initial_state(self.batch_size))
        for own, new in zip(self.buffer, state, strict=True):
            own.copy_(new)
        self._state = self.buffer


class ForksShareTheBufferOfAStep(HasOwnStream):
    kind = _OneBuffer


class _WriteBehind(OwnStream):
    """Writes its memory back every fourth step, and saves what was written back."""

    written: Any = None
    since = 0

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.written, self.since = clone(state), 0

    def keep(self, state: Any) -> None:
        self._state, self.since = state, self.since + 1
        if self.since % 4 == 0:
            self.written = clone(state)

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(tuple(self._state if self.written is None else self.written)))

    def load(self, path: Path) -> None:
        self.load_state(type(self._state)(*pickle.loads(path.read_bytes())))


class SavesWithoutTheLastSteps(HasOwnStream):
    kind = _WriteBehind


class _CachedReads(OwnStream):
    """Keeps the copy that was read, until a step."""

    read: Any = None

    @property
    def state(self) -> Any:
        self.read = clone(self._state) if self.read is None else self.read
        return clone(self.read)

    def keep(self, state: Any) -> None:
        self._state, self.read = state, None

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.read = None


class ShowsTheStateBeforeAReset(HasOwnStream):
    kind = _CachedReads


class _Marks(OwnStream):
    """`reset` marks rows, which the next step clears, unless that has flags of its own."""

    marked: Any = None

    def reset(self, rows: Any = None) -> None:
        self.marked = torch.zeros(self.batch_size, dtype=torch.bool)
        self.marked[slice(None) if rows is None else torch.as_tensor(rows)] = True

    @property
    def state(self) -> Any:
        with torch.no_grad():
            return clone(self._state) if self.marked is None else self.core.reset(self.marked, self._state)

    def flags(self, is_first: Tensor | None) -> Tensor | None:
        return self.marked if is_first is None else is_first

    def step(self, inputs: Tensor, is_first: Tensor | None = None) -> Tensor:
        out = super().step(inputs, self.flags(is_first))
        self.marked = None
        return out

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.marked = None


class FlagsReplaceAReset(HasOwnStream):
    kind = _Marks


class _LostMarks(_Marks):
    """Joins marks and flags; a fork begins without marks."""

    def flags(self, is_first: Tensor | None) -> Tensor | None:
        return super().flags(is_first) if self.marked is None or is_first is None else self.marked | is_first

    def fork(self) -> Any:
        twin = super().fork()
        twin.marked = None
        return twin


class ForksLoseAReset(HasOwnStream):
    kind = _LostMarks


class _NoneIsAll(OwnStream):
    """Takes a mask without a row for no mask."""

    def reset(self, rows: Any = None) -> None:
        index = torch.as_tensor([] if rows is None else rows)
        named = index.nonzero()[:, 0] if index.dtype == torch.bool else index.long()
        super().reset(named if len(named) else None)


class ResetOfNoRowResetsAll(HasOwnStream):
    kind = _NoneIsAll


class _OneRowOfBytes(OwnStream):
    @property
    def nbytes(self) -> int:
        return nbytes(take_rows(self._state, slice(1)))


class CountsTheBytesOfOneRow(HasOwnStream):
    kind = _OneRowOfBytes


class _InPlace(OwnStream):
    """Writes into its memory, which inference mode has made and does not allow later."""

    @torch.no_grad()
    def reset(self, rows: Any = None) -> None:
        index = torch.arange(self.batch_size) if rows is None else torch.as_tensor(rows)
        for own, new in zip(self._state, self.core.initial_state(self.batch_size), strict=True):
            own[index] = new[index]


class CannotResetAfterInference(HasOwnStream):
    kind = _InPlace


STREAMS: dict[type[nn.Module], str] = dict.fromkeys(
    (
        ForksShareTheBufferOfAStep,
        SavesWithoutTheLastSteps,
        ShowsTheStateBeforeAReset,
        FlagsReplaceAReset,
        ForksLoseAReset,
        ResetOfNoRowResetsAll,
        CountsTheBytesOfOneRow,
        CannotResetAfterInference,
    ),
    "stream",
)
"""Which line must catch a core."""
