"""Hierarchical chunk memory (HCAM, HTM): episodes are stored in chunks, and a step reads the most relevant of them.

Each layer, with n = LayerNorm and x_t its input:

    y_t = x_t + LocalAttention(n(x_{t-w} ... x_t))           the last w = memory_len steps of the episode, and itself
    z_t = y_t + sum_{i in top k} R_i MHA(n(y_t), C_i + P)    C_i: the steps of chunk i, P: sinusoid of their age
    x'_t = z_t + W_2 relu(W_1 n(z_t) + b_1) + b_2

    R = softmax over the top k of W_q n(y_t) . W_k S / sqrt(d)             S_i: the mean of chunk i

Step t adds x_t, the layer's input, to the chunk in progress. When this has c = chunk_len steps it is complete: C_i are
its steps, S_i is their mean. Chunks are counted from the episode's start. **A complete chunk is visible from the next
step on.** Until then only local attention sees its steps, which is why memory_len >= chunk_len - 1. With
``chunk_overlap=1`` the last step of a chunk is also the first of the next. ``num_chunks`` chunks are kept: a new one
replaces the oldest.

With ``ChunkAttentionVariant(gate="gru")`` the gate of GTrXL replaces every sum of a layer (no improvement in appendix
D.6).

``is_first`` clears chunks, chunk in progress and window. With ``carry_across_episodes`` the chunks stay, and the steps
of the chunk in progress become a short chunk, which the new episode sees at once. A short chunk has its steps at the
end; the empty places before them are excluded from mean and attention.

No gradient enters a chunk (with ``reading.chunk_gradients="call"``, ours, chunks pass gradients as the window does).
The window passes gradients as in Transformer-XL: within a call, and further if the caller does not ``detach`` the
state. The chunk in progress is not in the state: its steps are the newest of the window.

Paper: Lampinen et al., Towards mental time travel: a hierarchical memory for reinforcement learning agents (2021),
section 2; sizes in table 1, appendix A.1 (Ballet: 4 layers of 512, 8 heads, chunks of 32, k 8); k is varied in appendix
D.3. The attention is that of the released code; the code of writing and agent was not released.

Differs:

- Local attention has a sliding window with the relative positions of Transformer-XL, so that no step depends on where a
  call starts (the paper attends "within the present window", that of a training unroll).
- The paper's memory is always larger than the episode (table 1); here it is bounded, see above.
- Paper and code differ in the relevance; the code is the default, see ``ChunkAttentionVariant``.
- A step that sees no chunk yet reads nothing; in the code it reads the first k, which are masked, with equal weights.
- Dropout, which the paper does not mention, applies to the outputs of sub-layers and to the hidden layer.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.hcam.attention import HierarchicalAttention, LocalAttention
from recollect.cores.hcam.config import HierarchicalChunkMemoryConfig
from recollect.cores.stream import COUNTED
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, input_projection
from recollect.layers.gates import make_gate
from recollect.layers.positions import sinusoid
from recollect.layers.window_attention import slide, steps_since_first, visible_steps, window_steps


class LayerMemory(NamedTuple):
    """State of one layer: its raw inputs, oldest first; empty places are zero."""

    window: Tensor
    """``[b, w, d]``: the last steps of the episode, right-aligned."""
    contents: Tensor
    """``[b, n, c, d]``: chunks, right-aligned."""
    keys: Tensor
    """``[b, n, d]``: their means."""


class HierarchicalChunkMemoryState(NamedTuple):
    """State of a HierarchicalChunkMemory."""

    layers: tuple[LayerMemory, ...]
    lengths: Tensor
    """``[b, n]`` int64: steps in each chunk (the last ones of its c places); 0 is no chunk. Without
    ``carry_across_episodes`` a caller removes a chunk by writing 0 here."""
    steps: Tensor
    """``[b]`` int64: steps of the running episode."""


class Plan(NamedTuple):
    """Places that one call reads and writes, the same for all layers; f is the most new chunks of a row."""

    visible: Tensor
    """bool ``[b, t, w + 1]``: steps that local attention sees."""
    held: Tensor
    """bool ``[b, w]``: steps of the incoming window that belong to the running episode."""
    members: Tensor
    """long ``[b, f, c]``: the steps of new chunks, as places in (the last c - 1 steps of the window, the call)."""
    lengths: Tensor
    """long ``[b, n + f]``: steps in the incoming chunks, then in the new ones; 0 is no chunk."""
    mask: Tensor
    """bool ``[b, t, n + f]``: chunks that are visible to a step."""
    kept: Tensor
    """long ``[b, n]``: which of the n + f chunks are kept after the call."""
    kept_lengths: Tensor
    """long ``[b, n]``: steps in those."""
    steps: Tensor
    """long ``[b]``: steps of the running episode after the call."""


def make_plan(config: HierarchicalChunkMemoryConfig, is_first: Tensor, steps: Tensor, lengths: Tensor) -> Plan:
    """Plan one call with ``is_first`` ``[b, t]``, from ``steps`` and ``lengths`` of the state."""
    c, n, w, carry = config.chunk_len, config.num_chunks, config.memory_len, config.carry_across_episodes
    t, device = is_first.shape[1], is_first.device
    since = steps_since_first(is_first, steps)
    ends = config.completes(since + 1)  # b t, this step completes a chunk
    # With carry, the chunk in progress is written when its episode ends, before the new episode's first step.
    before_step = torch.cat((steps[:, None], since[:, :-1] + 1), 1)  # b t, steps of the episode that a reset ends
    cut = is_first & (before_step > 0) & ~config.completes(before_step) & carry

    # New chunks are numbered from 0 in each row.
    written = (ends | cut).long().cumsum(1)  # at most one per step: with c = 1 nothing is in progress
    f = max_new_chunks(config, written)
    number = torch.where(ends | cut, written - 1, f)
    start = by_number(number, torch.arange(t, device=device) - cut.long(), f)
    new_lengths = by_number(number, torch.where(cut, config.in_progress(before_step), c), f)
    members = (start[..., None] + torch.arange(c, device=device)).clamp(0, c + t - 2)

    # How many of the newest chunks are visible to each step, and how many there are after the call.
    alive = lengths > 0 if carry else (lengths > 0) & ~is_first[:, :1]
    stored = (alive.long().cumsum(1) > 0).sum(1)  # from the oldest on: a removed chunk leaves a gap of length 0
    readable = written - ends.long()  # a chunk that step t completes is visible later, one that its reset cuts at once
    count = stored[:, None] + readable if carry else config.chunks_after(since)
    kept_count = stored + written[:, -1] if carry else config.chunks_after(since[:, -1] + 1)

    # Incoming chunks are right-aligned and new ones follow, so the visible ones are always the newest, without a gap.
    lengths = torch.cat((torch.where(alive, lengths, 0), new_lengths), 1)
    order, newest = torch.arange(n + f, device=device), n + readable[..., None]
    kept = written[:, -1:] + torch.arange(n, device=device)
    age = torch.arange(n, 0, -1, device=device)
    return Plan(
        visible=visible_steps(since, w),
        held=(torch.arange(w, 0, -1, device=device) <= steps[:, None]) & ~is_first[:, :1],
        members=members,
        lengths=lengths,
        mask=(order < newest) & (order >= newest - count.clamp(max=n)[..., None]) & (lengths > 0)[:, None],
        kept=kept,
        kept_lengths=torch.where(age <= kept_count[:, None], lengths.gather(1, kept), 0),
        steps=since[:, -1] + 1,
    )


def max_new_chunks(config: HierarchicalChunkMemoryConfig, written: Tensor) -> int:
    """Return f, the most chunks that a call may write in one row; ``written`` long ``[b, t]`` counts them."""
    t = written.shape[1]
    if not config.carry_across_episodes:
        return (t - 1) // config.stride + 1  # the first may need one step only, each further one a stride
    # With carry every reset may write one. Shapes of compiled code must not depend on data.
    return t if torch.compiler.is_compiling() else int(written[:, -1].max())


def by_number(number: Tensor, values: Tensor, f: int) -> Tensor:
    """Return ``[b, f]``: the value ``[b, t]`` with each ``number``; values with number f are dropped."""
    out = torch.zeros(number.shape[0], f + 1, dtype=torch.long, device=number.device)
    return out.scatter(1, number, values.expand_as(number))[:, :f]


class HierarchicalChunkLayer(nn.Module):
    """Local attention, chunk memory and feed-forward."""

    def __init__(self, config: HierarchicalChunkMemoryConfig) -> None:
        super().__init__()
        d, hidden = config.dim, feedforward_width(config.dim, config.hidden_dim)
        self.config = config
        self.local = LocalAttention(d, config.num_heads, copying_start=config.reading.copying_start)
        self.norm_memory = nn.LayerNorm(d)
        self.memory = HierarchicalAttention(d, config.num_heads, config.top_k, reading=config.reading)
        self.norm_forward = nn.LayerNorm(d)
        self.feed_forward = FeedForward(d, hidden, activation="relu", dropout=config.dropout)
        gate = config.reading.gate
        self.gate_local, self.gate_memory, self.gate_forward = (make_gate(gate, d) for _ in range(3))

    def forward(self, x: Tensor, memory: LayerMemory, plan: Plan, features: Tensor) -> tuple[Tensor, LayerMemory]:
        """Map ``[b, t, d]`` to ``[b, t, d]`` and the memory after the call; ``features`` are of the offsets w ... 0."""
        c, stored = self.config.chunk_len, self.config.reading.stored
        window = torch.where(plan.held[..., None], memory.window, 0.0)
        timeline = stored(torch.cat((memory.window[:, window.shape[1] - c + 1 :], x), 1))
        contents, keys = self.write(timeline, memory, plan)
        count = plan.steps.clamp(max=self.config.memory_len)
        after = LayerMemory(slide(window, x, count), *self.keep(contents, keys, plan))

        valid = None
        if self.config.carry_across_episodes:
            valid = torch.arange(c, 0, -1, device=x.device) <= plan.lengths[..., None].clamp(min=1)

        def read(queries: Tensor) -> Tensor:
            return self.memory(queries, keys, contents, plan.mask, valid=valid)

        return self.attend(x, window, plan.visible, features, read), after

    def attend(
        self, x: Tensor, window: Tensor | None, visible: Tensor, features: Tensor, read: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return the output ``[b, t, d]``; ``read`` returns what queries of its shape find in the chunks."""
        x = self.gate_local(x, self._drop(self.local(x, window, visible, features)))
        x = self.gate_memory(x, self._drop(read(self.norm_memory(x))))
        return self.gate_forward(x, self.feed_forward(self.norm_forward(x)))

    def _drop(self, update: Tensor) -> Tensor:
        """Apply dropout to the output of a sub-layer, in training."""
        return F.dropout(update, self.config.dropout, self.training)

    def write(self, timeline: Tensor, memory: LayerMemory, plan: Plan) -> tuple[Tensor, Tensor]:
        """Return incoming and new chunks with their keys, ``[b, n + f, c, d]`` and ``[b, n + f, d]``."""
        b, c, n = timeline.shape[0], self.config.chunk_len, self.config.num_chunks
        lengths = plan.lengths[:, n:, None, None]  # b f 1 1
        exists = torch.arange(c, 0, -1, device=timeline.device)[:, None] <= lengths
        rows = torch.arange(b, device=timeline.device)[:, None, None]
        new = torch.where(exists, timeline[rows, plan.members], 0.0)  # b f c d
        means = new.sum(2) / lengths[..., 0].clamp(min=1)
        stored = self.config.reading.stored
        return torch.cat((stored(memory.contents), new), 1), torch.cat((stored(memory.keys), means), 1)

    @staticmethod
    def keep(contents: Tensor, keys: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
        """Return the chunks and keys that are kept after the call, ``[b, n, c, d]`` and ``[b, n, d]``."""
        rows = torch.arange(keys.shape[0], device=keys.device)[:, None]
        lasting = plan.kept_lengths > 0
        return (
            torch.where(lasting[..., None, None], contents[rows, plan.kept], 0.0),
            torch.where(lasting[..., None], keys[rows, plan.kept], 0.0),
        )


class HierarchicalChunkMemory(MemoryCore[HierarchicalChunkMemoryState]):
    """Hierarchical chunk memory; equations, paper and differences are at the top of this module."""

    stream_type = companion("recollect.cores.hcam.stream:HierarchicalChunkStream")
    lifelong_type = companion("recollect.cores.hcam.lifelong:LifelongStream")
    reference_unroll = companion("recollect.cores.hcam.reference:reference_unroll")
    discrete = True
    runs_in_float16 = True

    def __init__(self, config: HierarchicalChunkMemoryConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape = (input_dim,)
        self.output_shape = (config.dim,)
        self.project = input_projection(input_dim, config.dim)
        layers = nn.ModuleList(HierarchicalChunkLayer(config) for _ in range(config.num_layers))
        self.layers = cast(Sequence[HierarchicalChunkLayer], layers)
        if config.reading.chunk_gradients == "none":
            self.stops_gradient = "no gradient enters a stored chunk (Lampinen et al. 2021, section 2)"
        if config.carry_across_episodes:
            kept = "carry_across_episodes keeps the chunks at is_first, on purpose"
            self.exemptions = {"reset": kept, "poison": f"{kept}: a broken step stays in its chunk, as zeros"}
            if config.reading.chunk_gradients == "call":
                self.exemptions["reset-gradient"] = f"{kept}: they pass gradients like the chunks of this episode"

    def initial_state(self, batch_size: int) -> HierarchicalChunkMemoryState:
        """Return an empty memory."""
        c = self.config
        layers = tuple(
            LayerMemory(
                self.zeros(batch_size, c.memory_len, c.dim),
                self.zeros(batch_size, c.num_chunks, c.chunk_len, c.dim),
                self.zeros(batch_size, c.num_chunks, c.dim),
            )
            for _ in range(c.num_layers)
        )
        lengths = self.zeros(batch_size, c.num_chunks, dtype=torch.int64)
        return HierarchicalChunkMemoryState(layers, lengths, self.zeros(batch_size, dtype=torch.int64))

    def features(self) -> Tensor:
        """Return phi of the offsets memory_len ... 0, ``[w + 1, dim]``."""
        like = self.zeros(1)
        dtype = torch.promote_types(like.dtype, torch.float32)
        offsets = torch.arange(self.config.memory_len, -1, -1, device=like.device, dtype=dtype)
        return sinusoid(offsets, self.config.dim, "concatenated").to(like.dtype)

    def unroll(
        self, inputs: Tensor, state: HierarchicalChunkMemoryState, is_first: Tensor
    ) -> tuple[Tensor, HierarchicalChunkMemoryState]:
        """Run all layers, block by block."""
        c, block = self.config, self.config.block
        features, outputs = self.features(), []
        for part, first in zip(inputs.split(block, 1), is_first.split(block, 1), strict=True):
            plan = make_plan(c, first, state.steps, state.lengths)
            # The residual stream keeps its dtype under autocast.
            x, layers = self.project(part).to(state.layers[0].window.dtype), []
            for layer, memory in zip(self.layers, state.layers, strict=True):
                x, memory = layer(x, memory, plan, features)
                layers.append(memory)
            state = HierarchicalChunkMemoryState(tuple(layers), plan.kept_lengths, plan.steps)
            outputs.append(x)
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)), state

    def lifelong_stream(self, batch_size: int = 1, capacity_steps: int = 1_000_000, **options: Any) -> Any:
        """Make a :class:`~recollect.cores.hcam.LifelongStream` for ``capacity_steps`` steps, in host memory or a file.

        Its further ``options`` are ``folder``, ``keep_file`` and ``dtype``.
        """
        return self.lifelong_type(self, batch_size, capacity_steps, **options)

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the chunks among which every layer chooses; empty with ``carry_across_episodes``."""
        c = self.config
        if c.carry_across_episodes:
            return {}
        ends = c.completes(clock + 1).long()
        written = ends.cumsum(1)
        order = torch.arange(c.num_chunks + max_new_chunks(c, written), device=clock.device)
        newest = c.num_chunks + (written - ends)[..., None]  # as in make_plan: the places before it are visible
        number = c.chunks_after(clock)[..., None] - (newest - order)
        first = torch.where((order < newest) & (order >= newest - c.num_chunks) & (number >= 0), number * c.stride, -1)
        places = first, torch.where(first < 0, -1, first + c.chunk_len)
        return {f"layers.{i}.memory.choice_tap": places for i in range(c.num_layers)}

    def read_steps(self, clock: Tensor) -> Places:
        """Return the steps inside all chunks, in every layer."""
        found = {}
        for name, (first, _) in self.recalled_steps(clock).items():
            inside = first[..., None] + torch.arange(self.config.chunk_len, device=clock.device)
            step = torch.where(first[..., None] < 0, -1, inside).flatten(-2)
            found[name.removesuffix("choice_tap") + "tap"] = step, torch.where(step < 0, -1, step + 1)
        return found

    def attended_steps(self, clock: Tensor) -> Places:
        """Return the steps of the episode behind all attention weights: those of the chunks, and of every layer's
        window.
        """
        places = window_steps(clock, self.config.memory_len)
        windows = {f"layers.{i}.local.tap": places for i in range(self.config.num_layers)}
        return windows | self.recalled_steps(clock)

    def largest_counters(self) -> dict[str, int]:
        """Return the counters of the state."""
        return {"lengths": self.config.chunk_len, "steps": COUNTED}

    def flops_per_step(self) -> int:
        """Return the sum over layers, for w, c, n, k of the config, s = c - chunk_overlap, feed-forward width f.

            8 d^2 + 6 d (w + 1)             local attention: qkv and out; scores, offsets and sum
            4 d^2 + 2 d n                   chunk memory: query and out; relevance
            4 d c n                         inside all chunks, or 4 d c k where n >= 8 k
            (4 d^2 c + 2 d (d + 1)) / s     a chunk, once every s steps
            4 d f                           feed-forward
            36 d^2                          three gates, where they are gru

        and ``2 input_dim d`` for the input projection, if there is one. With ``relevance_heads`` a layer needs 2 d^2
        more, because queries are not folded into keys, and reads all chunks. A stream of many rows that reads raw steps
        (``raw_chunks.py``) computes more, and reads less.
        """
        c, d = self.config, self.config.dim
        hidden = feedforward_width(d, c.hidden_dim)
        read = c.top_k if c.stream_gathers else c.num_chunks
        layer = 12 * d * d + 6 * d * (c.memory_len + 1) + 2 * d * c.num_chunks
        layer += 4 * d * c.chunk_len * read + 4 * d * hidden
        layer += (4 * d * d * c.chunk_len + 2 * d * (d + 1)) // c.stride
        layer += 2 * d * d if c.reading.relevance_heads else 0
        layer += 36 * d * d if c.reading.gate == "gru" else 0
        project = 2 * self.input_shape[0] * d if isinstance(self.project, nn.Linear) else 0
        return c.num_layers * layer + project
