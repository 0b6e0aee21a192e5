"""Settings of the hierarchical chunk memory; its equations are in ``core.py`` and ``attention.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from recollect.config import require, require_one_of, require_types
from recollect.cores.config import CoreConfig
from recollect.layers.config import Gate, feedforward_width

if TYPE_CHECKING:
    from torch import Tensor

    from recollect.cores.hcam.core import HierarchicalChunkMemory

Relevance = Literal["topk_softmax", "full_softmax"]
ChunkGradients = Literal["none", "call"]

BLOCK = 128
"""Least steps of a block. A call is computed in blocks, so that its cost is linear in its steps."""
SCORES = 2**21
"""Most attention scores of a row and a head in one block. The memory is projected once for each block, so blocks are as
long as the memory; this bound keeps the scores of very long memories from growing with the square."""
STREAM_GATHER_SHARE = 8
"""A step of a stream copies the k chosen chunks if they are at most this fraction (1 / 8) of the memory."""


@dataclass(frozen=True, kw_only=True)
class ChunkAttentionVariant:
    """Points at which paper and released code differ (defaults: the code), and options beyond both.

    The relevance always has the code's scale 1 / sqrt(f), which W_q can undo.
    """

    relevance: Relevance = "topk_softmax"
    """topk_softmax is over the k chosen chunks only (code), full_softmax over all, before the choice (paper)."""
    key_projection: bool = True
    """Whether the keys of chunks are multiplied by learned weights W_k (code) or used as they are (paper)."""
    chunk_positions: bool = True
    """Whether a sinusoid of their age is added to the steps of a chunk (code); the paper does not mention one."""
    gate: Gate = "residual"
    """Combination of the three parts of a layer with the stream: residual (paper), or gru, GTrXL's gate (appendix D.6).
    """
    tied_start: bool = False
    """Whether the weights of keys start as copies of those of queries, at both levels (ours): a query first reads
    similar chunks, which shortens the training until anything is recalled."""
    copying_start: bool = False
    """Whether outputs start as the inverses of values, W_o W_v = 1, in both attentions of a layer, so that stored steps
    are first read unchanged (ours; after the mimetic initialization of Trockman et al. 2024). Tasks whose answer is an
    item that was seen are learned many times sooner."""
    initial_scale: float = 1.0
    """Factor of the initial weights of both levels (ours; 1: as the code, of variance 2 / fan in). An untrained memory
    adds noise in every layer; with 0.4, torch's own scale, three layers learn to recall sooner."""
    relevance_heads: bool = False
    """Whether every head of the attention inside chunks has its own relevance and chooses its own chunks (ours). The
    number of weights is the same: the heads divide the features."""
    chunk_gradients: ChunkGradients = "none"
    """none: chunks are constants (paper and code). call (ours): chunks pass gradients as the window does, to the steps
    of the same call, and further where the caller does not detach the state."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "relevance", "gate", "chunk_gradients")
        require(self.initial_scale > 0, "initial_scale", self.initial_scale, "give a positive factor")

    def stored(self, steps: Tensor) -> Tensor:
        """Return steps as chunks store them: detached, or with their gradients."""
        return steps.detach() if self.chunk_gradients == "none" else steps

    @classmethod
    def paper(cls) -> Self:
        """Return the variant of Lampinen et al. 2021, section 2."""
        return cls(relevance="full_softmax", key_projection=False, chunk_positions=False)

    @classmethod
    def released(cls) -> Self:
        """Return the variant of the released code."""
        return cls()


@dataclass(frozen=True, kw_only=True)
class HierarchicalChunkMemoryConfig(CoreConfig):
    """Settings of :class:`HierarchicalChunkMemory`."""

    paper: ClassVar[str] = "Lampinen et al. 2021"
    remembers: ClassVar[str] = "a window, and chunks found by their summaries"

    dim: int = 128
    """Width of the residual stream and of the memory."""
    num_layers: int = 2
    """Layers of local attention, chunk memory and feed-forward (paper: 4)."""
    num_heads: int = 4
    """Heads of local attention and of attention inside chunks; must divide dim."""
    hidden_dim: int | None = None
    """Width of the feed-forward layer; 4 x dim when None."""
    dropout: float = 0.0
    """Dropout of the outputs of sub-layers and of the hidden layer, in training."""
    memory_len: int = 64
    """Steps that local attention sees before a step; at least chunk_len - 1."""
    chunk_len: int = 16
    """Steps of a chunk."""
    num_chunks: int = 16
    """Chunks that are kept; a new one replaces the oldest."""
    top_k: int = 8
    """Chunks that each step reads in every layer; all if there are fewer."""
    chunk_overlap: int = 0
    """Steps that consecutive chunks share: 0 or 1."""
    carry_across_episodes: bool = False
    """Keep the chunks when an episode ends."""
    reading: ChunkAttentionVariant = field(default_factory=ChunkAttentionVariant)
    """Where paper and released code differ: relevance, key projection, positions in chunks, gradients into chunks."""

    def __post_init__(self) -> None:
        for name in ("dim", "num_layers", "num_heads", "memory_len", "chunk_len", "num_chunks", "top_k"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least 1")
        feedforward_width(self.dim, self.hidden_dim)
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"must divide dim={self.dim}")
        require(0.0 <= self.dropout < 1.0, "dropout", self.dropout, "give a probability below 1")
        require(self.chunk_overlap in (0, 1), "chunk_overlap", self.chunk_overlap, "choose 0 or 1")
        remedy = f"give more than chunk_overlap={self.chunk_overlap}, or no chunk has a step of its own"
        require(self.chunk_len > self.chunk_overlap, "chunk_len", self.chunk_len, remedy)
        remedy = f"give at least chunk_len - 1 = {self.chunk_len - 1}: only local attention sees the chunk in progress"
        require(self.memory_len >= self.chunk_len - 1, "memory_len", self.memory_len, remedy)

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Gradients into chunks, and starts and choices that are in neither paper nor code."""
        reading = self.reading
        used = {
            "gradients into chunks": reading.chunk_gradients == "call",
            "tied start": reading.tied_start,
            "copying start": reading.copying_start,
            "relevance per head": reading.relevance_heads,
            f"initial scale {reading.initial_scale:g}": reading.initial_scale != 1.0,
        }
        return tuple(name for name, on in used.items() if on)

    @property
    def stride(self) -> int:
        """Steps from the start of one chunk to the start of the next."""
        return self.chunk_len - self.chunk_overlap

    def chunks_after(self, steps: Tensor) -> Tensor:
        """Return the number of complete chunks of an episode of so many steps."""
        return ((steps - self.chunk_overlap) // self.stride).clamp(min=0)

    @property
    def stream_gathers(self) -> bool:
        """Whether a step of a stream reads a copy of the chosen chunks instead of all chunks."""
        return STREAM_GATHER_SHARE * self.top_k <= self.num_chunks and not self.reading.relevance_heads

    @property
    def block(self) -> int:
        """Steps of one block of a call: as many as are stored, with at most ``SCORES`` scores.

        B steps read the c steps of n chunks and of B / stride new ones: B (n + B / stride) c <= SCORES.
        """
        stored = self.num_chunks * self.stride
        longest = (math.isqrt(stored**2 + 4 * SCORES * self.stride // self.chunk_len) - stored) // 2
        return max(BLOCK, self.memory_len, min(stored, longest))

    def completes(self, steps: Tensor | int) -> Any:
        """Whether the last of so many steps of an episode completes a chunk."""
        return (steps > self.chunk_overlap) & ((steps - self.chunk_overlap) % self.stride == 0)

    def in_progress(self, steps: Tensor) -> Tensor:
        """Return the steps of the chunk in progress after so many steps of an episode (a shared one included)."""
        return steps - self.chunks_after(steps) * self.stride

    @property
    def reach(self) -> int:
        """Steps back that the windows show: layers x window."""
        return self.num_layers * self.memory_len

    def build(self, input_dim: int) -> HierarchicalChunkMemory:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.hcam.core import HierarchicalChunkMemory

        return HierarchicalChunkMemory(self, input_dim)
