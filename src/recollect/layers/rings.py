"""Ring buffers for streams: the last steps of every row, always contiguous and in order.

Each entry is written twice, at i and at i + length of a buffer of twice the length. The window that ends with
the newest entry is then one slice: no copy of the window, no gather, and the same two writes at every step.
"""

import torch
from torch import Tensor

from recollect.state import spread_rows


class MirrorRing:
    """The last ``length`` entries ``[b, *shape]`` of streams that advance together, on the device of ``like``."""

    def __init__(self, batch_size: int, length: int, shape: tuple[int, ...], like: Tensor) -> None:
        self.length = length
        self.data = torch.zeros(batch_size, 2 * length, *shape, device=like.device, dtype=like.dtype)
        self._halves = self.data.unflatten(1, (2, length)) if length else None
        self._next = 0

    def push(self, entry: Tensor) -> None:
        """Write ``[b, *shape]`` over the oldest entry."""
        if self._halves is None:
            return
        self._halves.select(2, self._next).copy_(entry.unsqueeze(1))  # both places in one operation
        self._next = (self._next + 1) % self.length

    def extend(self, entries: Tensor) -> None:
        """Write ``[b, t, *shape]``, oldest first, over the oldest t."""
        if self._halves is None:
            return
        entries = entries[:, -self.length :]
        steps = entries.shape[1]
        until_end = min(steps, self.length - self._next)
        self._halves.narrow(2, self._next, until_end).copy_(entries[:, None, :until_end])
        if until_end < steps:
            self._halves.narrow(2, 0, steps - until_end).copy_(entries[:, None, until_end:])
        self._next = (self._next + steps) % self.length

    def window(self) -> Tensor:
        """Return a view ``[b, length, *shape]``, oldest first; the next push changes it."""
        return self.data[:, self._next : self._next + self.length]

    def load(self, window: Tensor) -> None:
        """Replace everything by ``[b, length, *shape]``, oldest first."""
        self.data[:, : self.length] = window
        self.data[:, self.length :] = window
        self._next = 0

    def clear(self, rows: Tensor) -> None:
        """Zero the rows of a bool mask ``[b]``."""
        self.data.masked_fill_(spread_rows(rows, self.data), 0.0)
