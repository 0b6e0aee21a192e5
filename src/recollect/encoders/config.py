"""Settings of all encoders; importable without torch. The modules beside this file have equations and papers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from recollect.config import CheckedConfig, is_integer, require, require_one_of, with_check
from recollect.cores.long_short.config import LongShortTransformerConfig
from recollect.cores.tlb.config import TemporalLatentBottleneckConfig
from recollect.layers.config import require_sizes, require_transformer

if TYPE_CHECKING:
    from recollect.encoders.contract import Mixer, SequenceEncoder, StackEncoder
    from recollect.encoders.long_short import TwoWayLongShort
    from recollect.encoders.swin_v2 import SwinV2
    from recollect.encoders.tlb import TwoWayTLB
    from recollect.encoders.vit import ViT
    from recollect.encoders.vit_tlb import ViTTLB


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(CheckedConfig, ABC):
    """Settings of an encoder."""

    paper: ClassVar[str] = "-"
    """Authors and year, for tables."""
    has_summary: ClassVar[bool] = False
    """Whether the encoder returns a summary of each row, so that its outputs need not be pooled."""
    reads_patches: ClassVar[bool] = False
    """Whether it reads the raw patches of square images, and embeds and places them itself; it takes no padding."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The check is added here, so that a subclass cannot forget it.
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls):
            cls.build = with_check(_require_input_sizes, vars(cls)["build"])  # type: ignore[method-assign]

    @abstractmethod
    def build(self, input_dim: int, length: int) -> SequenceEncoder:
        """Make the encoder for inputs of width ``input_dim`` and rows of at most ``length`` steps."""


def _require_input_sizes(config: EncoderConfig, input_dim: int, length: int) -> None:
    remedy = f"{type(config).__name__} reads rows of at least one number"
    for name, size in (("input_dim", input_dim), ("length", length)):
        require(is_integer(size) and size >= 1, name, size, remedy)


@dataclass(frozen=True, kw_only=True)
class StackConfig(EncoderConfig):
    """Layers of a mixer and a feed-forward, pre-norm: ``x = x + mix(LN(x)); x = x + FF(LN(x))``."""

    dim: int = 64
    """Width of the encoder and of its outputs."""
    num_layers: int = 2
    """Layers."""
    num_heads: int = 2
    """Attention heads; divides dim."""
    hidden_dim: int | None = None
    """Width of the feed-forwards; None: 4 * dim."""
    dropout: float = 0.0
    """Probability of dropping what a mixer or a feed-forward adds, and its hidden layer, in training."""

    def __post_init__(self) -> None:
        require_transformer(self)

    @abstractmethod
    def mixer(self, length: int) -> Mixer:
        """Make the mixer of one layer, for rows of at most ``length`` steps."""

    def build(self, input_dim: int, length: int) -> StackEncoder:
        """Build the encoder."""
        from recollect.encoders.contract import StackEncoder

        return StackEncoder(self, input_dim, length)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """Attention over the whole row."""

    paper: ClassVar[str] = "Vaswani et al. 2017"

    fused: bool = True
    """Compute attention in one fused operation. False keeps the table of weights, as code of the papers' time did."""

    def mixer(self, length: int) -> Mixer:
        """Make the attention of one layer."""
        from recollect.encoders.transformer import SelfAttention

        return SelfAttention(self)


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig(StackConfig):
    """Attention with the kernel elu + 1, linear in the length."""

    paper: ClassVar[str] = "Katharopoulos et al. 2020"

    def mixer(self, length: int) -> Mixer:
        """Make the attention of one layer."""
        from recollect.encoders.linear_transformer import LinearAttention

        return LinearAttention(self)


@dataclass(frozen=True, kw_only=True)
class LinformerConfig(StackConfig):
    """Attention to a fixed number of projected steps, linear in the length."""

    paper: ClassVar[str] = "Wang et al. 2020"

    num_projected: int = 128
    """Projected keys and values (k)."""

    def __post_init__(self) -> None:
        require_transformer(self, "num_projected")

    def mixer(self, length: int) -> Mixer:
        """Make the attention of one layer, for rows of at most ``length`` steps."""
        from recollect.encoders.linformer import ProjectedAttention

        return ProjectedAttention(self, length)


@dataclass(frozen=True, kw_only=True)
class PerformerConfig(StackConfig):
    """Softmax attention estimated with random features, linear in the length."""

    paper: ClassVar[str] = "Choromanski et al. 2021"

    num_features: int = 128
    """Random features per head (m)."""
    kernel: Literal["softmax", "relu"] = "softmax"
    """Kernel of the features: softmax attention, or ReLU (generalized attention)."""

    def __post_init__(self) -> None:
        require_transformer(self, "num_features")
        require_one_of(self, "kernel")

    def mixer(self, length: int) -> Mixer:
        """Make the attention of one layer."""
        from recollect.encoders.performer import FeatureAttention

        return FeatureAttention(self)


