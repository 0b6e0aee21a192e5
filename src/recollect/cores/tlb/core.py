"""Temporal latent bottleneck (TLB): a fast stream inside one chunk, and a slow stream of slots over all chunks.

The sequence is cut into chunks X_l of K steps. N slots I_l carry the past from chunk to chunk, and are written once
per chunk. The module F has L self-attention layers inside the chunk, with a cross-attention layer that reads the slots
after every R of them; the module G writes the output of F into the slots:

    S:  X    <- X + ATTENTION(LN(X), LN(X), LN(X)),    X <- X + FFN(LN(X))       inside the chunk, causal
    C:  X    <- X + ATTENTION(LN(X), LN(I_l), LN(I_l)), X <- X + FFN(LN(X))      (3)
    F:  X'_l  = S S C S S C ... (X_l + P)                                         (1), here R = 2
    G:  I'    = I_l + ATTENTION(LN(I_l), LN(X'_l), LN(X'_l)),  I_{l+1} = I' + FFN(LN(I'))    (2), (4)

P are positions in the chunk. All chunks share the weights of a layer; I_l are the slots from before chunk l, for all of
F. The outputs are LN(X'_l), one per step; :class:`SlotReadout` gives the mean of LN(I) over slots.

Paper: Didolkar et al., "Temporal Latent Bottleneck: Synthesis of Fast and Slow Processing Mechanisms in Sequence
Learning" (2022), section 2.2, equations 1-4 and algorithm 1; ablations of tables 2 and 4.

Differs: a cross layer follows every R-th self layer, as in the text, figure 1 and the authors' code; the literal
algorithm 1 is an option. The initial slots, which the paper does not specify, are learned: equal slots without slot
positions would stay equal. A last chunk that is shorter than K is kept (the paper drops it). A norm follows the last
layer, as in other pre-norm stacks (``final_norm`` removes it). GELU by tanh, the norms' epsilon, no biases in
attention, and positions in the chunk follow the authors' code. Gradients flow through all chunks of a call.

In a stream a step must not see later ones, so self-attention is causal in the chunk (``causal``). Two-way chunks,
the paper's choice for classification, are for whole sequences: :meth:`TemporalLatentBottleneck.encode`. Global
positions are added to the inputs by the caller, with ``positions="none"``.

Nothing before the first cross layer depends on the slots, so these layers run for all chunks of all rows at once, and
only the rest is a loop over chunks (``level.py``). The state has the inputs of the unfinished chunk, whose layers run
again at the next call (less than one chunk of work); the stream keeps their keys and values instead.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.stream import Stream
from recollect.cores.tlb.blocks import PreNormBlock
from recollect.cores.tlb.chunks import plan_chunks, whole_chunks
from recollect.cores.tlb.config import TemporalLatentBottleneckConfig
from recollect.cores.tlb.level import FoldedLevel, Level
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import input_projection
from recollect.layers.finite import is_finite
from recollect.layers.positions import sinusoid
from recollect.layers.window_attention import slide
from recollect.ops.reduced_linear import CacheFormat, WeightFormat

DROPOUT_EXEMPTION = (
    "in training, masks of dropout are drawn chunk by chunk, and the number of chunks of a call depends on the resets "
    "of all rows: other random numbers are drawn, but no information moves (without dropout the line passes)"
)


class TemporalLatentBottleneckState(NamedTuple):
    """Slots, and the inputs of the unfinished chunk (K steps, N slots, s slow states)."""

    slots: Tensor
    """``[b, s, N, d]``: I before the running chunk; s is 1, or the number of cross layers with ``per_layer``."""
    inputs: Tensor
    """``[b, K - 1, d]``: projected inputs of the running chunk, right-aligned after zeros."""
    position: Tensor
    """Long ``[b]``: steps of the running chunk so far. With ``detach_every`` = m, plus the chunk's number times K:
    0 for the episode's first chunk, then 1 to m in turn."""


