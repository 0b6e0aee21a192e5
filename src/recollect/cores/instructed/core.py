"""Temporal latent bottleneck with an instruction, whose words precede the steps of every chunk.

The last m * w numbers of an input are an instruction: m words of w numbers; the numbers before them are the step. The
instruction of the first step of a chunk, W_l = words U, precedes the chunk in the fast stream:

    X_l = [W_l + Q; x_1 + P_1, ..., x_K + P_K]                                         m + K entries

    S:  X    <- X + ATTENTION(LN(X), LN(X), LN(X)),    X <- X + FFN(LN(X))             causal: x_k sees W_l, x_1 ... x_k
    C:  X    <- X + ATTENTION(LN(X), LN(I_l), LN(I_l)), X <- X + FFN(LN(X))
    G:  I_{l+1} = G(I_l, the steps of X_l without its words)

P and Q are sinusoids of the place in the chunk and in the instruction; the rest is as in
:mod:`recollect.cores.tlb.core`. The outputs are those of the steps. With ``feedback="none"`` and a chunk as long as an
episode this is the paper's baseline: a causal Transformer over [instruction; steps].

Paper: Didolkar et al., "Temporal Latent Bottleneck" (2022), section 3.2: "the language instruction is appended to each
chunk, allowing each chunk to attend to it"; for the baseline, to the sequence of states.

Differs: the paper does not specify the place of the words in a chunk; here they come first, so that a causal chunk can
read them. It does not specify whether the words write the slots; here they do not. Attention inside the instruction is
causal too. An instruction that changes inside a chunk is read at the next one.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import MemoryCore, companion
from recollect.cores.instructed.config import InstructedTransformerConfig
from recollect.cores.tlb.chunks import plan_chunks
from recollect.cores.tlb.core import DROPOUT_EXEMPTION, TemporalLatentBottleneck
from recollect.cores.tlb.level import FoldedLevel
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection
from recollect.layers.positions import sinusoid
from recollect.layers.window_attention import slide


class InstructedTransformerState(NamedTuple):
    """Slots, and the inputs and the instruction of the unfinished chunk."""

    slots: Tensor
    """``[b, N, d]``: I before the running chunk."""
    inputs: Tensor
    """``[b, K - 1, d]``: projected steps of the running chunk, right-aligned after zeros."""
    words: Tensor
    """``[b, m, d]``: projected instruction of the running chunk; zeros where there is none."""
    position: Tensor
    """Long ``[b]``: steps of the running chunk so far."""


class InstructedTransformer(MemoryCore[InstructedTransformerState]):
    """Chunks of steps after their instruction, and slots that carry the past from chunk to chunk.

    Raises:
        ValueError: ``input_dim``, which includes the words, has no numbers left for the step.
    """

    reference_unroll = companion("recollect.cores.instructed.reference:reference_unroll")
    runs_in_float16 = True
    keeps_weights = "its steps project a whole chunk with weights that are joined anew in every call"

    def __init__(self, config: InstructedTransformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.instruction_dim = config.words * config.word_dim
        remedy = f"an input has {input_dim} numbers; give fewer words, or an observation besides the instruction"
        require(self.instruction_dim < input_dim, "words", f"{config.words} x {config.word_dim}", remedy)
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.chunks = TemporalLatentBottleneck(config.inner, config.dim)
        self.project = input_projection(input_dim - self.instruction_dim, config.dim)
        self.read_words = nn.Linear(config.word_dim, config.dim) if config.words else None
        if config.dropout or config.details.attention_dropout:
            self.exemptions = dict.fromkeys(("rows", "future"), DROPOUT_EXEMPTION)
        self.waves: Tensor
        places = torch.arange(max(config.chunk_len, config.words))
        self.register_buffer("waves", sinusoid(places, config.dim), persistent=False)

    def initial_state(self, batch_size: int) -> InstructedTransformerState:
        """Return the initial slots, without an unfinished chunk."""
        config = self.config
        return InstructedTransformerState(
            slots=self.chunks.initial_slots()[0].repeat(batch_size, 1, 1),
            inputs=self.zeros(batch_size, config.chunk_len - 1, config.dim),
            words=self.zeros(batch_size, config.words, config.dim),
            position=self.zeros(batch_size, dtype=torch.long),
        )

    def split(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected steps ``[b, t, d]`` and instructions ``[b, t, m, d]`` of inputs ``[b, t, input_dim]``."""
        step, words = inputs.split((inputs.shape[-1] - self.instruction_dim, self.instruction_dim), -1)
        if self.read_words is None:
            return self.project(step), inputs.new_zeros(*inputs.shape[:2], 0, self.config.dim)
        return self.project(step), self.read_words(words.unflatten(-1, (self.config.words, self.config.word_dim)))

    def unroll(
        self, inputs: Tensor, state: InstructedTransformerState, is_first: Tensor
    ) -> tuple[Tensor, InstructedTransformerState]:
        """Run all chunks of the call, and keep inputs and instruction of the unfinished one."""
        k, m = self.config.chunk_len, self.config.words
        new, instructions = self.split(inputs)
        plan = plan_chunks(is_first, state.position, k)
        chunks = plan.gather_steps(state.inputs, new)  # n b K d
        words = self._words_of_chunks(instructions, state.words, plan.source[..., 0])  # n b m d
        x = torch.cat((words + self.waves[:m], chunks + self.waves[:k]), 2)
        x, slots = self._level().walk(x, state.slots, plan.marks)
        outputs = plan.gather_outputs(self.chunks.final_norm(x))
        unfinished = plan.position % k
        kept = state.words
        if m:
            last = words[plan.place[:, -1] // k, torch.arange(len(new), device=new.device)]
            kept = torch.where((unfinished > 0)[:, None, None], last, torch.zeros_like(last))
        cached = slide(state.inputs, new, unfinished)
        return outputs, InstructedTransformerState(slots, cached, kept, plan.position)

    def _words_of_chunks(self, instructions: Tensor, kept: Tensor, first: Tensor) -> Tensor:
        """Return the instruction at the first step of each chunk, ``[n, b, m, d]``.

        Args:
            instructions: ``[b, t, m, d]``.
            kept: ``[b, m, d]``, of the chunk that was running before the call.
            first: long ``[n, b]``, the sources of the first steps, as in :class:`ChunkPlan`.
        """
        b, t = instructions.shape[:2]
        if not self.config.words:
            return kept.new_zeros(len(first), b, 0, self.config.dim)
        cached = self.config.chunk_len - 1
        choices = torch.cat((kept[:, None], instructions, torch.zeros_like(kept)[:, None]), 1)  # b t+2 m d
        index = torch.where(first < cached, 0, first - cached + 1)
        rows = torch.arange(b, device=kept.device)
        return choices.flatten(0, 1)[index + rows * (t + 2)]

    def _level(self) -> FoldedLevel:
        details, initial = self.config.details, self.chunks.initial_slots()
        every = details.initial_slots == "sinusoid_every_chunk"
        return FoldedLevel(
            self.chunks.levels[0],
            after=(),
            initial=initial[0],
            added=self.chunks.waves[: self.config.num_slots] if every else None,
            always=False,
            causal=True,
            unwritten=self.config.words,
        )

    def largest_counters(self) -> dict[str, int]:
        """Return the counters of the state."""
        return {"position": self.config.chunk_len}

    def flops_per_step(self) -> int:
        """Return the mean of one streamed step over a chunk of K steps, rounded up; a step runs the whole chunk again.

            input            2 d_in d, with the words' own map
            self layer       E (8 w d + feed-forward) + 4 w E E               E = m + K entries
            cross layer      E (4 w d + 4 w N + feed-forward) + N 4 w d       and the slots' keys and values
            write            N 2 w d, and per chunk: E 4 w d + N (2 w d + 4 w K + feed-forward)

        with w = heads * head_dim, and 2 (2 d d_hidden) for a feed-forward. Without slots there is no write.
        """
        config, d, m = self.config, self.config.dim, self.config.words
        k, n, entries = config.chunk_len, config.num_slots, config.words + config.chunk_len
        w = d if config.details.head_dim is None else config.num_heads * config.details.head_dim
        forward = 4 * d * feedforward_width(d, config.hidden_dim)
        forward_cross = forward if config.details.cross_feedforward else 0
        step = 2 * (self.input_shape[0] - self.instruction_dim) * d if isinstance(self.project, nn.Linear) else 0
        step += 2 * m * config.word_dim * d
        step += config.num_layers * (entries * (8 * w * d + forward) + 4 * w * entries**2)
        crosses = config.inner.layers.count("cross")
        if not crosses:
            return step
        step += crosses * (entries * (4 * w * d + 4 * w * n + forward_cross) + 4 * n * w * d) + 2 * n * w * d
        write = 4 * entries * w * d + n * (2 * w * d + 4 * w * k + forward_cross)
        return step - (-write // k)
