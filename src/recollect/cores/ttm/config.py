"""Settings of Token Turing Machine and Recurrent Transformer; equations are beside their classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from recollect.config import require, require_one_of
from recollect.cores.config import CoreConfig
from recollect.layers.config import feedforward_width, require_sizes

if TYPE_CHECKING:
    from recollect.cores.ttm.core import TokenTuringMachine
    from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer

SummarizerKind = Literal["mlp", "latent_query", "mha", "pooling", "none"]
Processor = Literal["transformer", "mixer", "mlp"]

HEADS = 8
"""Heads of the ``mha`` summarizer, fixed in the released code."""
WINDOWS = ("concatenate", "sample")
"""Memories that hold input tokens, first in, first out."""
STRIDE = 5
"""Of the memory ``sample``."""


@dataclass(frozen=True, kw_only=True)
class TokenConfig(CoreConfig):
    """Settings shared by both machines."""

    dim: int = 128
    """Width d of a token."""
    num_tokens: int = 16
    """Input tokens per step, n."""
    num_slots: int = 96
    """Memory tokens, m."""
    num_reads: int = 16
    """Tokens that the processing unit reads, r: as many come out."""
    num_layers: int = 1
    """Layers of the processing unit."""
    num_heads: int = 4
    """Attention heads of the Transformer processing unit."""
    hidden_dim: int | None = None
    """Hidden width of the processing unit; 4 * dim when None (the paper has 512)."""
    summarizer: SummarizerKind = "mlp"
    """Summary of tokens: mlp, latent_query, mha (8 heads), pooling, or none (read all)."""
    processor: Processor = "transformer"
    """The processing unit: transformer, mixer or mlp."""
    learned_initial_state: bool = False
    """Whether an episode starts from learned memory tokens instead of zeros."""

    RENAMED: ClassVar[dict[str, str]] = {"learned_start": "learned_initial_state"}

    def __post_init__(self) -> None:
        require_sizes(self, "dim", "num_tokens", "num_slots", "num_reads", "num_layers", "num_heads")
        feedforward_width(self.dim, self.hidden_dim)
        require_one_of(self, "summarizer", "processor")
        good = self.summarizer != "mha" or self.dim % HEADS == 0
        require(good, "dim", self.dim, f"the summarizer 'mha' has {HEADS} heads: give a multiple of {HEADS}")
        good = self.summarizer != "pooling" or self.num_reads <= self.summarized
        remedy = f"pooling cannot make more tokens than it sees: give at most {self.summarized}"
        require(good, "num_reads", self.num_reads, remedy)
        good = self.processor != "transformer" or self.dim % self.num_heads == 0
        remedy = f"the heads must share dim={self.dim} equally: give a divisor of it"
        require(good, "num_heads", self.num_heads, remedy)

    @property
    def summarized(self) -> int:
        """Tokens that are summarized to ``num_reads``."""
        return self.num_slots + self.num_tokens


@dataclass(frozen=True, kw_only=True)
class TokenTuringMachineConfig(TokenConfig):
    """Settings of :class:`TokenTuringMachine`."""

    paper: ClassVar[str] = "Ryoo et al. 2023"
    remembers: ClassVar[str] = "slots, rewritten at each step of n tokens"

    memory: Literal["token_summary", "erase_add", "erase_add_released", "concatenate", "sample", "none"] = (
        "token_summary"
    )
    """The write of a step: token_summary (the paper's), erase_add or erase_add_released (as in Neural Turing Machines),
    concatenate or sample (the last input tokens, or every fifth of them), or none."""
    positions: Literal["paper", "released", "none"] = "paper"
    """Position tables of read and write: paper (write order M, O, I), released (M, I, O) or none."""

    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {
        "memory": {"erase_add_official": "erase_add_released"},
        "positions": {"official": "released"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, "memory", "positions")
        good = self.memory not in WINDOWS or self.held % self.num_tokens == 0
        remedy = (
            f"the memory {self.memory!r} holds whole steps: {self.held} tokens are no multiple of "
            f"num_tokens={self.num_tokens}"
        )
        require(good, "num_slots", self.num_slots, remedy)
        if self.summarizer == "none":
            remedy = "the summarizer 'none' makes no summary to write: choose concatenate, sample or another"
            require(self.memory != "token_summary", "memory", self.memory, remedy)
            remedy = f"the summarizer 'none' gives one output per input token: give num_tokens={self.num_tokens}"
            require(self.num_reads == self.num_tokens, "num_reads", self.num_reads, remedy)

    @property
    def held(self) -> int:
        """Tokens that the state holds."""
        return self.num_slots * (STRIDE if self.memory == "sample" else 1)

    @property
    def reach(self) -> int | None:
        """Steps in a first-in-first-out memory, 0 without a memory; None where the memory is rewritten."""
        kept = {"none": 0, **dict.fromkeys(WINDOWS, self.held // self.num_tokens)}
        return kept.get(self.memory)

    def build(self, input_dim: int) -> TokenTuringMachine:
        """Make the core for steps of ``num_tokens`` tokens of width ``input_dim``."""
        from recollect.cores.ttm.core import TokenTuringMachine

        return TokenTuringMachine(self, input_dim)


@dataclass(frozen=True, kw_only=True)
class RecurrentTransformerConfig(TokenConfig):
    """Settings of :class:`RecurrentTransformer`; only the input is summarized."""

    paper: ClassVar[str] = "Ryoo et al. 2023, table 2"
    remembers: ClassVar[str] = "state tokens"

    num_slots: int = 16
    """State tokens, m."""
    variant: Literal["paper", "released"] = "paper"
    """Tokens that are outputs: the last r (paper) or the first r (released)."""

    RENAMED: ClassVar[dict[str, str]] = {"slicing": "variant", **TokenConfig.RENAMED}
    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {"variant": {"natural": "paper", "official": "released"}}

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "its input is summarized to num_reads tokens: choose mlp, latent_query, mha or pooling"
        require(self.summarizer != "none", "summarizer", self.summarizer, remedy)
        require_one_of(self, "variant")

    @property
    def summarized(self) -> int:
        """Tokens that are summarized to ``num_reads``."""
        return self.num_tokens

    def build(self, input_dim: int) -> RecurrentTransformer:
        """Make the core for steps of ``num_tokens`` tokens of width ``input_dim``."""
        from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer

        return RecurrentTransformer(self, input_dim)
