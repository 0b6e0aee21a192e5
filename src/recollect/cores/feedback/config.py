"""Settings of the Feedback Transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require_one_of
from recollect.cores.config import CoreConfig
from recollect.layers.config import require_transformer

if TYPE_CHECKING:
    from recollect.cores.feedback.core import FeedbackTransformer


@dataclass(frozen=True, kw_only=True)
class FeedbackTransformerConfig(CoreConfig):
    """Settings of :class:`FeedbackTransformer`."""

    paper: ClassVar[str] = "Fan et al. 2020"
    remembers: ClassVar[str] = "a window of one vector for all layers"

    dim: int = 128
    """Width of the layers, the memories and the output."""
    num_layers: int = 2
    """Layers."""
    num_heads: int = 4
    """Attention heads; they share the width."""
    hidden_dim: int | None = None
    """Width inside a feed-forward block; 4 * dim when None."""
    dropout: float = 0.0
    """Dropout of attention weights and feed-forward blocks, in training."""
    memory_len: int = 64
    """Steps seen before the current one."""
    norm: Literal["pre", "post"] = "post"
    """Where the norms stand: before every block, or after its residual."""
    share_projections: bool = True
    """One key and one value projection for all layers, as in the paper, or one per layer."""
    official_empty: bool = False
    """Let softmax see the empty slots before an episode's start as zeros, as the released code does."""

    def __post_init__(self) -> None:
        require_transformer(self, "memory_len")
        require_one_of(self, "norm")

    def build(self, input_dim: int) -> FeedbackTransformer:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.feedback.core import FeedbackTransformer

        return FeedbackTransformer(self, input_dim)
