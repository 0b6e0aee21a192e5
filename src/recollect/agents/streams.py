"""Base of the streams of all models: a stream owns the memory of its model's core and takes one step at a time."""

from os import PathLike
from typing import Any, Self

from recollect.cores.stream_memory import StreamMemory, outside_inference_mode
from recollect.layers.rings import Rows
from recollect.ops.reduced_linear import FULL, Precision


class ModelStream(StreamMemory):
    """Stream of a model. A subclass defines a step: encode, one step of :attr:`core`, decode.

    Args:
        model: with a ``core`` and ``describe()``; its present weights are used.
        batch_size: number of rows.
        precision: formats of weights and caches of the core; encoders and heads keep theirs.
    """

    def __init__(self, model: Any, batch_size: int, precision: Precision = FULL) -> None:
        self.model, self.precision = model, precision
        formats = {} if precision == FULL else vars(precision)  # a core of a user may have streams without formats
        self.core = model.core.stream(batch_size, **formats)  # the stream of the core alone
        self.batch_size, self.like, self.kind = batch_size, self.core.like, self.core.kind

    @property
    def cache(self) -> str:
        """Format of what is kept of steps, for files."""
        return self.precision.cache

    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the memory of some rows, as the model's ``forward`` takes it; None: of all."""
        return self.core.read_rows(rows)

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""
        self.core.write_rows(state, rows)

    def fresh_state(self, batch_size: int) -> Any:
        """Return the initial state of so many rows."""
        return self.core.fresh_state(batch_size)

    def check_state(self, state: Any, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless so many rows (None: all) can continue from a state."""
        self.core.check_state(state, batch_size)

    def largest_counters(self) -> dict[str, int]:
        """Return the integer leaves of the state that are counters, with their largest value."""
        return self.core.largest_counters()

    def try_state(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file makes a step of the core fail."""
        self.core.try_state(state, path)

    def remade(self, batch_size: int) -> Self:
        """Return a new stream of the same model with so many rows.

        Raises:
            ValueError: the weights have changed since the stream was made.
        """
        self.core.check_weights()
        return type(self)(self.model, batch_size, self.precision)

    @outside_inference_mode
    def swap_weights(self, model: Any = None) -> None:
        """Continue all rows under other weights: what was computed from the old ones is computed again.

        Args:
            model: of the same description, which this stream uses from now on; None is its own model, whose weights
                have changed.

        Raises:
            ValueError: another kind of model, or one of another config; the stream continues as before.
        """
        model = self.model if model is None else model
        if type(model) is not type(self.model) or model.describe() != self.model.describe():
            raise ValueError(
                f"model={type(model).__name__}: config, core or spaces are not those of this stream's "
                f"{type(self.model).__name__}: give a model of the same description, or make a new stream"
            )
        self._become(type(self)(model, self.batch_size, self.precision), self.state)

    def step_core(self, inputs: Any, rows: Rows | None, is_first: Any) -> Any:
        """Take one step of some rows of the core; None: of all."""
        return self.core.step(inputs, is_first) if rows is None else self.core.step_rows(inputs, rows, is_first)

    @property
    def nbytes(self) -> int:
        """Bytes held between steps; constant."""
        return self.core.nbytes
