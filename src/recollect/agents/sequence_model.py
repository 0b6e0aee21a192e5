"""Sequence model around any memory core: tokens or float vectors in, one answer at every step out.

    e_t = embedding[token_t]   or   W_in (x_t - mean) / std      [b, t, d]
    u_t = e_t   or, for cores that read n tokens a step,   reshape(W_tok e_t + b_tok, n x d)
    y_t, state = core(u_t, state, is_first)                      [b, t, d_out] or [b, t, r, d_out]
    logits_t = readout(LN(mean_r y_t))                           [b, t, classes]

Raw numbers go in, and values come out in the units of the training data: its mean and deviation are buffers of the
model, where the task gives them. A readout may also point at the newest items (``pointer.py``). The model follows the
contract of the cores: state in, state out, ``is_first`` the only reset signal, and a stream
(:meth:`SequenceModel.stream`) with the same numbers. With ``given_memory`` it answers questions about an external
memory instead, whole rows at a time (``external_memory.py``).
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from recollect.agents import external_memory
from recollect.agents.config import SequenceModelConfig
from recollect.agents.input_checks import require_tokens
from recollect.agents.normalization import Standardization, described_scales
from recollect.agents.pointer import PointerState, newest, point
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.agents.streams import ModelStream
from recollect.config import from_json, require, to_json
from recollect.cores.arrays import First, Numbers, to_array, to_tensor
from recollect.cores.config import CoreConfig
from recollect.cores.input_checks import require_float_dtype
from recollect.cores.stream_memory import RowNames
from recollect.cores.tlb import TemporalLatentBottleneck
from recollect.layers.feedforward import FeedForward
from recollect.layers.rings import Rows
from recollect.ops.reduced_linear import FULL, CacheFormat, Precision, WeightFormat
from recollect.tasks.streams.contract import Scale


class SequenceModel(SavedModel):
    """Tokens or float vectors -> core -> classes, one answer per step. Made by :meth:`SequenceModelConfig.build`."""

    def __init__(
        self,
        config: SequenceModelConfig,
        core: CoreConfig,
        *,
        num_classes: int,
        vocabulary: int | None = None,
        input_dim: int | None = None,
        input_scale: Scale | None = None,
        target_scale: Scale | None = None,
    ) -> None:
        super().__init__()
        if (vocabulary is None) == (input_dim is None):
            raise ValueError(f"vocabulary={vocabulary!r}, input_dim={input_dim!r}: give exactly one of the two")
        require(num_classes > 0, "num_classes", num_classes, "give a positive number of answers")
        self.config = config
        self.core_config = core
        self.vocabulary = vocabulary
        self.input_dim = input_dim
        self.num_classes = num_classes
        width = config.embedding_dim
        self.input_norm = None if input_scale is None else Standardization(input_scale)
        self.target_norm = None if target_scale is None else Standardization(target_scale)
        few = config.norm_inputs and (input_dim is None or input_dim < 2)
        require(not few, "norm_inputs", True, f"input_dim={input_dim}: only several numbers have a mean and a variance")
        self.norm_inputs = (
            nn.LayerNorm(input_dim or 1, elementwise_affine=False) if config.norm_inputs else nn.Identity()
        )
        self.encoder: nn.Module
        if vocabulary is not None:
            self.encoder = nn.Embedding(vocabulary, width)
        else:
            assert input_dim is not None
            self.encoder = nn.Linear(input_dim, width)
        self.core = core.build(width)
        self.tokens = nn.Identity()
        if len(self.core.input_shape) == 2:
            self.tokens = nn.Linear(width, self.core.input_shape[0] * self.core.input_shape[1])
        out = self.core.output_shape[-1]
        self.norm = nn.LayerNorm(out)
        self.points = config.readout == "pointer"
        self.readout = (
            FeedForward(out, 2 * out, out_dim=num_classes)
            if config.readout == "mlp"
            else nn.Linear(out, width if self.points else num_classes)
        )
        if config.identity_readout:
            alike = f"outputs of width {out} and items of width {width}: give equal widths"
            require(out == width, "identity_readout", True, alike)
            assert isinstance(self.readout, nn.Linear)
            nn.init.eye_(self.readout.weight)

    def initial_state(self, batch_size: int) -> Any:
        """Return the initial state of ``batch_size`` rows."""
        state = self.core.initial_state(batch_size)
        if not self.points:
            return state
        return PointerState(state, self.core.zeros(batch_size, self.num_classes - 1, self.config.embedding_dim))

    def forward(
        self,
        inputs: Tensor,
        state: Any,
        is_first: Tensor,
        padding: Tensor | None = None,
        *,
        standardized: bool = False,
    ) -> tuple[Tensor, Any]:
        """Return logits, or values in the units of the training data, ``[b, t, classes]``, and the new state.

        Values are float64, because numbers with a large mean and a small deviation are all alike in float32.

        With ``given_memory`` all steps of a question have its answer, those of the memory are meaningless, and the
        state is unchanged.

        Args:
            inputs: tokens, long ``[b, t]``, or raw floats ``[b, t, input_dim]``.
            state: from :meth:`initial_state` or an earlier call.
            is_first: bool ``[b, t]``; True resets the row's memory before that step.
            padding: bool ``[b, t]``: steps that only fill a row up, excluded where whole rows are read; a causal core
                needs no mask, because padding comes last. None: no padding.
            standardized: return values in standard deviations from their mean, as losses need them.

        Raises:
            ValueError: inputs of the wrong rank, width or dtype, a token outside the vocabulary, or a state of another
                model; with ``whole_rows`` or ``given_memory``, rows that do not have that form.
        """
        answers, state = self._answer(inputs, state, is_first, padding)
        return (answers if standardized or self.target_norm is None else self.target_norm.invert(answers)), state

    def _answer(self, inputs: Tensor, state: Any, is_first: Tensor, padding: Tensor | None) -> tuple[Tensor, Any]:
        if not torch.compiler.is_compiling():
            self.check(inputs, time=True)
        items = self.embed(inputs)
        if self.config.given_memory != "none":
            return self.answer_questions(items, is_first), state
        if not self.points:
            outputs, state = self.read(items, state, is_first, padding)
            return self.decode(outputs), state
        if not isinstance(state, PointerState):
            raise ValueError(f"state is a {type(state).__name__}: give one of this model's initial_state(batch_size)")
        outputs, memory = self.read(items, state.core, is_first, padding)
        choices, recent = newest(items, state.recent, is_first)
        return point(self.decode(outputs), choices), PointerState(memory, recent)

    def read(self, items: Tensor, state: Any, is_first: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return the core's outputs and state for embedded items ``[b, t, d]``; ``padding`` as in :meth:`forward`."""
        if not self.config.whole_rows:
            return self.core(self.expand(items), state, is_first)
        if not isinstance(self.core, TemporalLatentBottleneck):
            raise ValueError(
                f"whole_rows=True: {type(self.core).__name__} reads streams only: use tlb, or set it to False"
            )
        if bool(is_first[:, 1:].any()) or not bool(is_first[:, 0].all()):
            raise ValueError("whole_rows=True: every row must be one episode, from its first step to its last")
        return self.core.encode(items, padding)

    def answer_questions(self, items: Tensor, is_first: Tensor) -> Tensor:
        """Return logits ``[b, t, classes]`` for rows of a memory and questions about it (see external_memory.py).

        All steps of a question have its logits; those of the memory are zeros.

        Args:
            items: embedded inputs ``[b, t, d]``.
            is_first: bool ``[b, t]``; the first episode is the memory, each later one a question.

        Raises:
            ValueError: the rows have their episodes at different steps, or as the two ways of reading.
        """
        start, length = external_memory.layout(is_first)
        memory, questions = items[:, :start], items[:, start:].unflatten(1, (-1, length))  # b k t d
        if self.config.given_memory == "shared":
            outputs = external_memory.read_shared(self.core, memory, questions)
        else:
            outputs = external_memory.read_streamed(self.core, self.expand, memory, questions)
        if len(self.core.output_shape) == 2:
            outputs = outputs.mean(-2)
        answers = self.readout(self.norm(outputs.mean(2)))  # b k ...
        if self.points:
            answers = point(answers, questions[:, :, -self.num_classes :])
        logits = answers.repeat_interleave(length, 1)
        return torch.cat((logits.new_zeros(len(logits), start, self.num_classes), logits), 1)

    def standardize_targets(self, targets: Tensor) -> Tensor:
        """Return values ``[..., k]`` in standard deviations from the mean; classes as they are."""
        return targets if self.target_norm is None else self.target_norm(targets, self.norm.weight.dtype)

    def embed(self, inputs: Tensor) -> Tensor:
        """Embed raw inputs: ``[b, ...] -> [b, ..., embedding_dim]``."""
        if self.input_norm is not None:
            inputs = self.input_norm(inputs, self.norm.weight.dtype)
        return self.encoder(self.norm_inputs(inputs))

    def expand(self, items: Tensor) -> Tensor:
        """Return the core's input: ``[b, ..., embedding_dim] -> [b, ..., *core.input_shape]``."""
        several = len(self.core.input_shape) == 2
        return self.tokens(items).unflatten(-1, self.core.input_shape) if several else items

    def decode(self, outputs: Tensor) -> Tensor:
        """Apply the readout: ``[b, ..., *core.output_shape] -> [b, ..., classes or embedding_dim]``."""
        if len(self.core.output_shape) == 2:
            outputs = outputs.mean(-2)
        return self.readout(self.norm(outputs))

    def stream(
        self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32"
    ) -> "SequenceStream":
        """Return a stream: one step at a time, without gradients, at constant cost."""
        given = self.config.given_memory
        require(given == "none", "given_memory", given, "this model reads whole rows only; set it to 'none'")
        whole = self.config.whole_rows
        require(not whole, "whole_rows", whole, "this model reads whole rows only; set it to False")
        return SequenceStream(self, batch_size, Precision(weights=weights, cache=cache))

    def check(self, inputs: Tensor, *, time: bool) -> None:
        """Raise ``ValueError`` unless the inputs fit this model, with or without a time axis."""
        axes = ["b", "t"] if time else ["b"]
        if self.vocabulary is None:
            axes.append(str(self.input_dim))
            fits, wanted = inputs.shape[-1] == self.input_dim and inputs.is_floating_point(), "floats"
        else:
            fits, wanted = inputs.dtype in (torch.int64, torch.int32), "tokens, int64"
        if inputs.ndim != len(axes) or not fits:
            raise ValueError(
                f"inputs are {inputs.dtype} {list(inputs.shape)}; this model takes {wanted} [{', '.join(axes)}]"
            )
        if self.vocabulary is not None:
            require_tokens(inputs, self.vocabulary)
        elif self.input_norm is not None:
            self.input_norm.require_precision(inputs.dtype)
        elif inputs.dtype == torch.float64 != self.norm.weight.dtype:
            raise ValueError(
                f"inputs are float64; this model computes in {self.norm.weight.dtype} and has no scale of its inputs: "
                "convert them, or build it with the task's input_scale"
            )
        else:
            require_float_dtype(inputs, self.norm.weight.dtype)

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "core": to_json(self.core_config, REGISTRY),
            "num_classes": self.num_classes,
            "vocabulary": self.vocabulary,
            "input_dim": self.input_dim,
            "has_input_scale": self.input_norm is not None,
            "has_target_scale": self.target_norm is not None,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "SequenceModel":
        """Make a model, without weights, from the description in its folder."""
        return cls(
            from_json(description["agent"], SequenceModelConfig, REGISTRY, trust=trust),
            from_json(description["core"], CoreConfig, REGISTRY, trust=trust),
            num_classes=description["num_classes"],
            vocabulary=description["vocabulary"],
            input_dim=description["input_dim"],
            **described_scales(description),
        )


