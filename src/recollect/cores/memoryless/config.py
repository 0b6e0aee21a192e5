"""Settings of the core without memory; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.layers.config import Activation, feedforward_width

if TYPE_CHECKING:
    from recollect.cores.memoryless.core import Memoryless


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
    """Activation of the feed-forward layers (relu in Lampinen et al. 2021)."""

    def __post_init__(self) -> None:
        require(self.dim > 0, "dim", self.dim, "give a positive width")
        require(self.num_layers > 0, "num_layers", self.num_layers, "give at least one layer")
        feedforward_width(self.dim, self.hidden_dim)
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")
        require_one_of(self, "activation")

    @property
    def reach(self) -> int:
        """Steps back that the core can see: none."""
        return 0

    def build(self, input_dim: int) -> Memoryless:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.memoryless.core import Memoryless

        return Memoryless(self, input_dim)
