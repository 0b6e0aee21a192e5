"""A sequence model around any memory core: tokens or float vectors in, one answer at every step out.

    e_t = embedding[token_t]   or   W_in x_t                     [b, t, d]
    u_t = e_t   or, for cores that read n tokens a step,   reshape(W_tok e_t + b_tok, n x d)
    y_t, state = core(u_t, state, is_first)                      [b, t, d_out] or [b, t, r, d_out]
    logits_t = readout(LN(mean_r y_t))                           [b, t, classes]

It keeps the contract of the cores: state in, state out, ``is_first`` the only reset signal, and a live form
(:meth:`SequenceModel.stream`) with the same numbers.
"""

from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from recollect.agents.folders import read_description, read_weights, write_model
from recollect.agents.kinds import KINDS
from recollect.agents.streams import ModelStream
from recollect.config import from_json, require, to_json
from recollect.cores.arrays import First, Numbers, to_array, to_tensor
from recollect.cores.contract import CoreConfig
from recollect.layers.feedforward import FeedForward


@dataclass(frozen=True, kw_only=True)
class SequenceModelConfig:
    """One answer at every step around a core: tokens or vectors in."""

    embedding_dim: int = 64
    """Width of a token's embedding (or of the projected float input) that the core reads."""
    readout: Literal["linear", "mlp"] = "linear"
    """What turns the core's output into logits: one matrix, or a hidden layer of twice the width before it."""

    def __post_init__(self) -> None:
        require(self.embedding_dim > 0, "embedding_dim", self.embedding_dim, "give a positive width")
        require(self.readout in ("linear", "mlp"), "readout", self.readout, "choose 'linear' or 'mlp'")

    def build(
        self, core: CoreConfig, *, num_classes: int, vocabulary: int | None = None, input_dim: int | None = None
    ) -> "SequenceModel":
        """Make the model for one core and one task.

        Args:
            core: the memory.
            num_classes: answers to choose from.
            vocabulary: number of input tokens; give this or ``input_dim``.
            input_dim: width of a float input.
        """
        return SequenceModel(self, core, num_classes=num_classes, vocabulary=vocabulary, input_dim=input_dim)


