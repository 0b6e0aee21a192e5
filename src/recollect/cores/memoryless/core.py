"""Memoryless: the ablation. The output at step t depends on the input at step t and on nothing else.

    x <- x + FF_l(norm_l(x))        l = 1 .. L
    y  = norm(x)

Every claim about a memory needs the same network without it: the pre-norm feed-forward half of a Transformer.

Paper: none; the chance level that an agent without memory reaches is the baseline of every paper here.

Differs: nothing to differ from; width and depth follow the other cores.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.layers.config import Activation, feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection


class MemorylessState(NamedTuple):
    """Nothing, for b streams."""

    nothing: Tensor  # b 0


@dataclass(frozen=True, kw_only=True)
class MemorylessConfig(CoreConfig):
    """Settings of :class:`Memoryless`."""

    paper: ClassVar[str] = "the ablation"
    remembers: ClassVar[str] = "nothing"

    dim: int = 128
    """Width of the layers and of the output."""
    num_layers: int = 2
    """Feed-forward layers."""
    hidden_dim: int | None = None
    """Width inside a feed-forward layer; 4 * dim when None."""
    dropout: float = 0.0
    """Dropout in the feed-forward layers, in training."""
    activation: Activation = "gelu"
    """Of the feed-forward layers (relu in Lampinen et al. 2021)."""

    def __post_init__(self) -> None:
        require(self.dim > 0, "dim", self.dim, "give a positive width")
        require(self.num_layers > 0, "num_layers", self.num_layers, "give at least one layer")
        feedforward_width(self.dim, self.hidden_dim)
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")
        require_one_of(self, "activation")

    @property
    def reach(self) -> int:
        """The present step alone."""
        return 0

    def build(self, input_dim: int) -> "Memoryless":
        """Make the core for inputs of width ``input_dim``."""
        return Memoryless(self, input_dim)


class Memoryless(MemoryCore[MemorylessState]):
    """Feed-forward layers along the last axis: equations at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs.
    """

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
        """No bytes."""
        return MemorylessState(self.zeros(batch_size, 0))

    def unroll(self, inputs: Tensor, state: MemorylessState, is_first: Tensor) -> tuple[Tensor, MemorylessState]:
        """All steps at once; ``is_first`` has nothing to clear."""
        x = self.project(inputs)
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x), state

    def flops_per_step(self) -> int:
        """``2 i d`` for a projected input, and ``4 d hidden_dim`` per layer."""
        return sum(2 * child.weight.numel() for child in self.modules() if isinstance(child, nn.Linear))
