"""Stream: a core that owns its state and takes one step at a time.

    stream = core.stream(batch_size=1)
    output = stream.step(frame)                 # [b, *input_shape] -> [b, *output_shape]; NumPy in, NumPy out
    outputs = stream.unroll(frames)             # [b, t, *input_shape] -> [b, t, *output_shape]: the same as t steps

A stream needs no gradients, and costs the same at step 10 and at step 10^7. The class below calls the core with one
step; cores with windows override ``state``, ``load_state`` and ``advance`` together, to write into ring buffers in
place. ``state`` and ``load_state`` convert between the two forms at any moment. Cores whose layers can take several
steps at once also override ``advance_block``.

A stream belongs to the weights it was made with: after a change of weights its next step raises a ValueError.
"""

from collections.abc import Callable
from functools import partial, wraps
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from recollect.cores.arrays import First, Numbers, to_array, to_first, to_tensor
from recollect.cores.weight_changes import WeightChanges
from recollect.files import write_atomically
from recollect.layers.finite import is_finite, is_known_finite
from recollect.state import clone, leaves, map_state, named_leaves, nbytes, put_rows, spread_rows

LONGEST_BLOCK = 128
"""Most steps of one block: bounds the memory beside the state, for any number of steps."""
COUNTED = 2**53
"""A number that no counter of steps reaches, for :meth:`MemoryCore.largest_counters`."""

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


