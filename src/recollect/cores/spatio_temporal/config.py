"""Settings of the spatio-temporal attention; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import MapConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.layers.config import require_sizes

if TYPE_CHECKING:
    from recollect.cores.spatio_temporal.core import SpatioTemporalAttention


Query = Literal["sequential", "one-shot"]


@dataclass(frozen=True, kw_only=True)
class SpatioTemporalAttentionConfig(MapConfig):
    """Settings of :class:`SpatioTemporalAttention`."""

    paper: ClassVar[str] = "George 2021"
    remembers: ClassVar[str] = "a window, as layer inputs"
    REMOVED: ClassVar[dict[str, None]] = {"hidden_dim": None}

    query: Query = "sequential"
    """Where queries come from: the core's own output of the step before, or the last dim inputs (one-shot)."""
    map_dim: int | None = 128
    """Channels of keys and values together, c_K + c_V, made by two convolutions; None takes the map's channels."""
    key_dim: int = 8
    """Channels of the keys, c_K."""
    num_heads: int = 4
    """Queries to the map, H, and heads of the temporal attention; must divide dim."""
    query_dim: int = 128
    """Width of the first hidden layer of the query network; its second is as wide as its output."""
    answer_dim: int = 512
    """Width of the hidden layer of the answer processor."""
    num_layers: int = 1
    """Layers of temporal attention and feed-forward, which is 4 x dim wide."""
    memory_len: int = 100
    """Steps that a step sees before itself, in every layer."""
    final_norm: bool = False
    """LayerNorm on the output, from which the next queries come: then nothing grows from step to step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "key_dim", "num_heads", "query_dim", "answer_dim", "num_layers", "memory_len")
        require_one_of(self, "query")
        remedy = f"leave some of map_dim={self.map_dim} to the values"
        require(self.map_dim is None or self.key_dim < self.map_dim, "key_dim", self.key_dim, remedy)
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"must divide dim={self.dim}")

    @property
    def reach(self) -> int | None:
        """Layers x window; no limit where queries depend on the last output."""
        return None if self.query == "sequential" else self.num_layers * self.memory_len

    @property
    def output_feedback_dim(self) -> int:
        """Width of the earlier output at the end of the inputs."""
        return self.dim if self.query == "one-shot" else 0

    @property
    def temporal(self) -> TransformerXLConfig:
        """Settings of the temporal attention."""
        return TransformerXLConfig(
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            memory_len=self.memory_len,
            relu_outputs=True,
            activation="relu",
            final_norm=self.final_norm,
        )

    def build(self, input_dim: int) -> SpatioTemporalAttention:
        """Make the core for inputs of width ``input_dim``, which must fit the map."""
        from recollect.cores.spatio_temporal.core import SpatioTemporalAttention

        return SpatioTemporalAttention(self, input_dim)
