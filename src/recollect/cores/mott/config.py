"""Settings of the spatial attention memory; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import MapConfig
from recollect.layers.config import require_sizes

if TYPE_CHECKING:
    from recollect.cores.mott.core import SpatialAttentionMemory


@dataclass(frozen=True, kw_only=True)
class SpatialAttentionMemoryConfig(MapConfig):
    """Settings of :class:`SpatialAttentionMemory`."""

    paper: ClassVar[str] = "Mott et al. 2019"
    remembers: ClassVar[str] = "a map and a vector"

    vision: Literal["recurrent", "feedforward"] = "recurrent"
    """Source of keys and values: a ConvLSTM, or a convolution alone."""
    map_dim: int = 128
    """Channels of keys and values together, c_K + c_V."""
    key_dim: int = 8
    """Channels of the keys, c_K."""
    kernel: int = 3
    """Side of the convolutions; odd."""
    frequencies: int = 4
    """U: frequencies of the basis along each axis."""
    num_heads: int = 4
    """Queries, H."""
    query_dim: int = 128
    """Width of the first hidden layer of the query network; its second is as wide as its output."""
    answer_dim: int = 512
    """Width of the hidden layer of the MLP in front of the LSTM."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "map_dim", "key_dim", "kernel", "frequencies", "num_heads", "query_dim", "answer_dim")
        require(self.kernel % 2 == 1, "kernel", self.kernel, "give an odd side: the map keeps its size")
        remedy = f"leave some of map_dim={self.map_dim} to the values"
        require(self.key_dim < self.map_dim, "key_dim", self.key_dim, remedy)
        require_one_of(self, "vision")

    def build(self, input_dim: int) -> SpatialAttentionMemory:
        """Make the core for inputs of width ``input_dim``, which must fit the map."""
        from recollect.cores.mott.core import SpatialAttentionMemory

        return SpatialAttentionMemory(self, input_dim)
