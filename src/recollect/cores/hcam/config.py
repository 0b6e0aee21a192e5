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
"""Steps that are processed at once, if window and memory are not longer: the cost of a call is linear in its steps."""
SCORES = 2**21
"""Of a row and a head, with the steps in all chunks: a block grows with the memory until it makes so many at once. What
is stored is projected once for each block, so that short blocks of a large memory cost time; but a block as long as a
memory of a thousand steps has won what there is to win, and from there on its scores would grow with the square."""
STREAM_GATHER_SHARE = 8
"""A step of a stream copies the k chosen chunks if they are at most one over this of the memory."""


@dataclass(frozen=True, kw_only=True)
class ChunkAttentionVariant:
    """Points at which paper and released code differ, the defaults being those of the code; and what goes beyond both.

    The scale 1 / sqrt(f) of the relevance, which the paper does not have, is always there: W_q can undo it.
    """

    relevance: Relevance = "topk_softmax"
    """topk_softmax runs over the k chosen chunks only (code), full_softmax over all, before the choice (paper)."""
    key_projection: bool = True
    """Whether the keys of chunks pass through learned weights W_k (code) or are used as they are (paper)."""
    chunk_positions: bool = True
    """Whether a sinusoid of their age in the chunk is added to its steps (code); the paper does not mention one."""
    gate: Gate = "residual"
    """How all three parts of a layer join the stream: residual adds (paper), gru is GTrXL's gate (appendix D.6)."""
    tied_start: bool = False
    """Whether the weights of keys begin as copies of those of queries, at both levels, so that at first a chunk is read
    if it is like the query (ours). It shortens the time until anything is recalled."""
    copying_start: bool = False
    """Whether outputs begin as the inverses of values, W_o W_v = 1, in both attentions of a layer, so that at first a
    step is given what was stored as it is (ours; after the mimetic initialization of Trockman et al. 2024). Where an
    answer is an item that was seen, and one layer looks for what the layer before has found, it is learned many times
    sooner."""
    initial_scale: float = 1.0
    """Factor of the weights of both levels at the start (ours; 1: as the code, of variance 2 / fan in). What a memory
    adds before it has learned anything drowns the step that asks, more so in every further layer; 0.4 is torch's own
    width, and three layers recall sooner."""
    relevance_heads: bool = False
    """Whether every head of the attention inside chunks has a relevance of its own (ours): one may look for chunks that
    hold what another one does not ask for. As many weights as one relevance has, whose features the heads share."""
    chunk_gradients: ChunkGradients = "none"
    """none: chunks are constants (paper and code). call (ours): they pass gradients as the window does, to the steps
    of the same call, and further where the caller does not cut the state. What is stored is then trained by its use."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "relevance", "gate", "chunk_gradients")
        require(self.initial_scale > 0, "initial_scale", self.initial_scale, "give a positive factor")

    def stored(self, steps: Tensor) -> Tensor:
        """Steps as chunks hold them: constants, or with their gradients."""
        return steps.detach() if self.chunk_gradients == "none" else steps

    @classmethod
    def paper(cls) -> Self:
        """As in Lampinen et al. 2021, section 2."""
        return cls(relevance="full_softmax", key_projection=False, chunk_positions=False)

    @classmethod
    def released(cls) -> Self:
        """As in the released code."""
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
    """On what sub-layers add and on the hidden layer, in training."""
    memory_len: int = 64
    """Steps that local attention sees before a step; at least chunk_len - 1."""
    chunk_len: int = 16
    """Steps of a chunk."""
    num_chunks: int = 16
    """Chunks that are kept; a new one takes the place of the oldest."""
    top_k: int = 8
    """Chunks that each step reads, in every layer; all when there are fewer."""
    chunk_overlap: int = 0
    """Steps that consecutive chunks share: 0 or 1."""
    carry_across_episodes: bool = False
    """Keep the chunks when an episode ends."""
    reading: ChunkAttentionVariant = field(default_factory=ChunkAttentionVariant)
    """Where paper and released code differ: relevance, key projection, positions in chunks; and whether gradients enter
    chunks."""

    def __post_init__(self) -> None:
        for name in ("dim", "num_layers", "num_heads", "memory_len", "chunk_len", "num_chunks", "top_k"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least 1")
        feedforward_width(self.dim, self.hidden_dim)
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"must divide dim={self.dim}")
        require(0.0 <= self.dropout < 1.0, "dropout", self.dropout, "give a probability below 1")
        require(self.chunk_overlap in (0, 1), "chunk_overlap", self.chunk_overlap, "choose 0 or 1")
        require(
            self.chunk_len > self.chunk_overlap,
            "chunk_len",
            self.chunk_len,
            f"give more than chunk_overlap={self.chunk_overlap}, or no chunk has a step of its own",
        )
        require(
            self.memory_len >= self.chunk_len - 1,
            "memory_len",
            self.memory_len,
            f"give at least chunk_len - 1 = {self.chunk_len - 1}: steps of the chunk in progress are in no chunk yet, "
            "so only local attention sees them",
        )

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Gradients into chunks."""
        return ("gradients into chunks",) if self.reading.chunk_gradients == "call" else ()

    @property
    def stride(self) -> int:
        """Steps from the start of one chunk to the start of the next."""
        return self.chunk_len - self.chunk_overlap

    def chunks_after(self, steps: Tensor) -> Tensor:
        """Complete chunks of an episode of so many steps."""
        return ((steps - self.chunk_overlap) // self.stride).clamp(min=0)

    @property
    def stream_gathers(self) -> bool:
        """Whether a step of a stream looks into a copy of the chosen chunks, and not into all of them."""
        return STREAM_GATHER_SHARE * self.top_k <= self.num_chunks and not self.reading.relevance_heads

    @property
    def block(self) -> int:
        """Steps that a call processes at once: as many as are stored, or fewer where these would be many.

        B steps meet the c steps of n chunks and of B / stride new ones: B (n + B / stride) c <= SCORES.
        """
        stored = self.num_chunks * self.stride
        longest = (math.isqrt(stored**2 + 4 * SCORES * self.stride // self.chunk_len) - stored) // 2
        return max(BLOCK, self.memory_len, min(stored, longest))

    def completes(self, steps: Tensor | int) -> Any:
        """Whether the last of so many steps (a number or many) of an episode completes a chunk."""
        return (steps > self.chunk_overlap) & ((steps - self.chunk_overlap) % self.stride == 0)

    def in_progress(self, steps: Tensor) -> Tensor:
        """Steps of the chunk in progress after so many steps of an episode (a shared one included)."""
        return steps - self.chunks_after(steps) * self.stride

    @property
    def reach(self) -> int:
        """Layers x window."""
        return self.num_layers * self.memory_len

    def build(self, input_dim: int) -> HierarchicalChunkMemory:
        """Make the core for inputs of width ``input_dim``."""
        from recollect.cores.hcam.core import HierarchicalChunkMemory

        return HierarchicalChunkMemory(self, input_dim)