class SequenceStream(ModelStream):
    """Stream of a sequence model: it owns its memory and takes one step of every row, or of some rows, at a time.

    Args:
        model: the model; its present weights are used.
        batch_size: number of rows.
    """

    model: SequenceModel

    def __init__(self, model: SequenceModel, batch_size: int, precision: Precision = FULL) -> None:
        super().__init__(model, batch_size, precision)
        self.recent = model.initial_state(batch_size).recent if model.points else None
        """The newest items, for a pointer."""

    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the memory of some rows, as the model's ``forward`` takes it; None: of all."""
        core = self.core.read_rows(rows)
        if self.recent is None:
            return core
        return PointerState(core, self.recent.clone() if rows is None else self.recent[rows.index])

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""
        self.core.write_rows(state if self.recent is None else state.core, rows)
        if self.recent is not None:
            self._keep_recent(state.recent, rows)

    def _keep_recent(self, recent: Tensor, rows: Rows | None) -> None:
        assert self.recent is not None
        self.recent = recent.clone() if rows is None else self.recent.index_copy(0, rows.index, recent)

    def fresh_state(self, batch_size: int) -> Any:
        """Return the initial state of so many rows."""
        core = self.core.fresh_state(batch_size)
        if self.recent is None:
            return core
        return PointerState(core, self.recent.new_zeros(batch_size, *self.recent.shape[1:]))

    def check_state(self, state: Any, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless so many rows (None: all) can continue from a state."""
        if self.recent is None:
            self.core.check_state(state, batch_size)
            return
        if not isinstance(state, PointerState):
            raise ValueError(f"state is a {type(state).__name__}; this stream continues from a PointerState")
        self.core.check_state(state.core, batch_size)
        want, own = (self.batch_size if batch_size is None else batch_size, *self.recent.shape[1:]), self.recent
        if state.recent.shape != want or state.recent.dtype != own.dtype or state.recent.device != own.device:
            found = f"{state.recent.dtype} {list(state.recent.shape)} on {state.recent.device}"
            raise ValueError(f"state.recent is {found}, this stream keeps {own.dtype} {list(want)} on {own.device}")

    def largest_counters(self) -> dict[str, int]:
        """Return the integer leaves of the state that are counters, with their largest value."""
        counters = super().largest_counters()
        return counters if self.recent is None else {f"core.{name}": most for name, most in counters.items()}

    def try_state(self, state: Any, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file makes a step of the core fail."""
        super().try_state(state if self.recent is None else state.core, path)

    @property
    def nbytes(self) -> int:
        """Bytes held between steps; constant."""
        return self.core.nbytes + (0 if self.recent is None else self.recent.nbytes)

    @overload
    def step(self, inputs: Tensor, is_first: First = None) -> Tensor: ...

    @overload
    def step(self, inputs: Numbers, is_first: First = None) -> np.ndarray: ...

    def step(self, inputs: Tensor | Numbers, is_first: First = None) -> Tensor | np.ndarray:
        """Return logits, or values in the units of the training data, ``[b, classes]``.

        Args:
            inputs: tokens ``[b]`` or raw floats ``[b, input_dim]``: a tensor, a NumPy array or a list.
            is_first: bool ``[b]``, or one bool for all rows; True resets that row before the step. None: no reset.

        Returns:
            A tensor for a tensor, else a NumPy array.

        Raises:
            ValueError: inputs of the wrong rank, width or dtype, or a token outside the vocabulary; the weights have
                changed since the stream was made.
        """
        return self._step(inputs, is_first, None)

    @overload
    def step_rows(self, inputs: Tensor, rows: RowNames, is_first: First = None) -> Tensor: ...

    @overload
    def step_rows(self, inputs: Numbers, rows: RowNames, is_first: First = None) -> np.ndarray: ...

    def step_rows(self, inputs: Tensor | Numbers, rows: RowNames, is_first: First = None) -> Tensor | np.ndarray:
        """Return what :meth:`step` does, ``[r, classes]``, of one step of some rows; the others do not move.

        Args:
            inputs: of these rows, in the order of ``rows``, as :meth:`step` takes them.
            rows: r integers, each once, or a boolean mask of all rows.
            is_first: bool ``[r]``, or one bool for all of them.

        Raises:
            ValueError: no such row, or one that is named twice.
        """
        return self._step(inputs, is_first, self.named_rows(rows))

    @torch.no_grad()
    def _step(self, inputs: Tensor | Numbers, is_first: First, rows: Rows | None) -> Any:
        model = self.model
        if not isinstance(inputs, Tensor):
            norm = model.input_norm
            if norm is not None and isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f":
                norm.require_precision(getattr(torch, inputs.dtype.name, torch.float64))
            like = self.like if norm is None else norm.mean
            return to_array(self._step(to_tensor(inputs, like, floats=model.vocabulary is None), is_first, rows))
        model.check(inputs, time=False)
        items = model.embed(inputs)
        answer = model.decode(self.step_core(model.expand(items), rows, is_first))
        if self.recent is None:
            return answer if model.target_norm is None else model.target_norm.invert(answer)
        cleared = torch.as_tensor(False if is_first is None else is_first, device=items.device).expand(len(items))
        recent = self.recent if rows is None else self.recent[rows.index]
        choices, recent = newest(items[:, None], recent, cleared[:, None])
        self._keep_recent(recent, rows)
        return point(answer, choices[:, 0])
