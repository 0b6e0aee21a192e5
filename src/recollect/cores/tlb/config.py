"""Settings of the temporal latent bottleneck; its equations are in ``core.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from recollect.config import require, require_one_of, require_types
from recollect.cores.config import CoreConfig
from recollect.layers.config import Activation, feedforward_width

if TYPE_CHECKING:
    from recollect.cores.tlb.core import TemporalLatentBottleneck


@dataclass(frozen=True, kw_only=True)
class TemporalLatentBottleneckVariant:
    """Choices that the paper leaves open, or where its text and the authors' code differ.

    The defaults are ours; :meth:`paper` and :meth:`released` return the others.
    """

    initial_slots: Literal["learned", "sinusoid_once", "sinusoid_every_chunk"] = "learned"
    """Initial slots: trained vectors, or zeros plus a sinusoid over slots, added once or at every chunk."""
    cross_placement: Literal["after_r", "alg1_literal"] = "after_r"
    """Cross layers after every R-th self layer, or as in the literal algorithm 1 (l % R == 0)."""
    value_norm: Literal["shared", "separate"] = "shared"
    """In cross layers, one norm for keys and values, or one each."""
    head_dim: int | None = None
    """Width of an attention head; None: dim / num_heads."""
    attention_dropout: float | None = None
    """Probability of dropping an attention weight in training; None: as ``dropout``."""
    activation: Activation = "gelu_tanh"
    """Activation of the feed-forwards."""
    norm_eps: float = 1e-6
    """Epsilon of the norms."""
    cross_feedforward: bool = True
    """Whether cross layers, the writing one included, have a feed-forward."""
    final_norm: bool = True
    """Norm of the outputs."""
    empty_chunk: Literal["keep", "add_slots"] = "keep"
    """Effect of a chunk of padding alone on the slots in ``encode``: none, or the sinusoid is still added."""
    detach_every: int | None = None
    """Cut gradients after every stretch of this many chunks of an episode; None: never."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "initial_slots", "cross_placement", "value_norm", "activation", "empty_chunk")
        require(self.head_dim is None or self.head_dim > 0, "head_dim", self.head_dim, "give a positive width or None")
        dropped = 0.0 if self.attention_dropout is None else self.attention_dropout
        require(0 <= dropped < 1, "attention_dropout", self.attention_dropout, "give a probability in [0, 1) or None")
        require(self.norm_eps > 0, "norm_eps", self.norm_eps, "give a small positive number, such as 1e-6")
        cut = self.detach_every
        require(cut is None or cut > 0, "detach_every", cut, "give a positive number of chunks, or None for never")
        require(
            self.empty_chunk == "keep" or self.initial_slots == "sinusoid_every_chunk",
            "empty_chunk",
            self.empty_chunk,
            'only initial_slots="sinusoid_every_chunk" has something to add: use "keep"',
        )

    @classmethod
    def paper(cls, **changes: Any) -> TemporalLatentBottleneckVariant:
        """Return the paper's equations: no norm follows the last layer. Open choices are our defaults."""
        return cls(**{"final_norm": False, **changes})

    @classmethod
    def released(cls, **changes: Any) -> TemporalLatentBottleneckVariant:
        """Return the authors' code in Long Range Arena: zero slots plus a sinusoid at every chunk, also empty ones."""
        chosen = {"initial_slots": "sinusoid_every_chunk", "empty_chunk": "add_slots", "final_norm": False}
        return cls(**{**chosen, **changes})


@dataclass(frozen=True, kw_only=True)
class TemporalLatentBottleneckConfig(CoreConfig):
    """Settings of :class:`TemporalLatentBottleneck`."""

    paper: ClassVar[str] = "Didolkar et al. 2022"
    remembers: ClassVar[str] = "slots, updated once per chunk"

    dim: int = 128
    """Width of both streams and of the output."""
    num_layers: int = 2
    """Self-attention layers of the fast stream, without its cross layers."""
    num_heads: int = 4
    """Attention heads; must divide dim unless details.head_dim is given."""
    hidden_dim: int | None = None
    """Width of the feed-forwards; None: 4 * dim."""
    dropout: float = 0.0
    """Dropout of inputs, attention weights, hidden layers and the outputs of sub-layers, in training."""
    self_per_cross: int = 2
    """R: self-attention layers per cross layer."""
    chunk_len: int = 10
    """K: steps in a chunk."""
    num_slots: int = 10
    """N: vectors of the slow state."""
    causal: bool = True
    """Whether self-attention inside a chunk sees the past only. False is two-way, for whole sequences (``encode``)."""
    positions: Literal["sinusoid", "learned", "none"] = "sinusoid"
    """Positions in the chunk that are added to the inputs."""
    feedback: Literal["top_down", "per_layer", "none"] = "top_down"
    """Slow states that the fast stream reads: one, written from its top (the paper); one for each cross layer, written
    from that layer's own output ("no top-down"); or none ("no past information")."""
    details: TemporalLatentBottleneckVariant = field(default_factory=TemporalLatentBottleneckVariant)
    """Choices that the paper leaves open, or where its text and the authors' code differ."""

    def __post_init__(self) -> None:
        require_one_of(self, "positions", "feedback")
        for name in ("dim", "num_layers", "num_heads", "self_per_cross", "chunk_len", "num_slots"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        require(
            self.details.head_dim is not None or self.dim % self.num_heads == 0,
            "num_heads",
            self.num_heads,
            f"choose a divisor of dim={self.dim}, or give details.head_dim",
        )
        feedforward_width(self.dim, self.hidden_dim)
        require(0 <= self.dropout < 1, "dropout", self.dropout, "give a probability in [0, 1)")
        require(
            self.feedback == "none" or "cross" in self.layers,
            "self_per_cross",
            self.self_per_cross,
            f'no cross layer comes in {self.num_layers} layers: lower it, or choose feedback="none"',
        )

    @property
    def layers(self) -> list[Literal["self", "cross"]]:
        """Layers of the fast stream, in order."""
        order: list[Literal["self", "cross"]] = []
        for layer in range(self.num_layers):
            order.append("self")
            turn = layer if self.details.cross_placement == "alg1_literal" else layer + 1
            if self.feedback != "none" and turn % self.self_per_cross == 0:
                order.append("cross")
        return order

    @property
    def reach(self) -> int | None:
        """The running chunk if no slots are read; None with slots."""
        return self.chunk_len if self.feedback == "none" else None

    def build(self, input_dim: int) -> TemporalLatentBottleneck:
        """Build the core."""
        from recollect.cores.tlb.core import TemporalLatentBottleneck

        return TemporalLatentBottleneck(self, input_dim)
