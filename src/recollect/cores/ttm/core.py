"""Token Turing Machine: a memory of m tokens that is read, processed and written at every step.

    Z^t     = S_r([M^t | I^t])              read       equations 4, 6
    O^t     = Process(Z^t)                  process    equation 7
    M^{t+1} = S_m([M^t | O^t | I^t])        write      equations 5, 8

S_k summarises any number of tokens to k (``summarizers.py``: equations 1 to 3), Process is a small Transformer,
Mixer or MLP (``processors.py``). Before a summary a learned position table is added to its tokens, so that a token
carries its place into the memory.

Tokens in, tokens out: inputs ``[b, t, n, d_in]``, outputs ``[b, t, r, d]``. To read a prediction out, average the r
output tokens and apply a linear head (equation 9 leaves the average open).

What a step writes is the choice of ``memory`` (tables 4 and 5):

    token_summary        equation 5
    erase_add            M * prod_s (1 - w_s e_s^T) + sum_s w_s a_s^T, steered by O alone (``erase_add.py``)
    erase_add_released   the same as the released code has it
    concatenate          the last m input tokens, oldest first: a bounded form of "concatenate every input token"
    sample               every fifth of the last 5 m input tokens: m of them are read
    none                 zeros: the memory is forgotten after every step

With the summariser ``none`` nothing is summarised: Process works on all of [M^t | I^t], and what it makes of I^t is
O^t. With ``concatenate`` that is the temporal Transformer or Mixer of table 2 over a window of tokens, with ``sample``
the one with strides ("aggressive (spatial) pooling and (temporal) striding"). "Pooling + sampling" of table 5 is the
latter on averaged input tokens: it has the mAP (21.63) and the GFLOPS (0.103) of "temporal Transformer (16 + 16)".

Fast path: all that concerns the n input tokens is known before the first step. Their share of the read and of the
write is summarised for all steps at once (``PartialSoftmax``), and the loop over steps touches m + r tokens only. To
merge such a share costs about as much as to summarise m tokens, so that fewer input tokens than that stay in the loop.

Paper: Ryoo et al. 2023 (Token Turing Machines), section 2, equations 1 to 9, tables 3 to 5. Released code: Scenic,
token_turing.

Differs:
- ``positions="released"`` writes in the order M, I, O of the released code instead of M, O, I; the order only says
  which row of the write table belongs to whom (and, for pooling, who are neighbours). "none" has no tables, which
  is the default of the released code; the paper always has them. Erase and add and ``concatenate`` have no write table.
- The memory starts as zeros, as in the released code (the paper is silent), or is learned
  (``learned_initial_state``). The first-in-first-out memory of ``concatenate`` starts full of these tokens and holds
  whole steps.
- How history is sampled is not published; every fifth token makes the 16 of table 2 from the five steps of 16 that come
  before the present one. The temporal Mixer's hidden width along the tokens is d, which fits the FLOPS of table 2.
- ``none`` does not compute the write whose result it throws away.
- A linear map brings the input tokens to width d when they have another one.
- No dropout (the released code's default rate is 0).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.stream import Stream
from recollect.cores.ttm.erase_add import EraseAdd
from recollect.cores.ttm.processors import TOKEN_HIDDEN_DIM, Processor, TokenProcessor, check_processor
from recollect.cores.ttm.summarizers import (
    PartialSoftmax,
    Summarizer,
    SummarizerKind,
    check_summarizer,
    fuse_summarizers,
    make_summarizer,
    unbind_steps,
)
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection
from recollect.ops.fused_pooling import FusedWeights, extra_flops, fused_pooling

Memory = Literal["token_summary", "erase_add", "erase_add_released", "concatenate", "sample", "none"]
Positions = Literal["paper", "released", "none"]

WINDOWS = ("concatenate", "sample")
"""Memories that hold input tokens, first in, first out."""
STRIDE = 5
"""Of the memory ``sample``."""

GROWS = (
    "memory='erase_add_released' adds about one to every entry at every step, as the released code does, so that after "
    "some hundred steps numbers may leave float32, and float16 much earlier; 'erase_add' does not"
)


class TokenTuringMachineState(NamedTuple):
    """The memory."""

    memory: Tensor
    """float ``[b, m, d]``; ``[b, 5 m, d]`` where every fifth token is read."""


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
    memory: Memory = "token_summary"
    """What a step writes: token_summary, erase_add, erase_add_released, concatenate, sample or none."""
    positions: Positions = "paper"
    """Position tables of read and write: paper (write order M, O, I), released (M, I, O) or none."""
    learned_initial_state: bool = False
    """Whether an episode starts from learned memory tokens instead of zeros."""

    RENAMED: ClassVar[dict[str, str]] = {"learned_start": "learned_initial_state"}
    RENAMED_VALUES: ClassVar[dict[str, dict[str, str]]] = {
        "memory": {"erase_add_official": "erase_add_released"},
        "positions": {"official": "released"},
    }

    def __post_init__(self) -> None:
        for field in ("dim", "num_tokens", "num_slots", "num_reads", "num_layers", "num_heads"):
            require(getattr(self, field) >= 1, field, getattr(self, field), "give at least 1")
        feedforward_width(self.dim, self.hidden_dim)
        check_summarizer(self.summarizer, self.dim, self.num_reads, self.num_slots + self.num_tokens)
        check_processor(self.processor, self.dim, self.num_heads)
        for field, choices in (("memory", get_args(Memory)), ("positions", get_args(Positions))):
            value = getattr(self, field)
            require(value in choices, field, value, f"choose one of {', '.join(choices)}")
        require(
            self.memory not in WINDOWS or self.held % self.num_tokens == 0,
            "num_slots",
            self.num_slots,
            f"the memory {self.memory!r} holds whole steps: {self.held} tokens are no multiple of "
            f"num_tokens={self.num_tokens}",
        )
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
        """What the first-in-first-out memory holds, nothing without a memory; None where memory is written anew."""
        kept = {"none": 0, **dict.fromkeys(WINDOWS, self.held // self.num_tokens)}
        return kept.get(self.memory)

    def build(self, input_dim: int) -> "TokenTuringMachine":
        """A core for steps of ``num_tokens`` tokens of width ``input_dim``."""
        return TokenTuringMachine(self, input_dim)


class StepWeights(NamedTuple):
    """What depends on the weights alone, made once per call: parts of the position tables, fused summarisers."""

    read_rows: Tensor | None
    """``[m, d]``: rows of the read table for M; also for I, when the loop reads it: ``[m + n, d]``."""
    read_input_rows: Tensor | None
    """``[n, d]``: rows of the read table for I, when it is read before the loop."""
    write_rows: Tensor | None
    """``[m + r, d]``: rows of the write table for M and O; also for I, when the loop reads it: ``[m + r + n, d]``."""
    write_input_rows: Tensor | None
    """``[n, d]``: rows of the write table for I, when it is read before the loop."""
    fused: FusedWeights | None
    """The mlp summarisers of many tokens (``ops/fused_pooling.py``)."""


class TokenTuringMachine(MemoryCore[TokenTuringMachineState]):
    """See the module's docstring.

    Args:
        config: settings.
        input_dim: width of an input token.
    """

    runs_in_float16 = True

    def __init__(self, config: TokenTuringMachineConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        d, n, m, r = config.dim, config.num_tokens, config.num_slots, config.num_reads
        self.input_shape = (n, input_dim)
        self.output_shape = (r, d)
        self.reads_all = config.summarizer == "none"
        self.hoists = n > m and not self.reads_all
        """Whether input tokens are summarised before the loop; either way gives the same numbers."""
        self.project = input_projection(input_dim, d)
        self.read = make_summarizer(config.summarizer, d, r, range(m + n))
        hidden = feedforward_width(d, config.hidden_dim)
        width = d if self.reads_all else TOKEN_HIDDEN_DIM
        tokens = m + n if self.reads_all else r
        self.process = TokenProcessor(
            config.processor, d, tokens, config.num_layers, config.num_heads, hidden, token_hidden_dim=width
        )
        self.write: Summarizer | None = None
        self.erase_add: EraseAdd | None = None
        if config.memory == "token_summary":
            # A step offers [M | O | I]; these are their places in the order of the write table.
            first_output, first_input = (m + n, m) if config.positions == "released" else (m, m + r)
            outputs, inputs = range(first_output, first_output + r), range(first_input, first_input + n)
            self.write = make_summarizer(config.summarizer, d, m, [*range(m), *outputs, *inputs])
        elif config.memory in ("erase_add", "erase_add_released"):
            variant = "released" if config.memory == "erase_add_released" else "paper"
            self.erase_add = EraseAdd(d, r, variant=variant)
            if variant == "released":
                self.exemptions = {"state-bytes": GROWS, "float16": GROWS}
        self.read_table = self.write_table = self.start = None
        if config.positions != "none":
            self.read_table = nn.Parameter(torch.randn(m + n, d) * 0.02)
            if self.write is not None:
                self.write_table = nn.Parameter(torch.randn(m + n + r, d) * 0.02)
        if config.learned_initial_state:
            self.start = nn.Parameter(torch.randn(config.held, d) * 0.02)

    def initial_state(self, batch_size: int) -> TokenTuringMachineState:
        """Zeros, or the learned initial state."""
        if self.start is not None:
            return TokenTuringMachineState(self.start.repeat(batch_size, 1, 1))
        return TokenTuringMachineState(self.zeros(batch_size, self.config.held, self.config.dim))

    def unroll(
        self, inputs: Tensor, state: TokenTuringMachineState, is_first: Tensor
    ) -> tuple[Tensor, TokenTuringMachineState]:
        """Summarise the inputs of all steps, then loop over steps and memory."""
        tokens = self.project(inputs)
        weights = self.step_weights(tokens)
        read, write = self.summarize_inputs(tokens, weights)
        initial = self.initial_state(inputs.shape[0]).memory
        memory, outputs, t = state.memory, [], inputs.shape[1]
        # Steps come from unbind: the gradient of an index would be a whole zero tensor with one step in it.
        parts = zip(is_first.unbind(1), tokens.unbind(1), unbind_steps(read, t), unbind_steps(write, t), strict=True)
        for first, step_tokens, step_read, step_write in parts:
            memory = torch.where(first[:, None, None], initial, memory)
            output, memory = self.step(memory, step_tokens, step_read, step_write, weights)
            outputs.append(output)
        return torch.stack(outputs, 1), TokenTuringMachineState(memory)

    def step_weights(self, tokens: Tensor) -> StepWeights:
        """What the steps need of the weights alone, for tokens like these."""
        n, m, r = self.config.num_tokens, self.config.num_slots, self.config.num_reads
        read, write = self.read_table, self.write_table
        if write is not None and self.config.positions == "released":
            memory_rows, input_rows, output_rows = write.split([m, n, r])
            write = torch.cat((memory_rows, output_rows, input_rows))
        if not self.hoists:
            return StepWeights(read, None, write, None, None)
        read_inputs = write_inputs = None
        if read is not None:
            read, read_inputs = read.split([m, n])
        if write is not None:
            write, write_inputs = write.split([m + r, n])
        if self.write is None:
            fused = fuse_summarizers([self.read], [read_inputs], tokens)
        else:
            fused = fuse_summarizers([self.read, self.write], [read_inputs, write_inputs], tokens)
        return StepWeights(read, read_inputs, write, write_inputs, fused)

    def summarize_inputs(
        self, tokens: Tensor, weights: StepWeights
    ) -> tuple[PartialSoftmax | None, PartialSoftmax | None]:
        """The inputs' share of read and write, or none where steps take the tokens as they are.

        Tokens ``[b, ..., n, d]``, without position tables.
        """
        if not self.hoists:
            return None, None
        heard = self.read.tap.has_listeners or (self.write is not None and self.write.tap.has_listeners)
        if weights.fused is not None and not heard:  # the kernel keeps no weights that a tap could hear
            read, *write = (PartialSoftmax(*pooled, None) for pooled in fused_pooling(tokens, weights.fused))
            return read, write[0] if write else None
        read = self.read.partial(add(tokens, weights.read_input_rows))
        return read, None if self.write is None else self.write.partial(add(tokens, weights.write_input_rows))

    def step(
        self,
        memory: Tensor,
        tokens: Tensor,
        read: PartialSoftmax | None,
        write: PartialSoftmax | None,
        weights: StepWeights,
    ) -> tuple[Tensor, Tensor]:
        """Equations 6 to 8.

        Args:
            memory: M^t, ``[b, m, d]``, or the tokens that it is sampled from.
            tokens: I^t, ``[b, n, d]``.
            read: share of I^t in the read, where it is known already.
            write: share of I^t in the write, where it is known already.
            weights: from :meth:`step_weights`.

        Returns:
            O^t ``[b, r, d]`` and M^{t+1}.
        """
        inputs = () if self.hoists else (tokens,)
        seen = memory[:, STRIDE - 1 :: STRIDE] if self.config.memory == "sample" else memory
        outputs = self.process(self.read(add(torch.cat((seen, *inputs), 1), weights.read_rows), read))
        if self.reads_all:
            outputs = outputs[:, -self.config.num_tokens :]
        if self.write is not None:
            return outputs, self.write(add(torch.cat((memory, outputs, *inputs), 1), weights.write_rows), write)
        if self.erase_add is not None:
            return outputs, self.erase_add(memory, outputs)
        if self.config.memory in WINDOWS:
            return outputs, torch.cat((memory[:, self.config.num_tokens :], tokens.to(memory.dtype)), 1)
        return outputs, torch.zeros_like(memory)

    def flops_per_step(self) -> int:
        """Projection, read, process and write.

        With p = m + n tokens read, q = m + r + n tokens offered to the write, and the mlp summariser

            2 n d_in d                           input projection, when d_in is not d
            + 2 * 64 (d + r) p + 2 r p d         read: scores and means
            + 2 * 64 (d + m) q + 2 m q d         write
            + Process                            processors.py

        Other summarisers have other scores, other memories another write or none; the fused kernel adds a little.
        """
        n, m, r, d = self.config.num_tokens, self.config.num_slots, self.config.num_reads, self.config.dim
        flops = self.process.flops() + self.read.flops(m + n, self.hoists)
        if isinstance(self.project, nn.Linear):
            flops += 2 * n * self.input_shape[1] * d
        if self.write is not None:
            flops += self.write.flops(m + r + n, self.hoists)
        if self.erase_add is not None:
            flops += self.erase_add.flops(m)
        fused = self.step_weights(self.zeros(1, n, d)).fused
        return flops + (0 if fused is None else extra_flops(fused, n))


def add(tokens: Tensor, rows: Tensor | None) -> Tensor:
    """Tokens and their rows of a position table, if there is one."""
    return tokens if rows is None else tokens + rows


class TokenTuringMachineStream(Stream):
    """What depends on the weights alone is made once; a step is one step of the core's loop."""

    core: TokenTuringMachine

    def __init__(self, core: TokenTuringMachine, batch_size: int) -> None:
        with torch.no_grad():
            self._weights = core.step_weights(core.zeros(1, core.config.num_tokens, core.config.dim))
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step on checked inputs ``[b, n, d_in]``."""
        tokens = self.core.project(inputs)
        memory = self._state.memory
        if is_first is not self._never:
            memory = torch.where(is_first[:, None, None], self._fresh.memory, memory)
        read, write = self.core.summarize_inputs(tokens, self._weights)
        outputs, memory = self.core.step(memory, tokens, read, write, self._weights)
        self._state = TokenTuringMachineState(memory.to(self._fresh.memory.dtype))
        return outputs