class Stream:
    """The state of ``batch_size`` streams of a core, and their steps.

    A stream is for acting: one with caches of its own never applies dropout, whatever the mode of the core. This class
    has none and calls the core, which applies dropout in training mode: call ``core.eval()`` first.

    Args:
        core: a :class:`~recollect.cores.contract.MemoryCore`.
        batch_size: number of streams that advance together.
    """

    core: Any

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
        self.core = core
        self.batch_size = batch_size
        self._fresh = clone(core.initial_state(batch_size))
        weight = next(core.parameters())
        self._dtype = weight.dtype
        self.like = weight.detach().new_zeros(())
        """A scalar of the dtype and on the device in which the stream computes."""
        self._changes = WeightChanges(core.parameters(), core.modules())
        self._never = torch.zeros(batch_size, dtype=torch.bool, device=weight.device)  # is_first of most steps
        self.load_state(self._fresh)

    @property
    def state(self) -> Any:
        """The memory as the core's state (a copy)."""
        return clone(self._state)

    @outside_inference_mode
    def load_state(self, state: Any) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._state = clone(state)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs ``[b, *input_shape]``, with gradients off."""
        outputs, self._state = self.core(inputs[:, None], self._state, is_first[:, None])
        return outputs[:, 0]

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
            ValueError: a wrong shape or dtype; the weights have changed since the stream was made.
        """
        if not isinstance(inputs, Tensor):
            return to_array(self.step(to_tensor(inputs, self.like, floats=True), is_first))
        self.check_weights()
        if is_first is not None and not isinstance(is_first, Tensor):
            is_first = to_first(is_first, self.batch_size, self._never.device)
        self._check_step(inputs, is_first, [self.batch_size], "a step of this stream takes")
        first = self._never if is_first is None else is_first
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
            ValueError: a wrong shape or dtype, or no step; the weights have changed since the stream was made.
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

    def _check_step(self, inputs: Tensor, is_first: Tensor | None, lead: list[int], takes: str) -> None:
        """Raise ``ValueError`` unless inputs ``[*lead, *input_shape]`` and ``is_first`` fit this stream."""
        if list(inputs.shape) != (want := [*lead, *self.core.input_shape]):
            raise ValueError(f"inputs have shape {list(inputs.shape)}; {takes} {want}")
        if inputs.dtype != self._dtype and not torch.is_autocast_enabled(self.like.device.type):
            raise ValueError(
                f"inputs are {inputs.dtype}; this stream computes in {self._dtype}: "
                f"cast them with inputs.to({self._dtype})"
            )
        if is_first is not None and (is_first.dtype != torch.bool or list(is_first.shape) != lead):
            raise ValueError(f"is_first is {is_first.dtype} {list(is_first.shape)}; it must be bool {lead}")
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
                "make a new stream, core.stream(batch_size)"
            )

    @torch.no_grad()
    def reset(self, rows: Tensor | np.ndarray | list[int] | None = None) -> None:
        """Reset all rows to the initial state, or those given by integers or a boolean mask.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        if rows is None:
            self.load_state(self._fresh)
            return
        index = self.index_of(rows)
        self.load_state(put_rows(self.state, index, map_state(lambda leaf: leaf[index], self._fresh)))

    def index_of(self, rows: Tensor | np.ndarray | list[int]) -> Tensor:
        """Return the index tensor of rows given by integers or a boolean mask.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        index, number = torch.as_tensor(rows, device=self._never.device), self.batch_size
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

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments beyond core and batch size that made this stream; override it if there are any."""
        return {}

    def fork(self) -> "Stream":
        """Return a second, independent stream with the same memory.

        Raises:
            ValueError: the weights have changed since the stream was made.
        """
        self.check_weights()
        return _make_stream(type(self), self.core, self.batch_size, self.extra_arguments(), self.state)

    def __reduce__(self) -> tuple[Any, ...]:
        # Buffers are views of each other and steps are closures over them, so a copy is built from core and state.
        return _make_stream, (type(self), self.core, self.batch_size, self.extra_arguments(), self.state)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the memory to a safetensors file, atomically."""
        tensors = {name: leaf.contiguous() for name, leaf in named_leaves(self.state)}
        content = safetensors.torch.save(tensors, metadata={"core": type(self.core).__name__})
        write_atomically(Path(path), content)

    def load(self, path: str | PathLike[str]) -> None:
        """Continue from a file that :meth:`save` wrote, on this stream's device.

        Raises:
            ValueError: the file holds the memory of another core, config or batch size.
        """
        try:
            tensors = safetensors.torch.load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} holds no memory of a stream ({error}): give a file that save wrote") from None
        names = [name for name, _ in named_leaves(self._fresh)]
        if sorted(tensors) != sorted(names):
            raise ValueError(
                f"{path} holds {sorted(tensors)}; a {type(self.core).__name__} stream needs {sorted(names)}: "
                "it was saved by another core"
            )
        for name, leaf in named_leaves(self._fresh):
            if tensors[name].dtype != leaf.dtype:
                raise ValueError(f"{path}: {name} is {tensors[name].dtype}, this stream keeps {leaf.dtype}")
        remaining = iter(names)
        state = map_state(lambda leaf: tensors[next(remaining)].to(leaf.device), self._fresh)
        self.check_state(state)
        self._check_counters(state, path)
        self._try_step(state, path)
        self.load_state(state)

    def check_state(self, state: Any) -> None:
        """Raise ``ValueError`` unless this stream can continue from a state."""
        self.core.check_state(state, self.batch_size, self._never.device)

    def _check_counters(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file is out of range."""
        most = self.core.largest_counters()
        for (name, leaf), (_, known) in zip(named_leaves(state), named_leaves(self._fresh), strict=True):
            if name not in most or not leaf.numel():
                continue
            low, high = min(0, int(known.min())), most[name]
            found = int(leaf.min()) if int(leaf.min()) < low else int(leaf.max())
            if not low <= found <= high:
                raise ValueError(f"{path}: {name} is {found}, not in {low}..{high}: the file is damaged")

    def _try_step(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file makes a step fail."""
        device = self._never.device
        try:
            twin = self.core.stream(self.batch_size)
            twin.load_state(state)
            twin.step(torch.zeros(self.batch_size, *self.core.input_shape, dtype=self._dtype, device=device))
        except (IndexError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{path}: a step from this memory fails ({reason}): a counter is out of range") from error

    @property
    def nbytes(self) -> int:
        """Bytes held between steps, a constant."""
        return nbytes(tuple(self.buffers()))


def _make_stream(kind: type[Stream], core: Any, batch_size: int, arguments: dict[str, Any], state: Any) -> Stream:
    stream = kind(core, batch_size, **arguments)
    stream.load_state(state)
    return stream


def _without_broken_steps(inputs: Tensor, lead: int, advance: Callable[[Tensor], Tensor]) -> Tensor:
    """Advance by inputs with ``lead`` leading axes; broken steps enter as zeros and give NaN, as in a call."""
    if is_known_finite(inputs):
        return advance(inputs)
    finite = is_finite(inputs).flatten(lead).all(-1)
    outputs = advance(torch.where(spread_rows(finite, inputs), inputs, 0.0))
    return torch.where(spread_rows(finite, outputs), outputs, torch.nan)