class SequenceModel(nn.Module):
    """Tokens or float vectors -> core -> classes, one answer per step. Made by :meth:`SequenceModelConfig.build`."""

    def __init__(
        self,
        config: SequenceModelConfig,
        core: CoreConfig,
        *,
        num_classes: int,
        vocabulary: int | None = None,
        input_dim: int | None = None,
    ) -> None:
        super().__init__()
        if (vocabulary is None) == (input_dim is None):
            raise ValueError(f"vocabulary={vocabulary!r}, input_dim={input_dim!r}: give exactly one of the two")
        require(num_classes > 0, "num_classes", num_classes, "there must be an answer to give")
        self.config = config
        self.core_config = core
        self.vocabulary = vocabulary
        self.input_dim = input_dim
        self.num_classes = num_classes
        width = config.embedding_dim
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
        self.readout = (
            nn.Linear(out, num_classes)
            if config.readout == "linear"
            else FeedForward(out, 2 * out, out_dim=num_classes)
        )

    def initial_state(self, batch_size: int) -> Any:
        """The initial state of ``batch_size`` rows."""
        return self.core.initial_state(batch_size)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """Answer at every step.

        Args:
            inputs: tokens, long ``[b, t]``, or floats ``[b, t, input_dim]``.
            state: from :meth:`initial_state` or an earlier call.
            is_first: bool ``[b, t]``; True clears the row's memory before that step.

        Returns:
            Logits ``[b, t, classes]`` and the new state.

        Raises:
            ValueError: inputs of the wrong rank, width or dtype, or a token outside the vocabulary.
        """
        if not torch.compiler.is_compiling():
            self.check(inputs, time=True)
        outputs, state = self.core(self.encode(inputs), state, is_first)
        return self.decode(outputs), state

    def encode(self, inputs: Tensor) -> Tensor:
        """What the core reads: ``[b, ...] -> [b, ..., *core.input_shape]``."""
        encoded = self.tokens(self.encoder(inputs))
        return encoded.unflatten(-1, self.core.input_shape) if len(self.core.input_shape) == 2 else encoded

    def decode(self, outputs: Tensor) -> Tensor:
        """Logits of the core's outputs: ``[b, ..., *core.output_shape] -> [b, ..., classes]``."""
        if len(self.core.output_shape) == 2:
            outputs = outputs.mean(-2)
        return self.readout(self.norm(outputs))

    def stream(self, batch_size: int) -> "SequenceStream":
        """A live model: one step at a time, without gradients, at constant cost."""
        return SequenceStream(self, batch_size)

    def check(self, inputs: Tensor, *, time: bool) -> None:
        """Raise ``ValueError`` unless these are inputs of this model, with or without a time axis."""
        axes = ["b", "t"] if time else ["b"]
        if self.vocabulary is None:
            axes.append(str(self.input_dim))
            if inputs.ndim != len(axes) or inputs.shape[-1] != self.input_dim or not inputs.is_floating_point():
                raise ValueError(
                    f"inputs are {inputs.dtype} {list(inputs.shape)}; this model takes floats [{', '.join(axes)}]"
                )
            return
        if inputs.ndim != len(axes) or inputs.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"inputs are {inputs.dtype} {list(inputs.shape)}; this model takes tokens, int64 [{', '.join(axes)}]"
            )
        # On an accelerator this look would wait for the device at every step; the lookup itself fails there.
        if inputs.device.type == "cpu" and inputs.numel() and not 0 <= inputs.min() <= inputs.max() < self.vocabulary:
            wrong = inputs[(inputs < 0) | (inputs >= self.vocabulary)][0].item()
            raise ValueError(
                f"token {wrong} is outside the vocabulary of {self.vocabulary}: use 0..{self.vocabulary - 1}"
            )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``model.json`` and ``weights.safetensors`` into a folder (each beside the old one, then renamed)."""
        description = {
            "agent": to_json(self.config, KINDS),
            "core": to_json(self.core_config, KINDS),
            "num_classes": self.num_classes,
            "vocabulary": self.vocabulary,
            "input_dim": self.input_dim,
        }
        write_model(folder, self, description)

    @staticmethod
    def load(folder: str | PathLike[str], device: torch.device | str = "cpu") -> "SequenceModel":
        """The model that :meth:`save` wrote, in ``eval`` mode.

        Raises:
            ValueError: a file is missing, or the config names an unknown core.
        """
        description = read_description(folder, "SequenceModel")
        model = SequenceModel(
            from_json(description["agent"], SequenceModelConfig, KINDS),
            from_json(description["core"], CoreConfig, KINDS),
            num_classes=description["num_classes"],
            vocabulary=description["vocabulary"],
            input_dim=description["input_dim"],
        )
        read_weights(folder, model)
        return model.to(device).eval()


class SequenceStream(ModelStream):
    """A live sequence model: owns its memory, takes one step of every row at a time.

    Args:
        model: whose weights are used, as they are now.
        batch_size: rows that advance together.
    """

    def __init__(self, model: SequenceModel, batch_size: int) -> None:
        super().__init__(model.core, batch_size)
        self.model = model

    @overload
    def step(self, inputs: Tensor, is_first: First = None) -> Tensor: ...

    @overload
    def step(self, inputs: Numbers, is_first: First = None) -> np.ndarray: ...

    @torch.no_grad()
    def step(self, inputs: Tensor | Numbers, is_first: First = None) -> Tensor | np.ndarray:
        """Tokens ``[b]`` or floats ``[b, input_dim]`` of one step to logits ``[b, classes]``.

        Args:
            inputs: the step of every row: a tensor, or a NumPy array or a list.
            is_first: bool ``[b]``, or one bool for all rows; True clears that row before the step. None clears nothing.

        Returns:
            A tensor for a tensor, else a NumPy array.
        """
        if not isinstance(inputs, Tensor):
            floats = self.model.vocabulary is None
            return to_array(self.step(to_tensor(inputs, self.core.like, floats=floats), is_first))
        self.model.check(inputs, time=False)
        return self.model.decode(self.core.step(self.model.encode(inputs), is_first))
