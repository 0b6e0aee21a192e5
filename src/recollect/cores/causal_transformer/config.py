"""Settings of the causal Transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import WindowConfig
from recollect.layers.config import Activation

if TYPE_CHECKING:
    from recollect.cores.causal_transformer.core import CausalTransformer


@dataclass(frozen=True, kw_only=True)
class CausalTransformerConfig(WindowConfig):
    """Settings of :class:`CausalTransformer`."""

    paper: ClassVar[str] = "Vaswani et al. 2017"
    remembers: ClassVar[str] = "a window, as keys and values"

    positions: Literal["rotary", "bias", "none"] = "rotary"
    """rotary: turned queries and keys; bias: a learned number per head and offset; none."""
    activation: Activation = "gelu"
    """Activation of the feed-forward layer."""
    final_norm: bool = True
    """LayerNorm on the output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, "positions", "activation")
        width = self.dim // self.num_heads
        even = self.positions != "rotary" or width % 2 == 0
        require(even, "num_heads", self.num_heads, f"rotary positions need heads of even width, these have {width}")

    def build(self, input_dim: int) -> CausalTransformer:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.causal_transformer.core import CausalTransformer

        return CausalTransformer(self, input_dim)
