"""Settings of Transformer-XL and GTrXL; their equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import WindowConfig
from recollect.layers.config import Activation, Gate

if TYPE_CHECKING:
    from recollect.cores.transformer_xl.core import TransformerXL


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(WindowConfig):
    """Settings of :class:`TransformerXL`. ``gate=gru relu_outputs=True`` is GTrXL."""

    paper: ClassVar[str] = "Dai et al. 2019; gated: Parisotto et al. 2020"
    remembers: ClassVar[str] = "a window, as layer inputs"

    gate: Gate = "residual"
    """Combination of a sub-layer with the stream: residual adds, gru is GTrXL's gate."""
    relu_outputs: bool = False
    """ReLU on the outputs of sub-layers before they join (GTrXL and the code behind George 2021)."""
    positions: Literal["relative", "learned", "none"] = "relative"
    """relative: sinusoid with learned biases; learned: trainable table of offsets; none."""
    top_k: int | None = None
    """Attend only to the k best steps per query and head (Lampinen et al. 2021, D.8); all when None."""
    activation: Activation = "gelu"
    """Activation of the feed-forward layer (relu in Lampinen et al. 2021 and George 2021)."""
    final_norm: bool = False
    """LayerNorm on the output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, "gate", "positions", "activation")
        require(self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "give at least 1, or None for all")

    def build(self, input_dim: int) -> TransformerXL:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.transformer_xl.core import TransformerXL

        return TransformerXL(self, input_dim)
