"""Memoryless: the ablation. The output at step t depends on the input at step t alone.

    x  = W i + b                    the input i, or x = i where the widths agree
    x <- x + FF_l(norm_l(x))        l = 1 .. L
    y  = norm(x)

These are the feed-forward blocks of a pre-norm Transformer, without attention.

Paper: none; an agent without memory is the baseline of every paper here.

Differs: nothing; width and depth follow the other cores.
"""

from typing import NamedTuple

from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, companion
from recollect.cores.memoryless.config import MemorylessConfig
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection


class MemorylessState(NamedTuple):
    """A state without numbers, for b streams."""

    nothing: Tensor  # b 0


class Memoryless(MemoryCore[MemorylessState]):
    """Feed-forward layers along the last axis; equations are at the top of this module."""

    stream_type = companion("recollect.cores.memoryless.stream:MemorylessStream")
    reference_unroll = companion("recollect.cores.memoryless.reference:reference_unroll")
    runs_in_float16 = True

    def __init__(self, config: MemorylessConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        hidden_dim = feedforward_width(dim, config.hidden_dim)
        self.input_shape = (input_dim,)
        self.output_shape = (dim,)
        self.project = input_projection(input_dim, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim), FeedForward(dim, hidden_dim, activation=config.activation, dropout=config.dropout)
            )
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(dim)

    def initial_state(self, batch_size: int) -> MemorylessState:
        """Return a state without numbers."""
        return MemorylessState(self.zeros(batch_size, 0))

    def unroll(self, inputs: Tensor, state: MemorylessState, is_first: Tensor) -> tuple[Tensor, MemorylessState]:
        """Compute all steps at once."""
        x = self.project(inputs)
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x), state

    def flops_per_step(self) -> int:
        """Count the operations of a step: ``2 i d`` for a projected input, and ``4 d hidden_dim`` per layer."""
        return sum(2 * child.weight.numel() for child in self.modules() if isinstance(child, nn.Linear))
