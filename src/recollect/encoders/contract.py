"""What a sequence encoder is: it reads a whole row at once, both ways, and keeps nothing.

    outputs, summary = encoder(inputs, padding)

    inputs    float [b, t, input_dim], positions included      padding   bool [b, t], True where there is nothing
    outputs   float [b, t, d], zeros at padded steps           summary   float [b, d], or None

1. What stands in padded steps changes nothing, and neither does the number of padded steps that follow a row.
2. Rows never mix.

These are no memory cores: there is no state and no stream. A core that can look both ways inside its chunks becomes an
encoder by a file that hands the row over (``tlb.py``, ``long_short.py``).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from recollect.config import CheckedConfig, is_integer, require, with_check
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, init_xavier, input_projection


class Encoding(NamedTuple):
    """What an encoder makes of rows."""

    outputs: Tensor
    """``[b, t, d]``; zeros at padded steps."""
    summary: Tensor | None
    """``[b, d]``: what the encoder itself says of the whole row; None where the reader has to pool the outputs."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(CheckedConfig, ABC):
    """Settings of an encoder."""

    paper: ClassVar[str] = "-"
    """Authors and year, for tables."""
    has_summary: ClassVar[bool] = False
    """Whether it sums up the row itself, so that nobody has to pool its outputs."""
    reads_patches: ClassVar[bool] = False
    """Whether it reads the patches of square pictures as they are, and embeds and places them itself; nothing can be
    padded then."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Here, so that no encoder has to think of it, whoever wrote it.
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls):
            cls.build = with_check(_require_sizes, vars(cls)["build"])  # type: ignore[method-assign]

    @abstractmethod
    def build(self, input_dim: int, length: int) -> "SequenceEncoder":
        """Make the encoder for inputs of width ``input_dim`` and rows of at most ``length`` steps."""


def _require_sizes(config: EncoderConfig, input_dim: int, length: int) -> None:
    for name, size in (("input_dim", input_dim), ("length", length)):
        require(
            is_integer(size) and size >= 1, name, size, f"{type(config).__name__} reads rows of at least one number"
        )


def require_rows(inputs: Tensor, padding: Tensor | None) -> None:
    """Raise ``ValueError`` unless these are rows of at least one step, and padding of them.

    Args:
        inputs: ``[b, t, ...]``, tokens or floats.
        padding: bool ``[b, t]``, or None.
    """
    shape = list(inputs.shape[:2])
    if len(shape) < 2 or shape[1] == 0:
        raise ValueError(f"inputs have shape {list(inputs.shape)}: give rows [b, t, ...] of at least one step")
    if padding is not None and (padding.dtype != torch.bool or list(padding.shape) != shape):
        raise ValueError(
            f"padding is {padding.dtype} {list(padding.shape)}; it must be bool {shape}: True where there is nothing"
        )


class SequenceEncoder(nn.Module, ABC):
    """Base of all encoders."""

    output_dim: int
    """d."""

    @abstractmethod
    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Read whole rows.

        Args:
            inputs: float ``[b, t, input_dim]``.
            padding: bool ``[b, t]``, True where there is nothing; None pads nothing.

        Raises:
            ValueError: rows without a step, or padding of another shape or dtype (:func:`require_rows`).
        """

    def summary_attention(self, inputs: Tensor) -> Tensor:
        """How much attention the summary of a row gives to each of its steps, ``[b, t]``, for pictures of it.

        Raises:
            ValueError: this encoder sums up without attention to single steps.
        """
        raise ValueError(
            f"{type(self).__name__} has no attention from its summary to single steps: take vit or vit-tlb"
        )


class Mixer(nn.Module, ABC):
    """What lets the steps of a row see each other."""

    @abstractmethod
    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """``[b, t, d] -> [b, t, d]``; padded steps are not read, and what comes out there does not matter."""


@dataclass(frozen=True, kw_only=True)
class StackConfig(EncoderConfig):
    """Layers of a mixer and a feed-forward, pre-norm: ``x = x + mix(LN(x)); x = x + FF(LN(x))``."""

    dim: int = 64
    """Width of the encoder and of its outputs."""
    num_layers: int = 2
    """Layers."""
    num_heads: int = 2
    """Attention heads; divides dim."""
    hidden_dim: int | None = None
    """Width of the feed-forwards; None: 4 * dim."""
    dropout: float = 0.0
    """Probability of dropping what a mixer or a feed-forward adds, and its hidden layer, in training."""

    def __post_init__(self) -> None:
        for name in ("dim", "num_layers", "num_heads"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"choose a divisor of dim={self.dim}")
        feedforward_width(self.dim, self.hidden_dim)
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")

    @abstractmethod
    def mixer(self, length: int) -> Mixer:
        """A new mixer for rows of at most ``length`` steps."""

    def build(self, input_dim: int, length: int) -> "StackEncoder":
        """Make the encoder."""
        return StackEncoder(self, input_dim, length)


class StackEncoder(SequenceEncoder):
    """Pre-norm layers around a mixer, and a last norm.

    Args:
        config: settings, and what mixes.
        input_dim: width of the inputs.
        length: most steps of a row.
    """

    def __init__(self, config: StackConfig, input_dim: int, length: int) -> None:
        super().__init__()
        self.config, self.output_dim = config, config.dim
        hidden = feedforward_width(config.dim, config.hidden_dim)
        self.project = input_projection(input_dim, config.dim)
        self.mixers = nn.ModuleList(config.mixer(length) for _ in range(config.num_layers))
        self.forwards = nn.ModuleList(
            FeedForward(config.dim, hidden, dropout=config.dropout) for _ in range(config.num_layers)
        )
        self.mixer_norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(config.num_layers))
        self.forward_norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)
        init_xavier(self)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """See :class:`SequenceEncoder`."""
        require_rows(inputs, padding)
        if padding is not None:
            inputs = torch.where(padding[..., None], 0.0, inputs)
        x = self.project(inputs)
        layers = zip(self.mixer_norms, self.mixers, self.forward_norms, self.forwards, strict=True)
        for mixer_norm, mixer, forward_norm, forward in layers:
            x = x + self.dropout(mixer(mixer_norm(x), padding))
            x = x + forward(forward_norm(x))
        x = self.final_norm(x)
        return Encoding(x if padding is None else torch.where(padding[..., None], 0.0, x), None)
