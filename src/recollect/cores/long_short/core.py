"""Long-Short Transformer: a window of recent steps, and landmarks that summarise everything before it.

The episode is cut into segments of c = ``chunk_len`` steps, anchored at its start. With X the (pre-normed) input
of a layer, and per head i, the r = ``num_landmarks`` landmarks of a finished segment S are

    P_i = softmax over the steps of S of (X_S W_i^P)              c r
    Kbar_i = P_i^T (X_S W_i^K),   Vbar_i = P_i^T (X_S W_i^V)      r e     (dynamic projection)

and the query of step t reads landmarks and window in one softmax

    H_i = softmax( Q_i [LN_G(Kbar_i); LN_L(K_i)]^T / sqrt(e) + position scores ) [LN_G(Vbar_i); LN_L(V_i)]

over the landmarks of the newest ``num_segments`` segments that were finished before the segment of t began (the
oldest are evicted first), and over step t itself and the ``memory_len`` steps before it. LN_L and LN_G are the
"dual" layer norms over the full width, each shared by keys and values. Layers are pre-norm with a feed-forward
block; a last layer norm follows.

    x = x + H(LN(x));   x = x + FF(LN(x))

Position scores (``positions="relative"``), with a the age of a key in steps, n the number of landmarks that are
newer, s(.) the sinusoid, u and v learned per head:

    window    u . k + (q / sqrt(e) + v) . W_r s(a)
    landmark  (q / sqrt(e)) . (W_g s(n) + b_g)

With ``causal=False`` there is no stream, only :meth:`LongShortTransformer.encode` for whole sequences: home
segments of w = ``memory_len`` steps see themselves and w/2 steps on both sides, and r landmarks are projected from
the whole sequence. The caller then adds positions to the inputs.

Paper: Zhu et al., Long-Short Transformer: Efficient Transformers for Language and Vision (2021), section 3.2
(dynamic projection, equation 3), 3.3 (aggregation and DualLN, equations 5 and 6) and the causal form at the end of
3.2; the baseline of table 4 in Didolkar et al., Temporal Latent Bottleneck (2022).

Differs:
    - Caches hold projected, normed keys and values. The official language model keeps layer inputs, projects the
      window again at each call and compresses cached segments before it projects them, so that its numbers depend
      on where the calls are cut.
    - Landmarks are capped at ``num_segments`` per row; in the paper their number is a function of the length.
    - No biases in the projections; that of X W^P would cancel in its softmax.
    - The LRA code compresses keys and values that are already LN_L-normed: ``normalise_first=True``.
    - The CLS vector that the LRA code adds to the last layer is left to the reader of the outputs.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import CoreConfig, MemoryCore
from recollect.cores.long_short.layer import LayerMemory, LayerRings, LongShortBlock
from recollect.cores.long_short.segments import plan_segments
from recollect.cores.stream import Stream
from recollect.layers.feedforward import input_projection
from recollect.state import clone

BLOCK = 128  # steps whose attention is computed at once (or memory_len, if that is more): linear cost in time


class LongShortTransformerState(NamedTuple):
    """Memories of all layers, and the steps of the running episode."""

    layers: tuple[LayerMemory, ...]
    steps: Tensor  # b, int64


@dataclass(frozen=True, kw_only=True)
class LongShortTransformerConfig(CoreConfig):
    """Settings of :class:`LongShortTransformer`."""

    paper: ClassVar[str] = "Zhu et al. 2021"
    remembers: ClassVar[str] = "a window, and landmarks of old segments"

    dim: int = 128
    """Width of the core and of its output."""
    num_layers: int = 2
    """Attention and feed-forward blocks."""
    num_heads: int = 4
    """Attention heads; divides dim."""
    hidden_dim: int | None = None
    """Width of the feed-forward hidden layer; 4 * dim when None."""
    dropout: float = 0.0
    """Of attention weights and of the output of every block, in training."""
    memory_len: int = 128
    """Steps that a query sees before itself; with causal=False, width of a home segment (LRA: 8)."""
    chunk_len: int = 16
    """Steps of a segment that is compressed to landmarks (causal form only)."""
    num_landmarks: int = 2
    """Landmarks per segment and head; with causal=False, of the whole sequence (LRA: 32)."""
    num_segments: int = 32
    """Finished segments whose landmarks are kept, oldest evicted first (causal form only)."""
    positions: Literal["relative", "none"] = "relative"
    """Position scores inside the window and over landmarks (causal form only)."""
    normalise_first: bool = False
    """Compress keys and values after LN_L, as the LRA code does, instead of before it, as the paper does."""
    causal: bool = True
    """Streaming form; False is the two-way form for whole sequences, through core.encode."""

    def __post_init__(self) -> None:
        for field in ("dim", "num_layers", "num_heads", "chunk_len", "num_landmarks", "num_segments"):
            value = getattr(self, field)
            require(value >= 1, field, value, "use at least 1")
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"choose a divisor of dim={self.dim}")
        require(
            self.hidden_dim is None or self.hidden_dim >= 1, "hidden_dim", self.hidden_dim, "use at least 1, or None"
        )
        require(0.0 <= self.dropout < 1.0, "dropout", self.dropout, "use a probability in [0, 1)")
        require(self.positions in ("relative", "none"), "positions", self.positions, "use 'relative' or 'none'")
        least = self.chunk_len - 1 if self.causal else 1
        reason = "or steps leave the window before their segment has landmarks" if self.causal else "one step"
        require(self.memory_len >= least, "memory_len", self.memory_len, f"use at least {least}, {reason}")

    def build(self, input_dim: int) -> "LongShortTransformer":
        """Make the core for inputs of width ``input_dim``."""
        return LongShortTransformer(self, input_dim)


class LongShortTransformer(MemoryCore[LongShortTransformerState]):
    """Window plus landmarks of everything before it: see the equations above."""

    def __init__(self, config: LongShortTransformerConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.embed = input_projection(input_dim, config.dim)
        self.blocks = nn.ModuleList(LongShortBlock(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)

    @property
    def layers(self) -> list[LongShortBlock]:
        """The blocks, in order."""
        return cast("list[LongShortBlock]", list(self.blocks))

    def initial_state(self, batch_size: int) -> LongShortTransformerState:
        """Zeros. Raises ``ValueError`` for the two-way form, which has no stream."""
        config = self.config
        self._need(causal=True)
        entry = 2 * config.dim + config.num_heads * config.num_landmarks
        layers = tuple(
            LayerMemory(
                self.zeros(batch_size, config.memory_len, 2 * config.dim),
                self.zeros(batch_size, config.chunk_len - 1, entry),
                self.zeros(batch_size, config.num_segments * config.num_landmarks, 2 * config.dim),
            )
            for _ in range(config.num_layers)
        )
        return LongShortTransformerState(layers, self.zeros(batch_size, dtype=torch.long))

    def forward(
        self, inputs: Tensor, state: LongShortTransformerState, is_first: Tensor
    ) -> tuple[Tensor, LongShortTransformerState]:
        """The streaming form: see :class:`MemoryCore`."""
        self._need(causal=True)
        return super().forward(inputs, state, is_first)

    def unroll(
        self, inputs: Tensor, state: LongShortTransformerState, is_first: Tensor
    ) -> tuple[Tensor, LongShortTransformerState]:
        """Block by block, so that a long call costs a multiple of its length and not of its square."""
        size = max(BLOCK, self.config.memory_len)
        outputs = []
        for hidden, first in zip(self.embed(inputs).split(size, 1), is_first.split(size, 1), strict=True):
            # The masks hide what was before a reset, but weight 0 times NaN is NaN: it has to go.
            state = self.reset(first[:, 0], state)
            config, layers = self.config, []
            plan = plan_segments(first, state.steps, config.chunk_len, config.num_segments, config.num_landmarks)
            for block, memory in zip(self.layers, state.layers, strict=True):
                hidden, memory = block(hidden, memory, plan)
                layers.append(memory)
            state = LongShortTransformerState(tuple(layers), plan.steps)
            outputs.append(self.norm(hidden))
        return torch.cat(outputs, 1), state

    def encode(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """Two-way form over whole sequences.

        Args:
            inputs: float ``[b, t, d_in]``, positions included.
            padding: bool ``[b, t]``, True where there is nothing; None when every row is full.

        Returns:
            ``[b, t, d]``; zeros at padded steps, on which nothing else depends.

        Raises:
            ValueError: the core is causal, or the shapes do not fit.
        """
        self._need(causal=False)
        batch, t, *rest = inputs.shape
        if tuple(rest) != self.input_shape:
            raise ValueError(f"inputs have shape {list(inputs.shape)}; encode takes [b, t, {self.input_shape[0]}]")
        if padding is None:
            padding = torch.zeros(batch, t, dtype=torch.bool, device=inputs.device)
        if padding.dtype != torch.bool or tuple(padding.shape) != (batch, t):
            raise ValueError(f"padding is {padding.dtype} {list(padding.shape)}; it must be bool [{batch}, {t}]")
        extra = -t % self.config.memory_len
        empty = F.pad(padding, (0, extra), value=True)
        hidden = self.embed(torch.where(padding[..., None], 0.0, inputs))
        hidden = F.pad(hidden, (0, 0, 0, extra))
        for block in self.layers:
            hidden = block.encode(hidden, empty)
        return torch.where(padding[..., None], 0.0, self.norm(hidden[:, :t]))

    def stream(self, batch_size: int) -> Stream:
        """One step at a time, on ring buffers of projected keys and values."""
        return LongShortTransformerStream(self, batch_size)

    def flops_per_step(self) -> int:
        """A sum over layers, with w = memory_len, s = num_segments and r = num_landmarks.

            2d (3d + hr) + 2 d^2            projections
            4d (w + 1 + sr)                 scores and sums over window and landmarks
            2d (w + 1)                      position scores of the window, when relative
            4rd                             dynamic projection: 4crd once per c steps
            4d hidden                       feed-forward

        and ``2 input_dim d`` for the input projection, if there is one.
        """
        config, d = self.config, self.config.dim
        hidden = 4 * d if config.hidden_dim is None else config.hidden_dim
        window, far = config.memory_len + 1, config.num_segments * config.num_landmarks
        scores = 2 * d * window if config.positions == "relative" else 0
        attention = 4 * d * (window + far) + scores + 4 * config.num_landmarks * d
        project = 2 * d * (3 * d + config.num_heads * config.num_landmarks) + 2 * d * d
        embed = 2 * self.input_shape[0] * d if isinstance(self.embed, nn.Linear) else 0
        return embed + config.num_layers * (project + attention + 4 * d * hidden)

    def _need(self, *, causal: bool) -> None:
        if self.config.causal != causal:
            raise ValueError(
                "causal=False: this core reads whole sequences, use core.encode, or build it with causal=True to stream"
                if causal
                else "causal=True: this core streams, call it with a state, or build it with causal=False to encode"
            )


class LongShortTransformerStream(Stream):
    """A live :class:`LongShortTransformer`: nothing is projected twice, and only landmarks are ever moved."""

    core: LongShortTransformer

    def __init__(self, core: LongShortTransformer, batch_size: int) -> None:
        with torch.no_grad():
            self._rings = [LayerRings(block, batch_size) for block in core.layers]
        super().__init__(core, batch_size)

    @property
    def state(self) -> LongShortTransformerState:
        """The memory as the core's state (a copy)."""
        steps = torch.tensor(self._steps, device=self._never.device)
        phase = steps % self.core.config.chunk_len
        return LongShortTransformerState(tuple(clone(ring.dump(phase)) for ring in self._rings), steps)

    @torch.no_grad()
    def load_state(self, state: LongShortTransformerState) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        for ring, memory in zip(self._rings, state.layers, strict=True):
            ring.load(memory)
        # Counters live in Python: no step waits for a device to learn whether a segment ends.
        self._steps: list[int] = state.steps.tolist()

    def buffers(self) -> list[Tensor]:
        """Rings, landmarks with and without positions, and position keys of all layers."""
        kept = []
        for ring in self._rings:
            kept += [ring.window.data, ring.segment.data, ring.landmarks]
            kept += [ring.keys, ring.far, ring.near] if ring.attention.relative else []
        return kept

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """One step on checked inputs."""
        core = self.core
        if is_first is not self._never and any(firsts := is_first.tolist()):
            self._steps = [0 if first else steps for first, steps in zip(firsts, self._steps, strict=True)]
            for ring in self._rings:
                ring.clear(is_first)
        stream = core.embed(inputs)
        hidden, (ends, rows) = self._hidden(), self._ends()
        for ring in self._rings:
            stream = ring.step(stream, hidden)
            if ends:
                ring.finish(rows)
        self._steps = [steps + 1 for steps in self._steps]
        return core.norm(stream)

    def _ends(self) -> tuple[bool, Tensor | None]:
        """Whether a segment ends with this step, and in which rows (None: in all)."""
        chunk = self.core.config.chunk_len
        ends = [steps % chunk == chunk - 1 for steps in self._steps]
        return any(ends), None if all(ends) else torch.tensor(ends, device=self._never.device)

    def _hidden(self) -> Tensor | None:
        """Unused places ``[b*h, 1, s*r+w+1]``; None once every row is full, from where on it stays so."""
        config = self.core.config
        slots = config.num_segments * config.num_landmarks
        if min(self._steps) >= max(config.memory_len, config.num_segments * config.chunk_len):
            return None
        steps, device = torch.tensor(self._steps, device=self._never.device)[:, None], self._never.device
        far = torch.arange(slots, 0, -1, device=device) > steps // config.chunk_len * config.num_landmarks
        near = torch.arange(config.memory_len, -1, -1, device=device) > steps
        return torch.cat((far, near), -1).repeat_interleave(config.num_heads, 0)[:, None]
