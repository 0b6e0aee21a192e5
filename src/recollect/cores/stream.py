"""Stream: a core that owns its state and takes one step at a time.

    stream = core.stream(batch_size=1)
    output = stream.step(frame)                 # [b, *input_shape] -> [b, *output_shape]; NumPy in, NumPy out
    outputs = stream.unroll(frames)             # [b, t, *input_shape] -> [b, t, *output_shape]: the same as t steps
    some = stream.step_rows(frames, [7, 2])     # [2, *input_shape] -> [2, *output_shape]: the others do not move

A stream needs no gradients, and costs the same at step 10 and at step 10^7. :class:`Stream` calls the core with one
step; cores with windows derive from :class:`RowStream`, to write into ring buffers in place. ``state`` and
``load_state`` convert between the two forms at any moment. Cores whose layers can take several steps at once also
override ``advance_block``.

A stream belongs to the weights it was made with: after a change of weights its next step raises a ValueError, until
:meth:`Stream.swap_weights` was called.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from os import PathLike
from typing import Any, Self, overload

import numpy as np
import torch
from torch import Tensor

from recollect.cores.arrays import First, Numbers, to_array, to_first, to_tensor
from recollect.cores.input_checks import require_float_dtype, require_is_first
from recollect.cores.reduced import require_reduced, require_reducible, with_reduced_layers
from recollect.cores.stream_memory import COUNTED as COUNTED  # cores import it from here
from recollect.cores.stream_memory import RowNames, StreamMemory, outside_inference_mode, repeat_row
from recollect.cores.weight_changes import WeightChanges
from recollect.layers.finite import is_finite, is_known_finite
from recollect.layers.rings import Rows
from recollect.ops.reduced_linear import FULL, Precision, Reduction, reducing
from recollect.ops.threads import threads_for
from recollect.state import clone, leaves, map_state, nbytes, put_rows, spread_rows, take_rows

LONGEST_BLOCK = 128
"""Most steps of one block: bounds the memory beside the state, for any number of steps."""


class Stream(StreamMemory):
    """The state of ``batch_size`` streams of a core, and their steps.

    Small steps run on one thread (:mod:`recollect.ops.threads`); the caller's number is restored after each of them.

    A stream is for acting: one with caches of its own never applies dropout, whatever the mode of the core. This class
    has none and calls the core, which applies dropout in training mode: call ``core.eval()`` first.

    Args:
        core: a :class:`~recollect.cores.contract.MemoryCore`.
        batch_size: number of streams that advance together.

    Raises:
        ValueError: ``batch_size`` below 1.
    """

    core: Any
    """The core; in a stream with reduced weights a copy of it with the same parameters."""
    precision: Precision = FULL
    """Formats of weights and caches."""
    _reduction: Reduction | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Wrapped here, so that a subclass cannot forget it.
        super().__init_subclass__(**kwargs)
        for name in ("__init__", "load_state"):
            if name in vars(cls):
                setattr(cls, name, outside_inference_mode(vars(cls)[name]))

    @outside_inference_mode
    def __init__(self, core: Any, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a stream needs at least one row")
        self.core = self.source = core
        self.kind = type(core).__name__
        self.batch_size = batch_size
        self._fresh = clone(core.initial_state(batch_size))
        weight = next(core.parameters())
        self._dtype = weight.dtype
        self._operations = core.flops_per_step() if hasattr(core, "flops_per_step") else 0  # of a step of one row
        self.like = weight.detach().new_zeros(())
        self._changes = WeightChanges(core.parameters(), core.modules())
        self._never = torch.zeros(batch_size, dtype=torch.bool, device=weight.device)  # is_first of most steps
        self.load_state(self._fresh)

    @classmethod
    @outside_inference_mode
    def make(cls, core: Any, batch_size: int, precision: Precision = FULL, **arguments: Any) -> Self:
        """Make a stream with weights and caches in the given formats; ``core`` itself is not changed.

        Raises:
            ValueError: with reduced formats, the core is not float32 on a CPU or has nothing to reduce, or autocast is
                on.
        """
        if precision == FULL:
            return cls(core, batch_size, **arguments)
        require_reducible(core, precision)
        reduction = Reduction(precision)
        twin = core if precision.weights == "float32" else with_reduced_layers(core, reduction)
        with reducing(reduction):
            stream = cls(twin, batch_size, **arguments)
        require_reduced(core, reduction)
        stream.source, stream.precision, stream._reduction = core, precision, reduction
        return stream

    @property
    def cache(self) -> str:
        """Format of what is kept of steps, for files."""
        return self.precision.cache

    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the state of some rows; None: of all."""
        if rows is None:
            return clone(self._state)
        return take_rows(self._state if self._is_plain else self.state, rows.index)

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""
        if rows is None:
            self._state = self._owned = clone(state)
        elif not self._is_plain:
            self.load_state(put_rows(self.state, rows.index, state))
        else:
            if self._owned is not self._state:  # outputs that were returned may be views of it
                self._state = self._owned = clone(self._state)
            map_state(lambda own, new: own.index_copy_(0, rows.index, new.to(own.dtype)), self._state, state)

    @property
    def _is_plain(self) -> bool:
        """Whether the memory is ``_state``, not the buffers of a class that overrides ``load_state``."""
        return type(self).load_state is StreamMemory.load_state

    def fresh_state(self, batch_size: int) -> Any:
        """Return the initial state of so many rows."""
        return clone(self._fresh) if batch_size == self.batch_size else repeat_row(self._fresh, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs ``[b, *input_shape]``, with gradients off."""
        outputs, self._state = self.core(inputs[:, None], self._state, is_first[:, None])
        return outputs[:, 0]

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        """Take one step of some rows on checked inputs ``[r, *input_shape]``, with gradients off."""
        if self._is_plain:
            part = object.__new__(type(self))  # the same with fewer rows
            some = slice(len(rows))
            parts = {"_fresh": take_rows(self._fresh, some), "_state": take_rows(self._state, rows.index)}
            vars(part).update(vars(self) | parts | {"batch_size": len(rows), "_never": self._never[some]})
        else:
            part = self.remade(len(rows))
            part.load_state(self.read_rows(rows))
        outputs = part.advance(inputs, is_first)
        self.write_rows(part._state if self._is_plain else part.state, rows)
        return outputs

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps on checked inputs ``[b, t, *input_shape]``, of which only the first may begin an episode.

        Override it where one pass can compute them all; ``is_first`` ``[b]`` is that of the first step.
        """
        flags = [is_first, *[self._never] * (inputs.shape[1] - 1)]
        return torch.stack([self.advance(*step) for step in zip(inputs.unbind(1), flags, strict=True)], 1)

    def buffers(self) -> list[Tensor]:
        """Return every tensor that is kept between steps; override it if there are others than the state."""
        return leaves(self._state)

    @overload
    def step(self, inputs: Tensor, is_first: First = None) -> Tensor: ...

    @overload
    def step(self, inputs: Numbers, is_first: First = None) -> np.ndarray: ...

    @torch.no_grad()
    def step(self, inputs: Tensor | Numbers, is_first: First = None) -> Tensor | np.ndarray:
        """Consume one step of every stream.

        Args:
            inputs: ``[b, *input_shape]``: a tensor of the core's dtype, or a NumPy array or a list of numbers.
            is_first: bool ``[b]`` (tensor, array or list), or one bool for all rows; True clears that row before the
                step. None clears nothing.

        Returns:
            ``[b, *output_shape]``: a tensor for a tensor, else a NumPy array.

        Raises:
            ValueError: a wrong shape, dtype or device; the weights have changed since the stream was made.
        """
        if not isinstance(inputs, Tensor):
            return to_array(self.step(to_tensor(inputs, self.like, floats=True), is_first))
        self.check_weights()
        if is_first is not None and not isinstance(is_first, Tensor):
            is_first = to_first(is_first, self.batch_size, self._never.device)
        self._check_step(inputs, is_first, [self.batch_size], "a step of this stream takes")
        first = self._never if is_first is None else is_first
        with threads_for(self._operations * self.batch_size):
            return _without_broken_steps(inputs, 1, partial(self.advance, is_first=first))

    @overload
    def unroll(self, inputs: Tensor, is_first: Tensor | np.ndarray | None = None) -> Tensor: ...

    @overload
    def unroll(self, inputs: Numbers, is_first: Tensor | np.ndarray | None = None) -> np.ndarray: ...

    @torch.no_grad()
    def unroll(self, inputs: Tensor | Numbers, is_first: Tensor | np.ndarray | None = None) -> Tensor | np.ndarray:
        """Consume t steps of every stream: the same as t times :meth:`step`, in as few passes as the core can.

        Args:
            inputs: ``[b, t, *input_shape]``, as :meth:`step` takes them.
            is_first: bool ``[b, t]``; None clears nothing.

        Returns:
            ``[b, t, *output_shape]``.

        Raises:
            ValueError: a wrong shape, dtype or device, or no step; the weights have changed since the stream was made.
        """
        if not isinstance(inputs, Tensor):
            return to_array(self.unroll(to_tensor(inputs, self.like, floats=True), is_first))
        self.check_weights()
        if is_first is not None:
            is_first = torch.as_tensor(is_first, device=self._never.device)
        steps = inputs.shape[1] if inputs.ndim > 1 else 0
        if not steps:
            raise ValueError(f"inputs have shape {list(inputs.shape)}: give at least one step, [b, t, ...]")
        self._check_step(inputs, is_first, [self.batch_size, steps], f"{steps} steps of this stream are")
        with threads_for(self._operations * self.batch_size * steps):
            return _without_broken_steps(inputs, 2, partial(self._unroll, is_first=is_first))

    def _unroll(self, inputs: Tensor, is_first: Tensor | None) -> Tensor:
        """Advance in blocks, each of which begins where some row begins an episode, or after ``LONGEST_BLOCK``."""
        steps = inputs.shape[1]
        begins = [False] * steps if is_first is None else is_first.any(0).tolist()
        starts = [t for t in range(steps) if begins[t] or t % LONGEST_BLOCK == 0]
        blocks = []
        for start, end in pairwise((*starts, steps)):
            first = is_first[:, start] if is_first is not None and begins[start] else self._never
            blocks.append(self.advance_block(inputs[:, start:end], first))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    @overload
    def step_rows(self, inputs: Tensor, rows: RowNames | Rows, is_first: First = None) -> Tensor: ...

    @overload
    def step_rows(self, inputs: Numbers, rows: RowNames | Rows, is_first: First = None) -> np.ndarray: ...

    @outside_inference_mode
    def step_rows(self, inputs: Tensor | Numbers, rows: RowNames | Rows, is_first: First = None) -> Tensor | np.ndarray:
        """Consume one step of some rows, in place: the others neither move nor are copied.

        Args:
            inputs: ``[r, *input_shape]``, as :meth:`step` takes them.
            rows: r integers in any order, each once, or a boolean mask of all rows with r True entries; 0 are allowed.
            is_first: bool ``[r]`` in the order of ``rows``, or one bool for all of them.

        Returns:
            ``[r, *output_shape]``.

        Raises:
            ValueError: a wrong shape, dtype or device; no such row, or one is named twice; the weights have changed.
        """
        if not isinstance(inputs, Tensor):
            return to_array(self.step_rows(to_tensor(inputs, self.like, floats=True), rows, is_first))
        self.check_weights()
        named = rows if isinstance(rows, Rows) else self.named_rows(rows)
        first = to_first(is_first, len(named), self._never.device)
        self._check_step(inputs, first, [len(named)], f"a step of {len(named)} rows of this stream takes")
        if not len(named):
            return self.like.new_zeros(0, *self.core.output_shape)
        with threads_for(self._operations * len(named)):
            return _without_broken_steps(inputs, 1, partial(self.advance_rows, is_first=first, rows=named))

    def _check_step(self, inputs: Tensor, is_first: Tensor | None, lead: list[int], takes: str) -> None:
        """Raise ``ValueError`` unless inputs ``[*lead, *input_shape]`` and ``is_first`` fit this stream."""
        if self.precision is not FULL and torch.is_autocast_enabled(self.like.device.type):
            raise ValueError(f"autocast is on, and this stream has {self.precision}: step it outside of autocast")
        if list(inputs.shape) != (want := [*lead, *self.core.input_shape]):
            raise ValueError(f"inputs have shape {list(inputs.shape)}; {takes} {want}")
        require_float_dtype(inputs, self._dtype, "this stream")
        if is_first is not None:
            require_is_first(is_first, lead, "this stream")
        for name, given in (("inputs", inputs), ("is_first", is_first)):
            if given is not None and given.device != self.like.device:
                raise ValueError(f"{name}: on {given.device}, this stream is on {self.like.device}: move one")

    def has_changed_weights(self) -> bool:
        """Return whether the core's weights have changed since the stream was made: then it needs a successor."""
        return self._changes.any()

    def check_weights(self) -> None:
        """Raise ``ValueError`` if the core's weights have changed since the stream was made."""
        if self.has_changed_weights():
            raise ValueError(
                f"the weights of this {type(self.core).__name__} have changed since its stream was made: "
                "make a new stream, core.stream(batch_size), or go on under the new weights with stream.swap_weights()"
            )

    @outside_inference_mode
    def swap_weights(self, core: Any = None) -> None:
        """Continue all rows under other weights: what was computed from the old ones is computed again.

        Args:
            core: of the same config, which this stream uses from now on; None is its own core, whose weights have
                changed.

        Raises:
            ValueError: another kind of core, or one of another config; the stream continues as before.
        """
        core = self.source if core is None else core
        new, own = ((getattr(one, "config", None), list(one.input_shape)) for one in (core, self.core))
        if type(core) is not type(self.core) or new != own:
            raise ValueError(
                f"core={type(core).__name__} with config {new[0]} and inputs {new[1]}; this stream is of {self.kind} "
                f"with config {own[0]} and inputs {own[1]}: give a core of the same config, or make a new stream"
            )
        self._become(self.make(core, self.batch_size, self.precision, **self.extra_arguments()), self.state)

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments beyond core and batch size that made this stream; override it if there are any."""
        return {}

    def remade(self, batch_size: int) -> Self:
        """Return a new stream with the present weights and so many rows.

        Raises:
            ValueError: the weights have changed since the stream was made.
        """
        self.check_weights()
        return self.make(self.source, batch_size, self.precision, **self.extra_arguments())

    def __reduce__(self) -> tuple[Any, ...]:
        # Buffers are views of each other and steps are closures over them, so a copy is built from core and state.
        made = type(self), self.source, self.batch_size, self.precision, self.extra_arguments()
        return _make_stream, (*made, self.state)

    def check_state(self, state: Any, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless so many rows (None: all) of this stream can continue from a state."""
        number = self.batch_size if batch_size is None else batch_size
        self.core.check_state(state, number, self._never.device)

    def largest_counters(self) -> dict[str, int]:
        """Return the integer leaves of the state that are counters, with their largest value."""
        return self.core.largest_counters()

    def try_state(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file makes a step fail."""
        number, device = len(leaves(state)[0]), self._never.device
        try:
            twin = self.remade(number)
            twin.load_state(state)
            twin.step(torch.zeros(number, *self.core.input_shape, dtype=self._dtype, device=device))
        except (IndexError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{path}: a step from this memory fails ({reason}): a counter is out of range") from error

    @property
    def nbytes(self) -> int:
        """Bytes held between steps, a constant."""
        return nbytes(tuple(self.buffers()))

    @property
    def reduced_nbytes(self) -> int:
        """Bytes of the reduced copies of weights that steps read; 0 where there are none."""
        return 0 if self._reduction is None else self._reduction.nbytes


class RowStream(Stream):
    """A stream with buffers of its own, which reads, writes and steps some rows or all of them in place."""

    @abstractmethod
    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the state of some rows; None: of all."""

    @abstractmethod
    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""

    @abstractmethod
    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step on checked inputs ``[r, *input_shape]`` of some rows; None: of all."""

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs ``[b, *input_shape]``."""
        return self.advance_rows(inputs, is_first, None)

    def starting(self, is_first: Tensor, rows: Rows | None) -> Rows | None:
        """Return the rows that begin an episode, as rows of the stream; None if there is none."""
        if is_first is self._never or not len(index := is_first.nonzero()[:, 0]):
            return None
        return Rows(index if rows is None else rows.index[index], self.batch_size)

    @abstractmethod
    def buffers(self) -> list[Tensor]:
        """Return every tensor that is kept between steps."""


def _make_stream(
    kind: type[Stream], core: Any, batch_size: int, precision: Precision, arguments: dict[str, Any], state: Any
) -> Stream:
    stream = kind.make(core, batch_size, precision, **arguments)
    stream.load_state(state)
    return stream


def _without_broken_steps(inputs: Tensor, lead: int, advance: Callable[[Tensor], Tensor]) -> Tensor:
    """Advance by inputs with ``lead`` leading axes; broken steps enter as zeros and give NaN, as in a call."""
    if is_known_finite(inputs):
        return advance(inputs)
    finite = is_finite(inputs).flatten(lead).all(-1)
    outputs = advance(torch.where(spread_rows(finite, inputs), inputs, 0.0))
    return torch.where(spread_rows(finite, outputs), outputs, torch.nan)
