"""Settings of the causal Transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.layers.config import Activation, require_transformer

if TYPE_CHECKING:
    from recollect.cores.causal_transformer.core import CausalTransformer


@dataclass(frozen=True, kw_only=True)
class CausalTransformerConfig(CoreConfig):
    """Settings of :class:`CausalTransformer`."""

    paper: ClassVar[str] = "Vaswani et al. 2017"
    remembers: ClassVar[str] = "a window, as keys and values"

    dim: int = 128
    """Width of the residual stream."""
    num_layers: int = 2
    """Layers of attention and feed-forward."""
    num_heads: int = 4
    """Attention heads; must divide dim, into heads of even width for rotary positions."""
    hidden_dim: int | None = None
    """Width of the feed-forward layer; 4 x dim when None."""
    memory_len: int = 64
    """Steps that a step sees before itself, in every layer."""
    positions: Literal["rotary", "bias", "none"] = "rotary"
    """rotary: turned queries and keys; bias: a learned number per head and offset; none."""
    activation: Activation = "gelu"
    """Of the feed-forward layer."""
    final_norm: bool = True
    """LayerNorm on the output."""
    dropout: float = 0.0
    """On sub-layer outputs and the hidden layer, in training."""

    def __post_init__(self) -> None:
        require_transformer(self, "memory_len")
        require_one_of(self, "positions", "activation")
        width = self.dim // self.num_heads
        even = self.positions != "rotary" or width % 2 == 0
        require(even, "num_heads", self.num_heads, f"rotary positions need heads of even width, these have {width}")

    @property
    def reach(self) -> int:
        """Layers x window."""
        return self.num_layers * self.memory_len

    def build(self, input_dim: int) -> CausalTransformer:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.causal_transformer.core import CausalTransformer

        return CausalTransformer(self, input_dim)
