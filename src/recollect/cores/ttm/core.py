"""Token Turing Machine: a memory of m tokens that is read, processed and written at every step.

    Z^t     = S_r([M^t | I^t])              read       equations 4, 6
    O^t     = Process(Z^t)                  process    equation 7
    M^{t+1} = S_m([M^t | O^t | I^t])        write      equations 5, 8

S_k summarizes any number of tokens to k (``summarizers.py``: equations 1 to 3), Process is a small Transformer,
Mixer or MLP (``processors.py``). Before a summary a learned position table is added to its tokens, so that the memory
contains their places.

Inputs are tokens ``[b, t, n, d_in]``, outputs are tokens ``[b, t, r, d]``. For a prediction, average the r output
tokens and apply a linear head (equation 9 does not specify the average).

``memory`` selects the write of a step (tables 4 and 5):

    token_summary        equation 5
    erase_add            M * prod_s (1 - w_s e_s^T) + sum_s w_s a_s^T, with w, e and a from O alone (erase_add.py)
    erase_add_released   the same in the form of the released code
    concatenate          the last m input tokens, oldest first: a bounded form of "concatenate every input token"
    sample               every fifth of the last 5 m input tokens: m of them are read
    none                 zeros: no memory between steps

With the summarizer ``none`` Process works on all of [M^t | I^t], and its results for I^t are O^t. With
``concatenate`` that is the temporal Transformer or Mixer of table 2 over a window of tokens, with ``sample``
the one with strides ("aggressive (spatial) pooling and (temporal) striding"). "Pooling + sampling" of table 5 is the
latter on averaged input tokens: it has the mAP (21.63) and the GFLOPS (0.103) of "temporal Transformer (16 + 16)".

Fast form: the n input tokens of all steps are known before the first step. Their share of the read and of the write is
summarized for all steps at once (``PartialSoftmax``), and the loop over steps reads m + r tokens only. Merging such a
share costs about as much as summarizing m tokens, so fewer input tokens than that stay in the loop.

Paper: Ryoo et al. 2023 (Token Turing Machines), section 2, equations 1 to 9, tables 3 to 5. Released code: Scenic,
token_turing.

Differs:

- ``positions="released"`` writes in the order M, I, O of the released code instead of M, O, I; the order only assigns
  rows of the write table to tokens (and neighbors, for pooling). "none" has no tables, which is the default of the
  released code; the paper always has them. Erase and add and ``concatenate`` have no write table.
- The memory starts as zeros, as in the released code (the paper does not specify it), or is learned
  (``learned_initial_state``). The first-in-first-out memory of ``concatenate`` starts full of these tokens and holds
  whole steps.
- The sampling of history is not published; every fifth token gives the 16 of table 2 from the five steps of 16 before
  the present one. The temporal Mixer's hidden width along the tokens is d, which fits the FLOPS of table 2.
- ``none`` does not compute the write, whose result would not be used.
- A linear map brings the input tokens to width d when they have another one.
- No dropout (the released code's default rate is 0).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, companion
from recollect.cores.stream import Stream
from recollect.cores.ttm.config import STRIDE, WINDOWS, TokenTuringMachineConfig
from recollect.cores.ttm.erase_add import EraseAdd
from recollect.cores.ttm.processors import TOKEN_HIDDEN_DIM, TokenProcessor
from recollect.cores.ttm.summarizers import (
    PartialSoftmax,
    Summarizer,
    fuse_summarizers,
    make_summarizer,
    unbind_steps,
)
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection, linear_flops
from recollect.ops.fused_pooling import FusedWeights, extra_flops, fused_pooling

GROWS = (
    "memory='erase_add_released' adds about one to every entry at every step, as the released code does, so that after "
    "some hundred steps numbers may leave float32, and float16 much earlier; 'erase_add' does not"
)


class TokenTuringMachineState(NamedTuple):
    """State of a TokenTuringMachine: its memory tokens."""

    memory: Tensor
    """float ``[b, m, d]``; ``[b, 5 m, d]`` where every fifth token is read."""


class StepWeights(NamedTuple):
    """Tensors that depend on the weights alone, computed once per call."""

    read_rows: Tensor | None
    """``[m, d]``: rows of the read table for M; ``[m + n, d]``, also for I, when the loop reads it."""
    read_input_rows: Tensor | None
    """``[n, d]``: rows of the read table for I, when it is read before the loop."""
    write_rows: Tensor | None
    """``[m + r, d]``: rows of the write table for M, O; ``[m + r + n, d]``, also for I, when the loop reads it."""
    write_input_rows: Tensor | None
    """``[n, d]``: rows of the write table for I, when it is read before the loop."""
    fused: FusedWeights | None
    """The mlp summarizers of many tokens (``ops/fused_pooling.py``)."""


class TokenTuringMachine(MemoryCore[TokenTuringMachineState]):
    """Token Turing Machine; equations and differences are at the top of this module."""

    stream_type = companion("recollect.cores.ttm.core:TokenTuringMachineStream")
    reference_unroll = companion("recollect.cores.ttm.reference:reference_unroll")
    runs_in_float16 = True

    def __init__(self, config: TokenTuringMachineConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        d, n, m, r = config.dim, config.num_tokens, config.num_slots, config.num_reads
        self.input_shape = (n, input_dim)
        self.output_shape = (r, d)
        self.reads_all = config.summarizer == "none"
        self.hoists = n > m and not self.reads_all
        """Whether input tokens are summarized before the loop; the results are the same."""
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
            # A step writes from [M | O | I]; these are their rows of the write table.
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
        """Return zeros, or the learned initial state."""
        if self.start is not None:
            return TokenTuringMachineState(self.start.repeat(batch_size, 1, 1))
        return TokenTuringMachineState(self.zeros(batch_size, self.config.held, self.config.dim))

    def unroll(
        self, inputs: Tensor, state: TokenTuringMachineState, is_first: Tensor
    ) -> tuple[Tensor, TokenTuringMachineState]:
        """Summarize the inputs of all steps, then loop over steps and memory."""
        tokens = self.project(inputs)
        weights = self.step_weights(tokens)
        read, write = self.summarize_inputs(tokens, weights)
        initial = self.initial_state(inputs.shape[0]).memory
        memory, outputs, t = state.memory, [], inputs.shape[1]
        # unbind, not an index, whose gradient would be zeros of the full shape with one step in it.
        parts = zip(is_first.unbind(1), tokens.unbind(1), unbind_steps(read, t), unbind_steps(write, t), strict=True)
        for first, step_tokens, step_read, step_write in parts:
            memory = torch.where(first[:, None, None], initial, memory)
            output, memory = self.step(memory, step_tokens, step_read, step_write, weights)
            outputs.append(output)
        return torch.stack(outputs, 1), TokenTuringMachineState(memory)

    def step_weights(self, tokens: Tensor) -> StepWeights:
        """Compute everything that depends on the weights alone, for tokens of this shape."""
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
        pairs = (
            [(self.read, read_inputs)] if self.write is None else [(self.read, read_inputs), (self.write, write_inputs)]
        )
        fused = fuse_summarizers(pairs, tokens)
        return StepWeights(read, read_inputs, write, write_inputs, fused)

    def summarize_inputs(
        self, tokens: Tensor, weights: StepWeights
    ) -> tuple[PartialSoftmax | None, PartialSoftmax | None]:
        """Summarize tokens ``[b, ..., n, d]`` without positions for read and write; None where the loop reads them."""
        if not self.hoists:
            return None, None
        is_recorded = self.read.tap.has_listeners or (self.write is not None and self.write.tap.has_listeners)
        if weights.fused is not None and not is_recorded:  # the kernel has no weights for a Tap
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
        """Compute O^t ``[b, r, d]`` and M^{t+1} by equations 6 to 8.

        ``memory`` is M^t ``[b, m, d]``, or the tokens that it is sampled from, ``tokens`` are I^t ``[b, n, d]``;
        ``read`` and ``write`` come from :meth:`summarize_inputs`, ``weights`` from :meth:`step_weights`.
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
        """Sum of projection, read, process and write.

        With p = m + n tokens of the read, q = m + r + n tokens of the write, and the mlp summarizer

            2 n d_in d                           input projection, when d_in is not d
            + 2 * 64 (d + r) p + 2 r p d         read: scores and means
            + 2 * 64 (d + m) q + 2 m q d         write
            + Process                            processors.py

        Other summarizers have other scores, other memories another write or none; the fused kernel adds a little.
        """
        n, m, r, d = self.config.num_tokens, self.config.num_slots, self.config.num_reads, self.config.dim
        flops = n * linear_flops(self.project) + self.process.flops() + self.read.flops(m + n, self.hoists)
        if self.write is not None:
            flops += self.write.flops(m + r + n, self.hoists)
        if self.erase_add is not None:
            flops += self.erase_add.flops(m)
        fused = self.step_weights(self.zeros(1, n, d)).fused
        return flops + (0 if fused is None else extra_flops(fused, n))


def add(tokens: Tensor, rows: Tensor | None) -> Tensor:
    """Add rows of a position table to tokens, if there is one."""
    return tokens if rows is None else tokens + rows


class TokenTuringMachineStream(Stream):
    """Stream of a :class:`TokenTuringMachine`: a step is one step of the core's loop, with prepared weights."""

    core: TokenTuringMachine

    def __init__(self, core: TokenTuringMachine, batch_size: int) -> None:
        with torch.no_grad():
            self._weights = core.step_weights(core.zeros(1, core.config.num_tokens, core.config.dim))
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs ``[b, n, d_in]``."""
        tokens = self.core.project(inputs)
        memory = self._state.memory
        if is_first is not self._never:
            memory = torch.where(is_first[:, None, None], self._fresh.memory, memory)
        read, write = self.core.summarize_inputs(tokens, self._weights)
        outputs, memory = self.core.step(memory, tokens, read, write, self._weights)
        self._state = TokenTuringMachineState(memory.to(self._fresh.memory.dtype))
        return outputs
