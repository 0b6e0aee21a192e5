"""Recurrent Transformer: state tokens and input tokens in, next state tokens and output tokens out.

    Z^t           = S_r(I^t)                    the n input tokens, summarized to r
    [M^{t+1} | O^t] = Process([M^t | Z^t])      m state tokens, r output tokens

The baseline of the Token Turing Machines: the processing unit reads the whole state, and its results are the next
state. Everything but Process is computed for all steps at once, before the loop.

Inputs are tokens ``[b, t, n, d_in]``, outputs are tokens ``[b, t, r, d]``. For a prediction, average the r output
tokens and apply a linear head.

Paper: Ryoo et al. 2023 (Token Turing Machines), section 3.1.3 and table 2 ("takes state tokens and input tokens to
predict the next state tokens and output tokens"; 16 + 16 tokens). Released code: Scenic, token_turing,
TokenTuringMachineSimpleUnit.

Differs:

- ``variant="released"`` reproduces the released code, which takes the *first r* results as outputs and the other m as
  next state, although the state came first in the input. By default state places stay state.
- The state starts as zeros, as in the released code, or is learned (``learned_initial_state``).
- A linear map brings the input tokens to width d when they have another one. No dropout.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, companion
from recollect.cores.ttm.config import RecurrentTransformerConfig
from recollect.cores.ttm.processors import TokenProcessor
from recollect.cores.ttm.summarizers import make_summarizer
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection, linear_flops


class RecurrentTransformerState(NamedTuple):
    """State of a RecurrentTransformer: its state tokens."""

    memory: Tensor
    """float ``[b, m, d]``."""


class RecurrentTransformer(MemoryCore[RecurrentTransformerState]):
    """Recurrent Transformer; equations and differences are at the top of this module."""

    reference_unroll = companion("recollect.cores.ttm.reference:recurrent_reference_unroll")
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
        """Return zeros, or the learned initial state."""
        if self.start is not None:
            return RecurrentTransformerState(self.start.repeat(batch_size, 1, 1))
        return RecurrentTransformerState(self.zeros(batch_size, self.config.num_slots, self.config.dim))

    def unroll(
        self, inputs: Tensor, state: RecurrentTransformerState, is_first: Tensor
    ) -> tuple[Tensor, RecurrentTransformerState]:
        """Summarize the inputs of all steps, then loop."""
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
        """Sum of ``2 n d_in d`` when d_in is not d, the summary of n tokens to r, and Process on m + r tokens."""
        n = self.config.num_tokens
        return n * linear_flops(self.project) + self.summarize.flops(n) + self.process.flops()
