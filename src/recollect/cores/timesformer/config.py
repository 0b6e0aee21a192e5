"""Settings of TimeSformer; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.layers.config import feedforward_width, require_map, require_map_of, require_sizes

if TYPE_CHECKING:
    from recollect.cores.timesformer.core import TimeSformer


SpaceTime = Literal["divided", "joint"]


@dataclass(frozen=True, kw_only=True)
class TimeSformerConfig(CoreConfig):
    """Settings of :class:`TimeSformer`."""

    paper: ClassVar[str] = "Bertasius et al. 2021; with memory: George 2021"
    remembers: ClassVar[str] = "a window of maps"
    reads_map: ClassVar[bool] = True

    dim: int = 256
    """Width of the output: of the linear map behind the tokens, and of the inputs after the map."""
    grid: tuple[int, int] = (1, 1)
    """Rows and columns of the map."""
    channels: int | None = None
    """Channels c of the map; inputs after its y * x * c go to the output unchanged. None: all inputs are the map's."""
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
        require_sizes(self, "dim", "token_dim", "num_layers", "num_heads", "memory_len")
        require_map(self.grid, self.channels)
        require_one_of(self, "attention")
        divides = self.token_dim % self.num_heads == 0
        require(divides, "num_heads", self.num_heads, f"must divide token_dim={self.token_dim}")
        feedforward_width(self.token_dim, self.hidden_dim)
        least = self.memory_len + 1
        remedy = f"give at least {least} for memory_len={self.memory_len}, or None"
        require(self.time_rows is None or self.time_rows >= least, "time_rows", self.time_rows, remedy)

    @property
    def reach(self) -> int:
        """Layers x window."""
        return self.num_layers * self.memory_len

    def require_map_of(self, shape: tuple[int, int, int]) -> None:
        """Raise ``ValueError`` unless ``grid`` and ``channels`` are those of a map of this shape."""
        require_map_of(self.grid, self.channels, shape)

    def build(self, input_dim: int) -> TimeSformer:
        """Make the core for inputs of width ``input_dim``.

        Raises:
            ValueError: the width does not fit the map, or the other inputs do not fit into the output.
        """
        from recollect.cores.timesformer.core import TimeSformer

        return TimeSformer(self, input_dim)
