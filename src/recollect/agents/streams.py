"""Base of the streams of all models: a stream owns the memory of its model's core and takes one step at a time."""

import copy
from typing import Any, Self

import numpy as np
from torch import Tensor

from recollect.cores.contract import MemoryCore


class ModelStream:
    """Stream of a model. A subclass defines a step: encode, one step of :attr:`core`, decode.

    Args:
        core: of the model.
        batch_size: rows that advance together.
    """

    def __init__(self, core: MemoryCore[Any], batch_size: int) -> None:
        self.core = core.stream(batch_size)  # the core's stream, with `reset`, `fork`, `save`, `load` and `state`

    @property
    def state(self) -> Any:
        """A copy of the memory, as the model's ``forward`` takes and returns it."""
        return self.core.state

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        self.core.load_state(state)

    def reset(self, rows: Tensor | np.ndarray | list[int] | None = None) -> None:
        """Reset the memory of all rows, or of those named."""
        self.core.reset(rows)

    def fork(self) -> Self:
        """Return an independent stream with the same memory."""
        twin = copy.copy(self)
        twin.core = self.core.fork()
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes held between steps; constant."""
        return self.core.nbytes
