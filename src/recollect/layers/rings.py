"""Ring buffers for streams: the last steps of every row, always contiguous and in order.

Each entry is written twice, at i and at i + length of a buffer of twice the length. The window that ends with
the newest entry is then one slice: no copy of the window, no gather, and the same two writes at every step.

Where some rows take a step without the others, each row has a place of its own, and the windows of these rows are
copied, one contiguous piece each. The next step of all rows moves all windows back to one place.
"""

from functools import cached_property

import torch
from torch import Tensor

from recollect.ops.huge_pages import zeros


class Rows:
    """Some rows of a stream, which take a step, are read or are written without the others.

    Args:
        index: long ``[r]``, each row once.
        batch_size: b, rows of the stream.
        numbers: the same as Python numbers, where they are known.
    """

    def __init__(self, index: Tensor, batch_size: int, numbers: list[int] | None = None) -> None:
        self.index, self.batch_size = index, batch_size
        if numbers is not None:
            self.numbers = numbers
        self._parts: dict[int, Tensor] = {}  # all layers of a core ask for the same

    def __len__(self) -> int:
        return self.index.shape[0]

    @cached_property
    def numbers(self) -> list[int]:
        """The rows as Python numbers."""
        return self.index.tolist()

    def of_parts(self, parts: int) -> Tensor:
        """Return their rows of a buffer ``[b*n, ...]`` with rows before the n parts of each, long ``[r*n]``."""
        if parts not in self._parts:
            inside = torch.arange(parts, device=self.index.device)
            self._parts[parts] = (self.index[:, None] * parts + inside).flatten()
        return self._parts[parts]


class MirrorRing:
    """The last ``length`` entries ``[b, *shape]`` of each row, on the device of ``like``.

    Methods that take ``rows`` (long ``[r]``) read or write only these; None are all rows.
    """

    def __init__(self, batch_size: int, length: int, shape: tuple[int, ...], like: Tensor) -> None:
        self.length = length
        self.data = zeros(batch_size, 2 * length, *shape, like=like)
        self._halves = self.data.unflatten(1, (2, length)) if length else None
        self._flat = self.data.flatten(0, 1)
        # Every slice of `length` entries, a view: those that begin in the first half of a row are its windows.
        self._slices = self._flat.unfold(0, length, 1).movedim(-1, 1) if length else None
        self._next = 0
        self._places = torch.zeros(batch_size, dtype=torch.int64, device=like.device)  # while rows are apart
        self._apart = False

    def push(self, entry: Tensor, rows: Tensor | None = None) -> None:
        """Write ``[b, *shape]`` (of some rows: ``[r, *shape]``) over the oldest entry."""
        if self._halves is None:
            return
        if rows is None:
            self._align()
            self._halves.select(2, self._next).copy_(entry.unsqueeze(1))  # both places in one operation
            self._next = (self._next + 1) % self.length
            return
        self._separate()
        places = self._places.index_select(0, rows)
        first = rows * (2 * self.length) + places
        entry = entry.to(self.data.dtype)
        self._flat.index_copy_(0, first, entry).index_copy_(0, first + self.length, entry)
        self._places.index_copy_(0, rows, (places + 1) % self.length)

    def extend(self, entries: Tensor) -> None:
        """Write ``[b, t, *shape]``, oldest first, over the oldest t."""
        if self._halves is None:
            return
        self._align()
        entries = entries[:, -self.length :]
        steps = entries.shape[1]
        until_end = min(steps, self.length - self._next)
        self._halves.narrow(2, self._next, until_end).copy_(entries[:, None, :until_end])
        if until_end < steps:
            self._halves.narrow(2, 0, steps - until_end).copy_(entries[:, None, until_end:])
        self._next = (self._next + steps) % self.length

    def window(self, rows: Tensor | None = None) -> Tensor:
        """Return ``[b, length, *shape]``, oldest first: a view, which the next push changes; of some rows a copy."""
        if rows is None or self._slices is None:
            self._align()
            data = self.data if rows is None else self.data[rows]
            return data.narrow(1, self._next, self.length)
        places = self._places.index_select(0, rows) if self._apart else self._next
        return self._slices.index_select(0, rows * (2 * self.length) + places)

    @property
    def start(self) -> int:
        """Place in ``data`` where the windows of all rows begin."""
        self._align()
        return self._next

    def load(self, window: Tensor, rows: Tensor | None = None) -> None:
        """Replace everything by ``[b, length, *shape]``, oldest first."""
        if rows is None:
            self.data[:, : self.length] = window
            self.data[:, self.length :] = window
            self._next, self._apart = 0, False
        elif self.length:
            self._separate()
            self.data[rows] = torch.cat((window, window), 1).to(self.data.dtype)
            self._places.index_fill_(0, rows, 0)

    def clear(self, rows: Tensor) -> None:
        """Set the buffers of rows that begin an episode to zero."""
        self.data.index_fill_(0, rows, 0.0)

    def _separate(self) -> None:
        """Give every row a place of its own."""
        if not self._apart:
            self._places.fill_(self._next)
            self._apart = True

    def _align(self) -> None:
        """Move the windows of all rows to one place."""
        if self._apart:
            self.load(self.window(torch.arange(len(self.data), device=self.data.device)))
