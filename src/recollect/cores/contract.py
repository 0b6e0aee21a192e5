"""The streaming contract that every memory core keeps.

    outputs, state = core(inputs, state, is_first)

    inputs    float [b, t, *input_shape]     input_shape is (d,), or (n, d) for cores that read n tokens a step
    state     NamedTuple of tensors, leading axis b; core.initial_state(b) makes the first one
    is_first  bool [b, t]
    outputs   float [b, t, *output_shape]

1. ``is_first[b, t]`` clears row b before step t is consumed. It is the only reset signal.
2. One call with T steps equals T calls with one step, and any split in between.
3. Steps before ``is_first`` do not affect steps after it: not by value, gradient or NaN.
4. Rows never mix, and no output depends on a later input.
5. The bytes of a state and the cost of a step are functions of the config alone.
6. The input state is never changed; the output state has the same structure, shapes and dtypes.
7. A call is differentiable through everything that the paper differentiates through; the caller cuts the graph
   between unrolls with ``recollect.state.detach(state)``.
8. ``core.stream(batch_size)`` is the deployment form: it owns its state, and obeys 1-5 with the same numbers.
9. Chunks are counted from the start of the episode, so rows may be at different places in a chunk.

One rule beyond the papers: a step whose input is not finite (or too large: layers/finite.py) gives NaN at that step,
and enters the memory as zeros, so that a broken sensor frame is visible at once and is not remembered. A state that is
not finite (or too large) gives NaN until the next ``is_first``, which replaces it by the initial state. (A stream does
not search its memory at every step, and may recover from such a state earlier, when the window has moved on.)
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require, with_check
from recollect.cores.config import CoreConfig as CoreConfig  # cores of users import it from here
from recollect.cores.input_checks import require_float_dtype, require_is_first
from recollect.cores.stream import Stream
from recollect.layers.finite import is_finite, is_known_finite, state_limit
from recollect.ops.reduced_linear import CacheFormat, Precision, WeightFormat
from recollect.state import leaves, map_state, named_leaves, spread_rows, take_rows, where_first

StateT = TypeVar("StateT", bound=tuple[Any, ...])

Reference = Callable[[Any, Tensor, Any, Tensor], tuple[Tensor, Any]]
"""A plain form: ``reference(core, inputs, state, is_first)`` returns the same as ``core(inputs, state, is_first)``."""
Places = dict[str, tuple[Tensor, Tensor]]
"""The steps of the episode behind attention weights: for each Tap, by its name below the core, two tensors that
broadcast to ``[b, t, s]``: the first step of each of its s places, and the step after the last; negative where a place
holds no step of the episode."""


def _require_rows(core: "MemoryCore[Any]", batch_size: int, *args: Any, **kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        require(batch_size >= 0, "batch_size", batch_size, "give the number of streams, which is not negative")


def companion(name: str) -> Any:
    """Return a class attribute of a core that is imported when it is first read.

    A stream and a plain form import their core, so the core names them instead of importing them:

        stream_type = companion("recollect.cores.hcam.stream:HierarchicalChunkStream")
    """
    return _Companion(name)


class _Companion:
    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        module, _, attribute = self.name.partition(":")
        value = getattr(importlib.import_module(module), attribute)
        return MethodType(value, instance) if instance is not None and isinstance(value, FunctionType) else value


class MemoryCore(nn.Module, ABC, Generic[StateT]):
    """Base of all cores: checks the arguments of a call and keeps steps that are not finite out of the memory.

    A core defines :meth:`initial_state`, :meth:`unroll` and :meth:`flops_per_step`, and may name a
    faster stream, ``stream_type``, and the paper's equations as a plain loop, ``reference_unroll`` (see
    :func:`companion`).
    """

    stream_type: ClassVar[type[Stream]] = Stream
    """Class of the streams that :meth:`stream` makes."""
    reference_unroll: ClassVar[Reference | None] = None
    """Plain form of :meth:`forward` with the same parameters, for the certificate to compare with."""

    input_shape: tuple[int, ...]
    """Shape of one step's input, without batch and time."""
    output_shape: tuple[int, ...]
    """Shape of one step's output."""
    discrete: bool = False
    """Whether the core chooses discretely (top-k), so that rounding can change a choice; the certificate then compares
    in float64."""
    stops_gradient: str = ""
    """Why and where the paper cuts the gradient inside a call; the certificate then compares gradients with the plain
    form instead of finite differences."""
    runs_in_float16: bool = False
    """Whether ``core.half()`` can run, in calls and in streams; the certificate then tries it."""
    keeps_weights: str = ""
    """Why streams of this core cannot read reduced weights; empty where they can."""
    exemptions: Mapping[str, str] = {}
    """Lines of the certificate that this core misses, each with its reason."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "initial_state" in vars(cls):
            cls.initial_state = with_check(_require_rows, vars(cls)["initial_state"])

    @abstractmethod
    def initial_state(self, batch_size: int) -> StateT:
        """Return the initial state of ``batch_size`` streams, which may be learned.

        Each leaf must have its own storage (``repeat``, not ``expand``): an exported program fixes which of its
        arguments are views or the same tensor.
        """

    @abstractmethod
    def unroll(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Compute :meth:`forward` on checked and finite inputs."""

    @abstractmethod
    def flops_per_step(self) -> int:
        """Return multiply-adds x 2 of one streamed step of one row with a full memory.

        Only matrix products and attention are counted.
        """

    def forward(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Consume t steps of b streams.

        Args:
            inputs: float ``[b, t, *input_shape]``.
            state: from :meth:`initial_state` or an earlier call.
            is_first: bool ``[b, t]``; True clears the row's memory before that step.

        Returns:
            Outputs ``[b, t, *output_shape]`` and the new state.

        Raises:
            ValueError: a wrong rank, width, dtype, batch or device, no step, or the state of another core.
        """
        if not torch.compiler.is_compiling():
            self.check(inputs, state, is_first)
            if not len(inputs):
                return self._forward_without_rows(inputs, is_first)
        if _is_all_finite(inputs, state):
            outputs, new_state = self.unroll(inputs, state, is_first)
        else:
            outputs, new_state = self._unroll_with_broken_steps(inputs, state, is_first)
        # Under autocast a leaf may come back in another dtype.
        return outputs, map_state(lambda new, old: new.to(old.dtype), new_state, state)

    def _forward_without_rows(self, inputs: Tensor, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Compute :meth:`forward` on an empty batch, with one row of zeros: some products need a row."""
        row = F.pad(inputs, (0, 0) * (inputs.ndim - 1) + (0, 1))
        outputs, state = self.forward(row, self.initial_state(1), is_first.new_zeros(1, is_first.shape[1]))
        return outputs[:0], take_rows(state, slice(0))

    def _unroll_with_broken_steps(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Unroll with zeros for broken steps and initial states for broken states; their outputs are NaN."""
        finite = is_finite(inputs).flatten(2).all(-1)  # b t
        floats = _float_leaves(state) or [inputs.new_zeros(inputs.shape[0])]
        usable = [leaf.abs() <= state_limit(leaf) for leaf in floats]  # a comparison with NaN is False
        broken = ~torch.stack([leaf[..., None].flatten(1).all(1) for leaf in usable]).all(0)  # b
        lost = broken[:, None] & (is_first.long().cumsum(1) == 0)  # b t, steps that still read a broken state
        clean = torch.where(spread_rows(finite, inputs), inputs, 0.0)
        outputs, new_state = self.unroll(clean, self.reset(broken, state), is_first)
        # A broken state that was not cleared in this call stays broken, so that every later output is NaN too.
        new_state = where_first(lost[:, -1], state, new_state)
        return torch.where(spread_rows(finite & ~lost, outputs), outputs, torch.nan), new_state

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the steps of the episode behind the attention weights of a call; empty for cores without attention.

        Args:
            clock: long ``[b, t]``, the steps of the call, counted from 0 at the start of their episodes.
        """
        return {}

    def read_steps(self, clock: Tensor) -> Places:
        """Return :meth:`recalled_steps`, with single steps where a core reads inside chunks.

        Such a Tap records ``[b, h, t, n, c]``, to be multiplied by the record of its neighbour ``relevance_tap``: ``[b,
        t, n]``, or ``[b, h, t, n]``.
        """
        return self.recalled_steps(clock)

    def attended_steps(self, clock: Tensor) -> Places:
        """Return :meth:`recalled_steps` for all Taps that attend to steps of the episode, for pictures."""
        return self.recalled_steps(clock)

    def largest_counters(self) -> dict[str, int]:
        """Return the integer leaves of the state that are counters, with their largest value.

        ``stream.COUNTED`` stands for any number of steps. A file with a larger or negative counter is damaged.
        """
        return {}

    def stream(self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32") -> Stream:
        """Make a stream for deployment: it owns its state and takes one step at a time, without gradients.

        The stream reads the weights once, when it is made; after a change of weights make a new one, or call its
        ``swap_weights``.

        Args:
            batch_size: number of rows.
            weights: float32 computes in the dtype of the core; bfloat16 and int8 (a scale for each output channel)
                read a reduced copy of the linear maps, on a CPU.
            cache: float32 keeps the dtype of the core; with bfloat16 projected keys, values and inputs that wait in
                windows and chunks are rounded.

        Raises:
            ValueError: ``batch_size`` is below 1; with reduced formats, the core is not float32 on a CPU or has nothing
                to reduce, or autocast is on.
        """
        require(batch_size >= 1, "batch_size", batch_size, "a stream needs at least one row")
        return self.stream_type.make(self, batch_size, Precision(weights=weights, cache=cache))

    def reset(self, is_first: Tensor, state: StateT) -> StateT:
        """Return the state with rows ``is_first`` ``[b]`` set to the initial state."""
        return where_first(is_first, self.initial_state(is_first.shape[0]), state)

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return zeros on the core's device, by default in the dtype of its parameters."""
        like = next(self.parameters())
        return torch.zeros(shape, device=like.device, dtype=like.dtype if dtype is None else dtype)

    def check(self, inputs: Tensor, state: StateT, is_first: Tensor) -> None:
        """Raise ``ValueError`` unless the arguments of a call fit this core and each other."""
        name = type(self).__name__
        want = ["b", "t", *map(str, self.input_shape)]
        if inputs.ndim != len(want) or tuple(inputs.shape[2:]) != self.input_shape:
            remedy = "add the batch or time axis (for example inputs[:, None]) or build the core with another input_dim"
            if len(self.input_shape) > 1 and inputs.ndim == 3 and tuple(inputs.shape[1:]) != self.input_shape:
                remedy = "it reads several vectors a step; for one, build it with num_tokens=1, give inputs[:, :, None]"
            raise ValueError(f"inputs have shape {list(inputs.shape)}; {name} takes [{', '.join(want)}]: {remedy}")
        if not inputs.is_floating_point():
            raise ValueError(f"inputs have dtype {inputs.dtype}; {name} takes floats: encode or cast them first")
        own = next((p.dtype for p in self.parameters() if p.is_floating_point()), inputs.dtype)
        require_float_dtype(inputs, own, name)
        batch, steps = inputs.shape[:2]
        if steps == 0:
            raise ValueError(f"inputs have shape {list(inputs.shape)}: give at least one step")
        require_is_first(is_first, (batch, steps), name)
        if is_first.device != inputs.device:
            raise ValueError(f"is_first is on {is_first.device} and inputs are on {inputs.device}: move one")
        self.check_state(state, batch, inputs.device)

    def check_state(self, state: StateT, batch_size: int, device: torch.device) -> None:
        """Raise ``ValueError`` unless ``state`` is of this core, for this batch and on this device."""
        name = type(self).__name__
        remedy = f"start from core.initial_state({batch_size}) of this core"
        if state is None or not isinstance(state, tuple):
            raise ValueError(f"state is {type(state).__name__}; {name} needs a NamedTuple of tensors: {remedy}")
        expected = self._expected_state()
        if type(state) is not type(expected):
            raise ValueError(f"state is a {type(state).__name__}, of another core; {name} needs its own: {remedy}")
        got, want = list(named_leaves(state)), list(named_leaves(expected))
        if [n for n, _ in got] != [n for n, _ in want]:
            raise ValueError(f"state has leaves {[n for n, _ in got]}, {name} needs {[n for n, _ in want]}: {remedy}")
        for (field, leaf), (_, like) in zip(got, want, strict=True):
            if leaf.ndim == 0 or leaf.shape[0] != batch_size:
                raise ValueError(
                    f"state.{field} has shape {list(leaf.shape)}, the batch is {batch_size}: {remedy}, "
                    "or choose rows with state.take_rows"
                )
            if leaf.shape[1:] != like.shape[1:]:
                raise ValueError(
                    f"state.{field} has shape {list(leaf.shape)}, this {name} needs {[batch_size, *like.shape[1:]]} "
                    f"(another config made it): {remedy}"
                )
            if leaf.device != device:
                raise ValueError(f"state.{field} is on {leaf.device}, inputs are on {device}: use state.to(device)")
            if leaf.dtype != like.dtype:
                cast = f", or use state.to(state, {like.dtype})" if leaf.is_floating_point() else ""
                raise ValueError(f"state.{field} has dtype {leaf.dtype}, {name} needs {like.dtype}: {remedy}{cast}")

    def _expected_state(self) -> StateT:
        # Shapes depend on the config alone, so one row on the meta device for each dtype is enough.
        dtype = next((p.dtype for p in self.parameters()), None)
        before, cached = self.__dict__.get("_state_shapes", (None, None))
        if cached is None or dtype != before:
            with torch.no_grad():
                cached = map_state(lambda leaf: leaf.to("meta"), self.initial_state(1))
            object.__setattr__(self, "_state_shapes", (dtype, cached))
        return cached


def _float_leaves(state: Any) -> list[Tensor]:
    """Return the leaves that may hold NaN; one without elements does not."""
    floats = [leaf for leaf in leaves(state) if leaf.is_floating_point() or leaf.is_complex()]
    return [leaf for leaf in floats if 0 not in leaf.shape[1:]]


def _is_all_finite(inputs: Tensor, state: Any) -> bool:
    """Whether inputs and state are surely usable; False where the answer costs more than the slower path."""
    # A finite sum has finite terms, and needs one pass without a copy. Large terms cancel only in a state made for it.
    return is_known_finite(inputs) and all(
        abs(leaf.detach().sum().item()) <= state_limit(leaf) for leaf in _float_leaves(state)
    )


def require_no_dropout(core: MemoryCore[Any], **others: float | None) -> None:
    """Raise ``ValueError`` if a core is in training mode and has dropout, or a rate of ``others``; for plain forms."""
    config: Any = core.config
    for field, rate in {"dropout": config.dropout, **others}.items():
        require(not (core.training and rate), field, rate, "the plain form has none, call core.eval() first")
