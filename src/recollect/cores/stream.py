"""Stream: a core that lives, one step at a time.

    stream = core.stream(batch_size=1)
    output = stream.step(frame)                 # [b, *input_shape] -> [b, *output_shape]; NumPy in, NumPy out
    outputs = stream.unroll(frames)             # [b, t, *input_shape] -> [b, t, *output_shape]: the same as t steps

A stream owns its memory, needs no gradients, and costs the same at step 10 and at step 10^7. The plain class
below calls the core with one step; cores with windows override the three methods marked "override", to write
into ring buffers in place. ``state`` and ``load_state`` translate between the two forms at any moment. Cores whose
layers can take several steps at once also override ``advance_block``: what comes in threes is then read in one pass.

A stream belongs to the weights it was made with: after a change of weights its next step raises a ValueError.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, overload

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from recollect.cores.arrays import First, Numbers, to_array, to_first, to_tensor
from recollect.cores.weight_changes import WeightChanges
from recollect.files import write_atomically
from recollect.layers.finite import is_finite, surely_finite
from recollect.state import clone, leaves, map_state, named_leaves, nbytes, put_rows, spread_rows

LONGEST_BLOCK = 128
"""Steps that a stream takes at once: memory beside the state is bounded, however many are given."""
COUNTED = 2**53
"""More than a counter of steps reaches: for :meth:`MemoryCore.largest_counters`."""

Method = TypeVar("Method", bound=Callable[..., Any])


def outlives_modes(method: Method) -> Method:
    """A method that makes what a stream keeps: without gradients, and never in ``torch.inference_mode``.

    What is made in that mode cannot be changed in place outside of it, and streams are stepped inside and outside.
    """

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return method(*args, **kwargs)

    return cast(Method, call)


class Streamable(Protocol):
    """What a stream needs of its core (every memory core has it)."""

    input_shape: tuple[int, ...]

    def __call__(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """Consume t steps."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """The state of an episode that has not begun."""
        ...

    def check_state(self, state: Any, batch_size: int, device: torch.device) -> None:
        """Refuse a state of another core."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """Its weights."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """What holds them: itself, and all parts of it."""
        ...

    def largest_counters(self) -> dict[str, int]:
        """How far the counters of its state go, where they are bounded."""
        ...

    def stream(self, batch_size: int) -> "Stream":
        """Another stream of the same kind."""
        ...


class Stream:
    """The live memory of ``batch_size`` streams.

    A stream is for acting: one that keeps caches of its own never drops out, whatever the mode of the core. This class
    keeps none and calls the core as it is, which drops out in training mode: call ``core.eval()`` first.

    Args:
        core: whose weights and equations are used.
        batch_size: number of streams that advance together.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Here, so that no stream has to think of it, whoever wrote it.
        super().__init_subclass__(**kwargs)
        for name in ("__init__", "load_state"):
            if name in vars(cls):
                setattr(cls, name, outlives_modes(vars(cls)[name]))

    @outlives_modes
    def __init__(self, core: Streamable, batch_size: int) -> None:
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
        self._never = torch.zeros(batch_size, dtype=torch.bool, device=weight.device)
        self.load_state(self._fresh)

    # -- override these three together ---------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """The memory as the core's state (a copy): what ``core(...)`` takes and returns."""
        return clone(self._state)

    @outlives_modes
    def load_state(self, state: Any) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        self._state = clone(state)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step on checked inputs ``[b, *input_shape]``, with gradients off."""
        outputs, self._state = self.core(inputs[:, None], self._state, is_first[:, None])
        return outputs[:, 0]

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Steps on checked inputs ``[b, t, *input_shape]``; ``is_first [b]`` is of the first, and no other begins
        an episode. Override it where one pass can read them all.
        """
        flags = [is_first, *[self._never] * (inputs.shape[1] - 1)]
        return torch.stack([self.advance(*step) for step in zip(inputs.unbind(1), flags, strict=True)], 1)

    def buffers(self) -> list[Tensor]:
        """Every tensor that is kept between steps (override if there are others than the state)."""
        return leaves(self._state)

    # -- the public face -----------------------------------------------------------------------------------

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
        if is_first is None:
            is_first = self._never
        if surely_finite(inputs):
            return self.advance(inputs, is_first)
        # The core's shield (see recollect.cores.contract): a broken step is NaN at that step, and zeros in the memory.
        finite = is_finite(inputs).flatten(1).all(-1)
        outputs = self.advance(torch.where(spread_rows(finite, inputs), inputs, 0.0), is_first)
        return torch.where(spread_rows(finite, outputs), outputs, torch.nan)

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
        if surely_finite(inputs):
            return self._unroll(inputs, is_first)
        finite = is_finite(inputs).flatten(2).all(-1)  # b t
        outputs = self._unroll(torch.where(spread_rows(finite, inputs), inputs, 0.0), is_first)
        return torch.where(spread_rows(finite, outputs), outputs, torch.nan)

    def _unroll(self, inputs: Tensor, is_first: Tensor | None) -> Tensor:
        """Blocks that begin where some row begins an episode, and are not too long."""
        steps = inputs.shape[1]
        begins = [False] * steps if is_first is None else is_first.any(0).tolist()
        starts = [t for t in range(steps) if begins[t] or t % LONGEST_BLOCK == 0]
        blocks = []
        for start, end in pairwise((*starts, steps)):
            first = is_first[:, start] if is_first is not None and begins[start] else self._never
            blocks.append(self.advance_block(inputs[:, start:end], first))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def _check_step(self, inputs: Tensor, is_first: Tensor | None, lead: list[int], takes: str) -> None:
        """Raise ``ValueError`` unless inputs ``[*lead, *input_shape]`` and their flags can be computed with."""
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

    def check_weights(self) -> None:
        """Raise ``ValueError`` if the core's weights have changed since the stream was made."""
        if self._changes.any():
            raise ValueError(
                f"the weights of this {type(self.core).__name__} have changed since its stream was made: "
                "make a new stream, core.stream(batch_size)"
            )

    @torch.no_grad()
    def reset(self, rows: Tensor | np.ndarray | list[int] | None = None) -> None:
        """Forget: all rows, or those named by integers or a boolean mask.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        if rows is None:
            self.load_state(self._fresh)
            return
        index = self.index_of(rows)
        self.load_state(put_rows(self.state, index, map_state(lambda leaf: leaf[index], self._fresh)))

    def index_of(self, rows: Tensor | np.ndarray | list[int]) -> Tensor:
        """Rows that are named by integers or a boolean mask, as an index.

        Raises:
            ValueError: there is no such row, or the mask is of another number of rows.
        """
        index, number = torch.as_tensor(rows, device=self._never.device), self.batch_size
        if not index.numel():
            index = index.long()  # of an empty list torch makes floats
        if index.dtype == torch.bool:
            fits = list(index.shape) == [number]
        else:
            whole = not (index.is_floating_point() or index.is_complex())
            fits = whole and all(-number <= row < number for row in index.flatten().tolist())
        if not fits:
            raise ValueError(
                f"rows={index.tolist()}: this stream has {number} rows, name some of 0 to {number - 1}, "
                f"or give a mask of {number} bools"
            )
        return index

    def fork(self) -> "Stream":
        """A second stream with the same memory; from here on the two go their own ways.

        Raises:
            ValueError: the weights have changed since the stream was made.
        """
        self.check_weights()
        twin = self.core.stream(self.batch_size)
        twin.load_state(self.state)
        return twin

    def made_with(self) -> dict[str, Any]:
        """Arguments beyond core and batch size that made this stream (override where there are any)."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Buffers are views of each other and steps are closures over them, so a copy is made anew and takes the memory.
        return _make_again, (type(self), self.core, self.batch_size, self.made_with(), self.state)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the memory to a safetensors file (beside the old one, then renamed)."""
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
        self._try(state, path)
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

    def _try(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file leads a step outside the memory."""
        try:
            twin = self.core.stream(self.batch_size)
            twin.load_state(state)
            twin.step(
                torch.zeros(self.batch_size, *self.core.input_shape, dtype=self._dtype, device=self._never.device)
            )
        except (IndexError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{path}: its memory cannot be gone on with ({reason}): a counter is out of range"
            ) from error

    @property
    def nbytes(self) -> int:
        """Bytes held between steps, the same for ever."""
        return nbytes(tuple(self.buffers()))


def _make_again(kind: type[Stream], core: Streamable, batch_size: int, arguments: dict[str, Any], state: Any) -> Stream:
    """What ``copy.deepcopy`` and pickle make of a stream."""
    stream = kind(core, batch_size, **arguments)
    stream.load_state(state)
    return stream
