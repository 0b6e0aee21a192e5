"""Settings of the instructed transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.cores.tlb.config import TemporalLatentBottleneckConfig, TemporalLatentBottleneckVariant

if TYPE_CHECKING:
    from recollect.cores.instructed.core import InstructedTransformer


@dataclass(frozen=True, kw_only=True)
class InstructedTransformerConfig(CoreConfig):
    """Settings of :class:`InstructedTransformer`."""

    paper: ClassVar[str] = "Didolkar et al. 2022"
    remembers: ClassVar[str] = "slots, one chunk and its instruction"
    reads_words: ClassVar[bool] = True

    dim: int = 128
    """Width of both streams, and of the outputs."""
    num_layers: int = 2
    """Self-attention layers of the fast stream."""
    num_heads: int = 4
    """Attention heads."""
    hidden_dim: int | None = None
    """Width of the feed-forwards; 4 x dim when None."""
    self_per_cross: int = 1
    """R: self-attention layers to one cross-attention layer."""
    chunk_len: int = 16
    """K: steps of a chunk."""
    num_slots: int = 5
    """N: vectors of the slow state."""
    dropout: float = 0.0
    """Dropout of attention weights, hidden layers and the outputs of sub-layers, in training."""
    feedback: Literal["top_down", "none"] = "top_down"
    """Whether the fast stream reads the slots; ``none`` is a Transformer over the running chunk alone."""
    words: int = 0
    """m: words of an instruction, last in an input; 0: no instruction."""
    word_dim: int = 32
    """w: numbers of a word."""
    details: TemporalLatentBottleneckVariant = field(default_factory=TemporalLatentBottleneckVariant)
    """Choices that the paper leaves open; ``detach_every`` must be None."""

    def __post_init__(self) -> None:
        require_one_of(self, "feedback")
        require(self.words >= 0, "words", self.words, "give the number of words, or 0 for none")
        require(self.word_dim > 0, "word_dim", self.word_dim, "give a positive width")
        cut = self.details.detach_every
        require(cut is None, "details.detach_every", cut, "gradients go through all chunks here: give None")
        _ = self.inner  # checks the others

    @property
    def inner(self) -> TemporalLatentBottleneckConfig:
        """Config of the temporal latent bottleneck that runs words and steps."""
        return TemporalLatentBottleneckConfig(
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=self.hidden_dim,
            self_per_cross=self.self_per_cross,
            chunk_len=self.chunk_len,
            num_slots=self.num_slots,
            dropout=self.dropout,
            positions="none",
            feedback=self.feedback,
            details=self.details,
        )

    @property
    def reach(self) -> int | None:
        """The running chunk if no slots are read; None with slots."""
        return self.chunk_len if self.feedback == "none" else None

    def build(self, input_dim: int) -> InstructedTransformer:
        """Build the core."""
        from recollect.cores.instructed.core import InstructedTransformer

        return InstructedTransformer(self, input_dim)
