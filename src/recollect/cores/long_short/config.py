"""Settings of the Long-Short Transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import WindowConfig
from recollect.layers.config import require_transformer

if TYPE_CHECKING:
    from recollect.cores.long_short.core import LongShortTransformer


@dataclass(frozen=True, kw_only=True)
class LongShortTransformerConfig(WindowConfig):
    """Settings of :class:`LongShortTransformer`."""

    paper: ClassVar[str] = "Zhu et al. 2021"
    remembers: ClassVar[str] = "a window, and landmarks of old segments"

    dropout: float = 0.0
    """Dropout of attention weights, hidden layers and the outputs of sub-layers, in training."""
    memory_len: int = 128
    """Steps that a query sees before itself; with causal=False, width of a home segment (LRA: 8)."""
    chunk_len: int = 16
    """Steps of a segment that is compressed to landmarks (causal form only)."""
    num_landmarks: int = 2
    """Landmarks per segment and head; with causal=False, of the whole sequence (LRA: 32)."""
    num_segments: int = 32
    """Finished segments whose landmarks are kept, oldest evicted first (causal form only)."""
    positions: Literal["relative", "none"] = "relative"
    """Position scores inside the window and over landmarks (causal form only)."""
    normalise_first: bool = False
    """Compress keys and values after LN_L, as the LRA code does, instead of before it, as the paper does."""
    causal: bool = True
    """Streaming form; False is the two-way form for whole sequences, through core.encode."""

    def __post_init__(self) -> None:
        require_transformer(self, "chunk_len", "num_landmarks", "num_segments")
        require_one_of(self, "positions")
        least = self.chunk_len - 1 if self.causal else 1
        reason = "or steps leave the window before their segment has landmarks" if self.causal else "one step"
        require(self.memory_len >= least, "memory_len", self.memory_len, f"give at least {least}, {reason}")

    def build(self, input_dim: int) -> LongShortTransformer:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.long_short.core import LongShortTransformer

        return LongShortTransformer(self, input_dim)
