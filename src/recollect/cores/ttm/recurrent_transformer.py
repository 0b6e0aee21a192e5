"""Recurrent Transformer: state tokens and input tokens in, next state tokens and output tokens out.

    Z^t           = S_r(I^t)                    the n input tokens, summarised to r
    [M^{t+1} | O^t] = Process([M^t | Z^t])      m state tokens, r output tokens

The baseline of the Token Turing Machines: the processing unit looks at the whole state, and the state is whatever
comes out of it. Everything but Process is computed for all steps at once, before the loop.

Tokens in, tokens out: inputs ``[b, t, n, d_in]``, outputs ``[b, t, r, d]``. To read a prediction out, average the r
output tokens and apply a linear head.

Paper: Ryoo et al. 2023 (Token Turing Machines), section 3.1.3 and table 2 ("takes state tokens and input tokens to
predict the next state tokens and output tokens"; 16 + 16 tokens). Released code: Scenic, token_turing,
TokenTuringMachineSimpleUnit.

Differs:
- ``variant="released"`` reproduces the released code, which takes the *first r* tokens that come out as outputs and the
  other m as next state, although the state stood first when it went in. By default state places stay state.
- The state starts as zeros, as in the released code, or is learned (``learned_initial_state``).
- A linear map brings the input tokens to width d when they have another one. No dropout.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.ttm.processors import Processor, TokenProcessor, check_processor
from recollect.cores.ttm.summarizers import SummarizerKind, check_summarizer, make_summarizer
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection

Variant = Literal["paper", "released"]


class RecurrentTransformerState(NamedTuple):
    """The state tokens."""

    memory: Tensor
    """float ``[b, m, d]``."""


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
    variant: Variant = "paper"
    """Which tokens come out as outputs: the last r (paper) or the first r (released)."""
    learned_initial_state: bool = False
    """Whether an episode starts from learned state tokens instead of zeros."""

    RENAMED: ClassVar[dict[str, str]] = {"slicing": "variant", "learned_start": "learned_initial_state"}
    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {"variant": {"natural": "paper", "official": "released"}}

    def __post_init__(self) -> None:
        for field in ("dim", "num_tokens", "num_slots", "num_reads", "num_layers", "num_heads"):
            require(getattr(self, field) >= 1, field, getattr(self, field), "give at least 1")
        feedforward_width(self.dim, self.hidden_dim)
        check_summarizer(self.summarizer, self.dim, self.num_reads, self.num_tokens)
        check_processor(self.processor, self.dim, self.num_heads)
        remedy = "its input is summarised to num_reads tokens: choose mlp, latent_query, mha or pooling"
        require(self.summarizer != "none", "summarizer", self.summarizer, remedy)
        require(self.variant in get_args(Variant), "variant", self.variant, "choose paper or released")

    def build(self, input_dim: int) -> "RecurrentTransformer":
        """A core for steps of ``num_tokens`` tokens of width ``input_dim``."""
        return RecurrentTransformer(self, input_dim)


class RecurrentTransformer(MemoryCore[RecurrentTransformerState]):
    """See the module's docstring.

    Args:
        config: settings.
        input_dim: width of an input token.
    """

    runs_in_float16 = True

    def __init__(self, config: RecurrentTransformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        d, n, m, r = config.dim, config.num_tokens, config.num_slots, config.num_reads
        self.input_shape = (n, input_dim)
        self.output_shape = (r, d)
        self.project = input_projection(input_dim, d)
        self.summarize = make_summarizer(config.summarizer, d, r, range(n))
        hidden = feedforward_width(d, config.hidden_dim)
        self.process = TokenProcessor(config.processor, d, m + r, config.num_layers, config.num_heads, hidden)
        self.start = nn.Parameter(torch.randn(m, d) * 0.02) if config.learned_initial_state else None

    def initial_state(self, batch_size: int) -> RecurrentTransformerState:
        """Zeros, or the learned initial state."""
        if self.start is not None:
            return RecurrentTransformerState(self.start.repeat(batch_size, 1, 1))
        return RecurrentTransformerState(self.zeros(batch_size, self.config.num_slots, self.config.dim))

    def unroll(
        self, inputs: Tensor, state: RecurrentTransformerState, is_first: Tensor
    ) -> tuple[Tensor, RecurrentTransformerState]:
        """Summarise the inputs of all steps, then loop."""
        m, r = self.config.num_slots, self.config.num_reads
        initial = self.initial_state(inputs.shape[0]).memory
        memory, outputs = state.memory, []
        summaries = self.summarize(self.project(inputs))  # b t r d
        for first, summary in zip(is_first.unbind(1), summaries.unbind(1), strict=True):
            memory = torch.where(first[:, None, None], initial, memory)
            tokens = self.process(torch.cat((memory, summary), 1))
            if self.config.variant == "released":
                output, memory = tokens.split([r, m], 1)
            else:
                memory, output = tokens.split([m, r], 1)
            outputs.append(output)
        return torch.stack(outputs, 1), RecurrentTransformerState(memory)

    def flops_per_step(self) -> int:
        """``2 n d_in d`` when d_in is not d, the summary of n tokens to r, and Process on m + r tokens."""
        n, input_dim = self.input_shape
        project = 2 * n * input_dim * self.config.dim if isinstance(self.project, nn.Linear) else 0
        return project + self.summarize.flops(n) + self.process.flops()
