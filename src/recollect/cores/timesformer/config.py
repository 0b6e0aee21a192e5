"""Settings of TimeSformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import MapConfig
from recollect.layers.config import feedforward_width, require_sizes

if TYPE_CHECKING:
    from recollect.cores.timesformer.core import TimeSformer


SpaceTime = Literal["divided", "joint"]


@dataclass(frozen=True, kw_only=True)
class TimeSformerConfig(MapConfig):
    """Settings of :class:`TimeSformer`."""

    paper: ClassVar[str] = "Bertasius et al. 2021; with memory: George 2021"
    remembers: ClassVar[str] = "a window of maps"

    token_dim: int = 16
    """Width d of a token; a map with other channels is projected."""
    attention: SpaceTime = "divided"
    """divided: a token attends to its place in earlier frames, then to its own frame; joint: to all places of all
    frames at once."""
    num_layers: int = 1
    """Layers of attention and feed-forward."""
    num_heads: int = 4
    """Attention heads; must divide token_dim."""
    hidden_dim: int | None = None
    """Width of the feed-forward layer; 4 x token_dim when None."""
    memory_len: int = 100
    """Frames that a frame sees before itself, in every layer."""
    time_rows: int | None = None
    """Rows of the table of times; memory_len + 1 when None, and no more are read (George 2021 counts 180)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "token_dim", "num_layers", "num_heads", "memory_len")
        require_one_of(self, "attention")
        divides = self.token_dim % self.num_heads == 0
        require(divides, "num_heads", self.num_heads, f"must divide token_dim={self.token_dim}")
        feedforward_width(self.token_dim, self.hidden_dim)
        least = self.memory_len + 1
        remedy = f"give at least {least} for memory_len={self.memory_len}, or None"
        require(self.time_rows is None or self.time_rows >= least, "time_rows", self.time_rows, remedy)

    @property
    def reach(self) -> int:
        """Steps back that the core can see: layers x window."""
        return self.num_layers * self.memory_len

    def build(self, input_dim: int) -> TimeSformer:
        """Make the core for inputs of width ``input_dim``, which must fit the map."""
        from recollect.cores.timesformer.core import TimeSformer

        return TimeSformer(self, input_dim)