@dataclass(frozen=True, kw_only=True)
class PastChunksConfig(StackConfig):
    """Attention to the step's own chunk and to some chunks before it, at the same layer."""

    paper: ClassVar[str] = "Didolkar et al. 2022, baseline 1"

    chunk_len: int = 100
    """Steps in a chunk (K)."""
    past_chunks: int = 1
    """Chunks before its own that a step reads (p); 0 reads no past."""

    def __post_init__(self) -> None:
        require_transformer(self, "chunk_len")
        require(self.past_chunks >= 0, "past_chunks", self.past_chunks, "give 0 or more")

    def mixer(self, length: int) -> Mixer:
        """Make the attention of one layer."""
        from recollect.encoders.past_chunks import ChunkAttention

        return ChunkAttention(self)


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerConfig):
    """Attention over the whole row and a class token, for images as rows of patches."""

    paper: ClassVar[str] = "Dosovitskiy et al. 2021"
    has_summary: ClassVar[bool] = True

    def build(self, input_dim: int, length: int) -> ViT:
        """Build the encoder."""
        from recollect.encoders.vit import ViT

        return ViT(self, input_dim, length)


@dataclass(frozen=True, kw_only=True)
class TwoWayTLBConfig(EncoderConfig):
    """Chunks and a slow stream of slots, for whole rows."""

    paper: ClassVar[str] = "Didolkar et al. 2022"
    has_summary: ClassVar[bool] = True

    core: TemporalLatentBottleneckConfig = field(default_factory=lambda: TemporalLatentBottleneckConfig(causal=False))
    """The core; whole rows need causal=False."""

    def __post_init__(self) -> None:
        require(not self.core.causal, "core.causal", self.core.causal, "whole rows need causal=False")

    def build(self, input_dim: int, length: int) -> TwoWayTLB:
        """Build the encoder."""
        from recollect.encoders.tlb import TwoWayTLB

        return TwoWayTLB(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class ViTTLBConfig(TwoWayTLBConfig):
    """A bottleneck over the patches of images, whose chunks grow with the resolution, and do not shrink."""

    core: TemporalLatentBottleneckConfig = field(
        default_factory=lambda: TemporalLatentBottleneckConfig(
            causal=False, chunk_len=16, num_slots=5, positions="none"
        )
    )
    """The core; whole rows need causal=False, longer chunks positions="none"."""

    def build(self, input_dim: int, length: int) -> ViTTLB:
        """Build the encoder."""
        from recollect.encoders.vit_tlb import ViTTLB

        return ViTTLB(self, input_dim, length)


@dataclass(frozen=True, kw_only=True)
class TwoWayLongShortConfig(EncoderConfig):
    """Windows and landmarks, for whole rows."""

    paper: ClassVar[str] = "Zhu et al. 2021"

    core: LongShortTransformerConfig = field(
        default_factory=lambda: LongShortTransformerConfig(causal=False, memory_len=8, num_landmarks=32)
    )
    """The core; whole rows need causal=False."""

    def __post_init__(self) -> None:
        require(not self.core.causal, "core.causal", self.core.causal, "whole rows need causal=False")

    def build(self, input_dim: int, length: int) -> TwoWayLongShort:
        """Build the encoder."""
        from recollect.encoders.long_short import TwoWayLongShort

        return TwoWayLongShort(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class SwinV2Config(EncoderConfig):
    """Moving windows, and patches that are merged from stage to stage; for images alone."""

    paper: ClassVar[str] = "Liu et al. 2022"
    has_summary: ClassVar[bool] = True
    reads_patches: ClassVar[bool] = True

    dim: int = 96
    """Width of the first stage; each later one has twice that of the stage before."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Layers of every stage."""
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of every stage."""
    window: int = 4
    """Patches of a side of a window."""
    mlp_ratio: float = 4.0
    """Width of the feed-forwards, in widths of their stage."""
    drop_path: float = 0.1
    """Probability of leaving out a layer in training; rises from 0 at the first layer to this at the last."""

    def __post_init__(self) -> None:
        require_sizes(self, "dim", "window")
        require(self.mlp_ratio > 0, "mlp_ratio", self.mlp_ratio, "give a positive number")
        good = len(self.depths) == len(self.num_heads) > 0
        require(good, "num_heads", self.num_heads, f"give one number for each of the {len(self.depths)} stages")
        for name in ("depths", "num_heads"):
            require(min(getattr(self, name)) > 0, name, getattr(self, name), "give positive numbers")
        for stage, heads in enumerate(self.num_heads):
            width = self.dim * 2**stage
            require(width % heads == 0, "num_heads", self.num_heads, f"stage {stage} is {width} wide")
        require(0 <= self.drop_path < 1, "drop_path", self.drop_path, "give a probability in [0, 1)")

    def build(self, input_dim: int, length: int) -> SwinV2:
        """Build the encoder.

        Raises:
            ValueError: transformers is missing, or these are no patches of a square image.
        """
        from recollect.encoders.swin_v2 import SwinV2

        return SwinV2(self, input_dim, length)