class TemporalLatentBottleneck(MemoryCore[TemporalLatentBottleneckState]):
    """Fast self-attention in chunks, and slow slots that carry the past from chunk to chunk."""

    stream_type = companion("recollect.cores.tlb.stream:TemporalLatentBottleneckStream")
    reference_unroll = companion("recollect.cores.tlb.reference:reference_unroll")
    runs_in_float16 = True

    def __init__(self, config: TemporalLatentBottleneckConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        details, dim = config.details, config.dim
        self.input_shape, self.output_shape = (input_dim,), (dim,)
        self.project = input_projection(input_dim, dim)
        blocks: list[PreNormBlock] = []
        levels: list[Level] = []
        for kind in config.layers:
            blocks.append(PreNormBlock(config, cross=kind == "cross"))
            if kind == "cross" and config.feedback == "per_layer":
                levels.append(Level(blocks, PreNormBlock(config, cross=True)))
                blocks = []
        if config.feedback != "per_layer":
            levels.append(Level(blocks, PreNormBlock(config, cross=True)))
            blocks = []
        self.levels = cast(Sequence[Level], nn.ModuleList(levels))
        # Self layers above the last slow state (per_layer).
        self.tail = cast(Sequence[PreNormBlock], nn.ModuleList(blocks))
        self.final_norm = nn.LayerNorm(dim, eps=details.norm_eps) if details.final_norm else nn.Identity()
        self.positions = (
            nn.Parameter(torch.randn(config.chunk_len, dim) * 0.02) if config.positions == "learned" else None
        )
        self.slots = None
        if details.initial_slots == "learned":
            self.slots = nn.Parameter(torch.randn(len(levels), config.num_slots, dim) * 0.02)
        if details.detach_every is not None:
            self.stops_gradient = f"between stretches of {details.detach_every} chunks (detach_every)"
        if config.dropout or details.attention_dropout:
            self.exemptions = dict.fromkeys(("rows", "future"), DROPOUT_EXEMPTION)
        self.waves: Tensor
        places = torch.arange(max(config.chunk_len, config.num_slots))
        self.register_buffer("waves", sinusoid(places, dim), persistent=False)

    def local_positions(self) -> Tensor | None:
        """Return P, the positions in a chunk, ``[K, d]``."""
        if self.config.positions == "sinusoid":
            return self.waves[: self.config.chunk_len]
        return self.positions

    def initial_slots(self) -> Tensor:
        """Return the slots at the start of an episode, ``[s, N, d]``."""
        config = self.config
        if self.slots is not None:
            return self.slots
        once = config.details.initial_slots == "sinusoid_once"
        slots = self.waves[: config.num_slots] if once else self.zeros(config.num_slots, config.dim)
        return slots.expand(len(self.levels), -1, -1)

    def folded_levels(self) -> list[FoldedLevel]:
        """Return the levels with folded weights, bottom up."""
        details, initial = self.config.details, self.initial_slots()
        every = details.initial_slots == "sinusoid_every_chunk"
        added = self.waves[: self.config.num_slots] if every else None
        always = details.empty_chunk == "add_slots"
        top = len(self.levels) - 1
        return [
            FoldedLevel(
                level,
                after=self.tail if i == top else (),
                initial=initial[i],
                added=added,
                always=always,
                causal=self.config.causal,
            )
            for i, level in enumerate(self.levels)
        ]

    def initial_state(self, batch_size: int) -> TemporalLatentBottleneckState:
        """Return the initial slots, without an unfinished chunk."""
        config = self.config
        return TemporalLatentBottleneckState(
            slots=self.initial_slots().repeat(batch_size, 1, 1, 1),
            inputs=self.zeros(batch_size, config.chunk_len - 1, config.dim),
            position=self.zeros(batch_size, dtype=torch.long),
        )

    def unroll(
        self, inputs: Tensor, state: TemporalLatentBottleneckState, is_first: Tensor
    ) -> tuple[Tensor, TemporalLatentBottleneckState]:
        """Run all chunks of the call, and keep the inputs of the unfinished one."""
        self._require_causal()
        new = self.project(inputs)  # b t d
        plan = plan_chunks(is_first, state.position, self.config.chunk_len, self.config.details.detach_every)
        x, slots = self._with_positions(plan.gather_steps(state.inputs, new)), []
        for i, level in enumerate(self.folded_levels()):
            x, written = level.walk(x, state.slots[:, i], plan.marks)
            slots.append(written)
        outputs = plan.gather_outputs(self.final_norm(x))
        cached = slide(state.inputs, new, plan.position % self.config.chunk_len)
        return outputs, TemporalLatentBottleneckState(torch.stack(slots, 1), cached, plan.position)

    def encode(
        self,
        inputs: Tensor,
        padding: Tensor | None = None,
        *,
        remainder: Literal["update", "drop"] = "update",
        chunk_len: int | None = None,
    ) -> tuple[Tensor, TemporalLatentBottleneckState]:
        """Read whole sequences at once, from the initial slots; the only mode of two-way chunks.

        Padded steps are not read and their outputs are zeros; a chunk of padding alone leaves the slots unchanged
        (see ``details.empty_chunk``).

        Args:
            inputs: float ``[b, t, input_dim]``.
            padding: bool ``[b, t]``, True for padding; None is no padding.
            remainder: whether a last chunk of a row with fewer than ``chunk_len`` steps updates the slots, or not (the
                paper counts floor(t / K) updates). Its outputs are computed in either case.
            chunk_len: steps in a chunk of this call, if not the config's K: an image of a higher resolution has more
                patches (section 7.1).

        Returns:
            Outputs ``[b, t, dim]`` and the state after the last chunk, for :class:`SlotReadout`. A later call of the
            core on this state would begin a new chunk.

        Raises:
            ValueError: wrong shapes or dtypes, an unknown ``remainder``, or another ``chunk_len`` where the config has
                positions in the chunk.
        """
        require(remainder in ("update", "drop"), "remainder", remainder, "choose 'update' or 'drop'")
        c = require_chunk_len(self.config, chunk_len)
        state = self.initial_state(inputs.shape[0])
        blank = inputs.new_zeros(inputs.shape[:2], dtype=torch.bool)
        self.check(inputs, state, blank)
        if padding is not None and (padding.dtype != torch.bool or padding.shape != blank.shape):
            raise ValueError(
                f"padding is {padding.dtype} {list(padding.shape)}; it must be bool {list(blank.shape)}: "
                "True where there is nothing"
            )
        finite = is_finite(inputs).all(-1)
        used = finite if padding is None else finite & ~padding
        t = inputs.shape[1]
        # One name for all stages, so that a long row is in memory once.
        x = self.project(torch.where(used[..., None], inputs, 0.0))
        x = F.pad(x, (0, 0, 0, -t % c)).unflatten(1, (-1, c)).transpose(0, 1).contiguous()  # n b K d
        drop, stretch = remainder == "drop", self.config.details.detach_every
        marks = whole_chunks(padding, t, c, stretch, drop=drop, device=inputs.device)
        x, slots = self._with_positions(x), []
        for i, level in enumerate(self.folded_levels()):
            x, written = level.walk(x, state.slots[:, i], marks)
            slots.append(written.to(state.slots.dtype))
        outputs = self.final_norm(x).transpose(0, 1).flatten(1, 2)[:, :t]
        if padding is not None:
            outputs = torch.where(padding[..., None], 0.0, outputs)
            finite = finite | padding
        return torch.where(finite[..., None], outputs, torch.nan), state._replace(slots=torch.stack(slots, 1))

    def _with_positions(self, chunks: Tensor) -> Tensor:
        """Return X_l + P for projected inputs ``[n, b, K, d]``."""
        positions = self.local_positions()
        x = chunks if positions is None else chunks + positions
        return F.dropout(x, self.config.dropout, self.training)

    def stream(self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32") -> Stream:
        """Make a stream, whose step costs one step of each layer; slots are written when a chunk is complete."""
        self._require_causal()
        return super().stream(batch_size, weights=weights, cache=cache)

    def _require_causal(self) -> None:
        if not self.config.causal:
            raise ValueError(
                "causal=False: a stream must not look ahead inside a chunk; build the core with causal=True, or read "
                "whole sequences with core.encode(inputs, padding), in a SequenceModelConfig with whole_rows=True"
            )

    def attended_steps(self, clock: Tensor) -> Places:
        """Return the running chunk of self-attention, for calls that begin a chunk.

        Taps record whole chunks, several of them in the batch axis where they are independent of each other.
        """
        steps = clock[..., None] // self.config.chunk_len * self.config.chunk_len
        steps = steps + torch.arange(self.config.chunk_len, device=clock.device)
        first = torch.where(steps <= clock[..., None], steps, -1)
        blocks = [
            (f"levels.{i}.{part}.{j}", block)
            for i, level in enumerate(self.levels)
            for part, layers in (("before", level.before), ("inner", level.inner))
            for j, block in enumerate(layers)
        ]
        blocks += [(f"tail.{j}", block) for j, block in enumerate(self.tail)]
        return {f"{name}.attention.tap": (first, first + 1) for name, block in blocks if not block.cross}

    def largest_counters(self) -> dict[str, int]:
        """Return the counters of the state."""
        return {"position": self.config.chunk_len * (1 + (self.config.details.detach_every or 0))}

    def flops_per_step(self) -> int:
        """Return the mean of one streamed step over a chunk of K steps, rounded up.

            input projection    2 d_in d
            self layer          2 (4 w d) + 2 (2 w (K + 1) / 2) + feed-forward
            cross layer         2 (2 w d) + 2 (2 w N) + feed-forward
            per slow state      2 (2 w d)                                  keys and values of the output
            write, per chunk    2 N ((2 C + 2) w d + 2 w K) + N feed-forwards, for C cross layers that read the slots

        with w = heads * head_dim, and 2 (2 d d_hidden) for a feed-forward.
        """
        config, k, n, d = self.config, self.config.chunk_len, self.config.num_slots, self.config.dim
        w = d if config.details.head_dim is None else config.num_heads * config.details.head_dim
        forward = 4 * d * feedforward_width(d, config.hidden_dim)
        forward_cross = forward if config.details.cross_feedforward else 0
        crosses = config.layers.count("cross")
        chunk = k * 2 * self.input_shape[0] * d if isinstance(self.project, nn.Linear) else 0
        chunk += config.num_layers * (k * (8 * w * d + forward) + 2 * w * k * (k + 1))
        chunk += crosses * k * (4 * w * d + 4 * w * n + forward_cross)
        for level in self.folded_levels():
            chunk += k * 4 * w * d + n * ((4 * len(level.crosses) + 4) * w * d + 4 * w * k + forward_cross)
        return -(-chunk // k)


def require_chunk_len(config: TemporalLatentBottleneckConfig, chunk_len: int | None) -> int:
    """Return the chunk length of one call of ``encode``; other than the config's only without positions."""
    if chunk_len is None or chunk_len == config.chunk_len:
        return config.chunk_len
    require(chunk_len > 0, "chunk_len", chunk_len, "give a positive number")
    remedy = f'the config has positions of {config.chunk_len} steps: build the core with positions="none"'
    require(config.positions == "none", "chunk_len", chunk_len, remedy)
    return chunk_len


class SlotReadout(nn.Module):
    """Mean over slots of LN(I), for the classification of whole sequences."""

    def __init__(self, config: TemporalLatentBottleneckConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.dim, eps=config.details.norm_eps)

    def forward(self, state: TemporalLatentBottleneckState) -> Tensor:
        """Read one vector ``[b, dim]`` from the slots, the last of several slow states (``feedback="per_layer"``)."""
        return self.norm(state.slots[:, -1]).mean(1)
