"""Sequence encoders: they read a whole row at once, in both directions, and keep no state.

    outputs, summary = encoder(inputs, padding)

    inputs    float [b, t, input_dim], positions included      padding   bool [b, t], True at steps to be ignored
    outputs   float [b, t, d], zeros at padded steps           summary   float [b, d], or None

swin-v2, which merges patches, has outputs of fewer steps.

1. The content of padded steps changes nothing, and neither does the number of padded steps after a row.
2. Rows never mix.

They are no memory cores: they have no stream. A core with a two-way form becomes an encoder by a file that passes the
row on (``tlb.py``, ``long_short.py``).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.encoders.config import StackConfig
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, init_xavier, input_projection


class Encoding(NamedTuple):
    """Outputs of an encoder for whole sequences."""

    outputs: Tensor
    """``[b, t, d]``; zeros at padded steps."""
    summary: Tensor | None
    """``[b, d]``: the encoder's own summary of each row; None where the caller has to pool the outputs."""


def require_rows(inputs: Tensor, padding: Tensor | None) -> None:
    """Raise ``ValueError`` unless inputs are rows ``[b, t, ...]`` of at least one step, and padding fits them."""
    shape = list(inputs.shape[:2])
    if len(shape) < 2 or shape[1] == 0:
        raise ValueError(f"inputs have shape {list(inputs.shape)}: give rows [b, t, ...] of at least one step")
    if padding is not None and (padding.dtype != torch.bool or list(padding.shape) != shape):
        raise ValueError(
            f"padding is {padding.dtype} {list(padding.shape)}; it must be bool {shape}: True at steps to be ignored"
        )


class SequenceEncoder(nn.Module, ABC):
    """Base of all encoders."""

    output_dim: int
    """d."""

    @abstractmethod
    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode whole rows, each step with what stands before and after it.

        Args:
            inputs: float ``[b, t, input_dim]``.
            padding: bool ``[b, t]``, True at steps to be ignored; None pads nothing.

        Raises:
            ValueError: rows without a step, or padding of another shape or dtype (:func:`require_rows`).
        """

    def summary_attention(self, inputs: Tensor, *, across_chunks: bool = False) -> Tensor:
        """Return how much attention the summary of a row gives to each of its steps, ``[b, t]``.

        Args:
            inputs: float ``[b, t, input_dim]``.
            across_chunks: weights of one softmax over the whole row, also where the encoder reads it in chunks.

        Raises:
            ValueError: the summary of this encoder does not attend to single steps.
        """
        raise ValueError(f"{type(self).__name__} has no attention from its summary to single steps: use vit or vit-tlb")


class Mixer(nn.Module, ABC):
    """Part of a layer in which the steps of a row read each other."""

    @abstractmethod
    def forward(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        """Mix information between the steps of rows ``[b, t, d]``, ``-> [b, t, d]``.

        Padded steps are not read, and their outputs are not used.
        """


class StackEncoder(SequenceEncoder):
    """Pre-norm layers of mixers and feed-forwards, and a final norm."""

    def __init__(self, config: StackConfig, input_dim: int, length: int) -> None:
        super().__init__()
        self.config, self.output_dim = config, config.dim
        hidden, layers = feedforward_width(config.dim, config.hidden_dim), range(config.num_layers)
        self.project = input_projection(input_dim, config.dim)
        self.mixers = nn.ModuleList(config.mixer(length) for _ in layers)
        self.forwards = nn.ModuleList(FeedForward(config.dim, hidden, dropout=config.dropout) for _ in layers)
        self.mixer_norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in layers)
        self.forward_norms = nn.ModuleList(nn.LayerNorm(config.dim) for _ in layers)
        self.final_norm = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)
        init_xavier(self)

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Encoding:
        """Encode whole rows by the layers of the stack, as every :class:`SequenceEncoder` does."""
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
