"""What the live forms of all models share: they own the memory of their core."""

import copy
from typing import Any, Self

import numpy as np
from torch import Tensor

from recollect.cores.contract import MemoryCore


class ModelStream:
    """A live model. A subclass says what a step is: encode, one step of :attr:`core`, decode.

    Args:
        core: of the model.
        batch_size: rows that advance together.
    """

    def __init__(self, core: MemoryCore[Any], batch_size: int) -> None:
        self.core = core.stream(batch_size)
        """The live memory: ``reset``, ``fork``, ``save``, ``load``, ``state`` are its own."""

    @property
    def state(self) -> Any:
        """The memory (a copy), as the model's ``forward`` takes and returns it."""
        return self.core.state

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        self.core.load_state(state)

    def reset(self, rows: Tensor | np.ndarray | list[int] | None = None) -> None:
        """Forget: all rows, or those named."""
        self.core.reset(rows)

    def fork(self) -> Self:
        """A second live model with the same memory; from here on the two go their own ways."""
        twin = copy.copy(self)
        twin.core = self.core.fork()
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes held between steps, the same for ever."""
        return self.core.nbytes
