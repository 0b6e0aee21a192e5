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


def _require_parts(config: TokenTuringMachineConfig | RecurrentTransformerConfig, num_in: int) -> None:
    """Raise ``ValueError`` unless processing unit and summarizer of ``num_in`` tokens can be made."""
    require_sizes(config, "dim", "num_tokens", "num_slots", "num_reads", "num_layers", "num_heads")
    feedforward_width(config.dim, config.hidden_dim)
    require_one_of(config, "summarizer", "processor")
    dim, heads, reads = config.dim, config.num_heads, config.num_reads
    good = config.summarizer != "mha" or dim % HEADS == 0
    require(good, "dim", dim, f"the summarizer 'mha' has {HEADS} heads: give a multiple of {HEADS}")
    good = config.summarizer != "pooling" or reads <= num_in
    require(good, "num_reads", reads, f"pooling cannot make more tokens than it sees: give at most {num_in}")
    good = config.processor != "transformer" or dim % heads == 0
    require(good, "num_heads", heads, f"the heads must share dim={dim} equally: give a divisor of it")


@dataclass(frozen=True, kw_only=True)
class TokenTuringMachineConfig(CoreConfig):
    """Settings of :class:`TokenTuringMachine`."""

    paper: ClassVar[str] = "Ryoo et al. 2023"
    remembers: ClassVar[str] = "slots, rewritten at each step of n tokens"

    dim: int = 128
    """Width d of a token."""
    num_tokens: int = 16
    """Input tokens per step, n."""
    num_slots: int = 96
    """Memory tokens, m."""
    num_reads: int = 16
    """Tokens that the processing unit works on, r: as many come out."""
    num_layers: int = 1
    """Layers of the processing unit."""
    num_heads: int = 4
    """Attention heads of the Transformer processing unit."""
    hidden_dim: int | None = None
    """Hidden width of the processing unit; 4 * dim when None (the paper has 512)."""
    summarizer: SummarizerKind = "mlp"
    """How tokens are summarised in read and write: mlp, latent_query, mha (8 heads), pooling, or none (read all)."""
    processor: Processor = "transformer"
    """The processing unit: transformer, mixer or mlp."""
    memory: Literal["token_summary", "erase_add", "erase_add_released", "concatenate", "sample", "none"] = (
        "token_summary"
    )
    """What a step writes: token_summary, erase_add, erase_add_released, concatenate, sample or none."""
    positions: Literal["paper", "released", "none"] = "paper"
    """Position tables of read and write: paper (write order M, O, I), released (M, I, O) or none."""
    learned_initial_state: bool = False
    """Whether an episode starts from learned memory tokens instead of zeros."""

    RENAMED: ClassVar[dict[str, str]] = {"learned_start": "learned_initial_state"}
    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {
        "memory": {"erase_add_official": "erase_add_released"},
        "positions": {"official": "released"},
    }

    def __post_init__(self) -> None:
        _require_parts(self, self.num_slots + self.num_tokens)
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
        """Tokens in the state."""
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
class RecurrentTransformerConfig(CoreConfig):
    """Settings of :class:`RecurrentTransformer`."""

    paper: ClassVar[str] = "Ryoo et al. 2023, table 2"
    remembers: ClassVar[str] = "state tokens"

    dim: int = 128
    """Width d of a token."""
    num_tokens: int = 16
    """Input tokens per step, n."""
    num_slots: int = 16
    """State tokens, m."""
    num_reads: int = 16
    """Tokens to which the input is summarised, r: as many come out."""
    num_layers: int = 1
    """Layers of the processing unit."""
    num_heads: int = 4
    """Attention heads of the Transformer processing unit."""
    hidden_dim: int | None = None
    """Hidden width of the processing unit; 4 * dim when None."""
    summarizer: SummarizerKind = "mlp"
    """How the input is summarised: mlp, latent_query, mha (8 heads) or pooling."""
    processor: Processor = "transformer"
    """The processing unit: transformer, mixer or mlp."""
    variant: Literal["paper", "released"] = "paper"
    """Which tokens come out as outputs: the last r (paper) or the first r (released)."""
    learned_initial_state: bool = False
    """Whether an episode starts from learned state tokens instead of zeros."""

    RENAMED: ClassVar[dict[str, str]] = {"slicing": "variant", "learned_start": "learned_initial_state"}
    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {"variant": {"natural": "paper", "official": "released"}}

    def __post_init__(self) -> None:
        _require_parts(self, self.num_tokens)
        remedy = "its input is summarised to num_reads tokens: choose mlp, latent_query, mha or pooling"
        require(self.summarizer != "none", "summarizer", self.summarizer, remedy)
        require_one_of(self, "variant")

    def build(self, input_dim: int) -> RecurrentTransformer:
        """Make the core for steps of ``num_tokens`` tokens of width ``input_dim``."""
        from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer

        return RecurrentTransformer(self, input_dim)
