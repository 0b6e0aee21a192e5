"""Settings of the Feedback Transformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require_one_of
from recollect.cores.config import WindowConfig

if TYPE_CHECKING:
    from recollect.cores.feedback.core import FeedbackTransformer


@dataclass(frozen=True, kw_only=True)
class FeedbackTransformerConfig(WindowConfig):
    """Settings of :class:`FeedbackTransformer`."""

    paper: ClassVar[str] = "Fan et al. 2020"
    remembers: ClassVar[str] = "a window of one vector for all layers"

    dropout: float = 0.0
    """Dropout of attention weights and feed-forward blocks, in training."""
    norm: Literal["pre", "post"] = "post"
    """Position of the norms: before every block, or after its residual."""
    share_projections: bool = True
    """One key and one value projection for all layers, as in the paper, or one per layer."""
    official_empty: bool = False
    """Let softmax see the empty slots before an episode's start as zeros, as the released code does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, "norm")

    @property
    def reach(self) -> None:
        """None: every memory contains the memories before it."""

    def build(self, input_dim: int) -> FeedbackTransformer:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.feedback.core import FeedbackTransformer

        return FeedbackTransformer(self, input_dim)
