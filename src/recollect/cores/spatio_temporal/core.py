"""Attention to places, steered by a Transformer-XL that remembers the answers.

A step reads a map of y * x places and c channels, and what the agent is told beside it, e (reward, last action).

    O        = W_2 * relu(W_1 * X)                                      vision core: convolutions of 3 x 3
    K, V     = [O[..., :c_K] | S], [O[..., c_K:] | S]                   keys, values and the spatial basis
    q^1..q^H = Q(o)                                                     query network
    a^n      = sum over places of softmax(q^n K) V                      answers
    u        = MLP([a^1..a^H, q^1..q^H, e])                             answer processor
    h        = TransformerXL(u)                                         temporal attention, w steps back

h is the output. The queries come from an earlier output o: where to look is decided before the step is seen.

    query = sequential    o is the core's output at the step before. A call is a loop over its steps.
    query = one-shot      o is given, in the last ``dim`` inputs. A call takes all steps at once.

At the first step of an episode o is zero, in both forms, whatever is given.

Inputs are vectors ``[y * x * c + e]`` (sequential) or ``[y * x * c + e + dim]`` (one-shot): the map, ordered row,
column, channel, then e, then o.

**Feeding the one-shot form.** Whoever acts gives the output of the step before, and keeps what it gave beside the
observation (agents of this library do, as ``output_feedback_dim`` asks for it); the state has it too:

    given = state.output                                                # [b, dim], before the step
    outputs, state = core(torch.cat((map, told, given), -1)[:, None], state, is_first[:, None])

Whoever learns gives the kept rows, as constants: row t of a rollout has the ``given`` of row t, which is what the
actor's core gave at row t - 1. With the actor's weights both compute the same, step by step or all at once; with newer
weights the queries lag behind, as the paper has it. A stream is given what its ``step`` returned last.

Paper: George, Neural architecture impact on identifying temporally extended Reinforcement Learning tasks (master's
thesis, Freiburg 2021), section 3.3 and figure 3.8; attention to places as in Mott et al. (2019).

Differs:
- The paper does not say what takes the place of Mott's ConvLSTM. Two convolutions give the 1.95 M parameters that it
  reports; ``map_dim=None`` takes the channels of the map as they are.
- Temporal attention is that of ``transformer-xl`` with ``relu_outputs``, relative positions and a ReLU feed-forward, as
  in the code behind the paper; its window slides, and the three LayerNorms that it never uses are not there.
- First weights of convolutions and MLPs are normal by fan in, without biases, as in ``mott``.
- The MLPs have ReLU between their layers and none behind the last (the paper is silent).
- Outputs become queries, and queries reach outputs through two MLPs and sums: nothing in the paper's form bounds that
  loop, and a learner of ours has driven it to 1e17 within a few updates. ``final_norm`` bounds it; it is off, as in the
  code behind the paper.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.cores.transformer_xl.core import TransformerXLConfig, TransformerXLState
from recollect.layers.config import require_map, require_map_of
from recollect.layers.feedforward import init_lecun, perceptron
from recollect.layers.spatial_attention import attend_to_places, infer_map_channels, spatial_basis, split_map
from recollect.layers.tap import Tap
from recollect.layers.window_attention import plan_window, slide_layers, steps_since_first, window_steps

Query = Literal["sequential", "one-shot"]

FREQUENCIES = 4
"""Of the basis, along each axis (section 3.1)."""
KERNEL = 3
"""Side of the convolutions."""


class SpatioTemporalAttentionState(NamedTuple):
    """What is remembered."""

    memory: TransformerXLState
    """Of the temporal attention."""
    output: Tensor
    """float ``[b, dim]``: the last output, from which the next queries come (in the one-shot form: if it is given)."""


@dataclass(frozen=True, kw_only=True)
class SpatioTemporalAttentionConfig(CoreConfig):
    """Settings of :class:`SpatioTemporalAttention`."""

    paper: ClassVar[str] = "George 2021"
    remembers: ClassVar[str] = "a window, as layer inputs"
    reads_map: ClassVar[bool] = True
    REMOVED: ClassVar[dict[str, None]] = {"hidden_dim": None}

    dim: int = 256
    """Width of the temporal attention and of the output."""
    grid: tuple[int, int] = (1, 1)
    """Rows and columns of the map."""
    channels: int | None = None
    """Channels c of the map; what is behind y * x * c inputs is told to the answer processor as it is. None: all are
    the map's (but for the output that one-shot is given)."""
    query: Query = "sequential"
    """Where queries come from: the core's own output of the step before, or the last dim inputs (one-shot)."""
    map_dim: int | None = 128
    """Channels of keys and values together, c_K + c_V, made by two convolutions; None takes the map's channels."""
    key_dim: int = 8
    """Channels of the keys, c_K."""
    num_heads: int = 4
    """Queries to the map, H, and heads of the temporal attention; must divide dim."""
    query_dim: int = 128
    """Width of the first hidden layer of the query network; its second is as wide as its output."""
    answer_dim: int = 512
    """Width of the hidden layer of the answer processor."""
    num_layers: int = 1
    """Layers of temporal attention and feed-forward, which is 4 x dim wide."""
    memory_len: int = 100
    """Steps that a step sees before itself, in every layer."""
    final_norm: bool = False
    """LayerNorm on the output, from which the next queries come: then nothing grows from step to step."""

    def __post_init__(self) -> None:
        for field in ("dim", "key_dim", "num_heads", "query_dim", "answer_dim", "num_layers", "memory_len"):
            require(getattr(self, field) >= 1, field, getattr(self, field), "give at least 1")
        require_map(self.grid, self.channels)
        known = get_args(Query)
        require(self.query in known, "query", self.query, f"choose one of {', '.join(known)}")
        require(
            self.map_dim is None or self.key_dim < self.map_dim,
            "key_dim",
            self.key_dim,
            f"leave some of map_dim={self.map_dim} to the values",
        )
        require(self.dim % self.num_heads == 0, "num_heads", self.num_heads, f"must divide dim={self.dim}")

    @property
    def reach(self) -> int | None:
        """Layers x window, unless queries carry on what was seen before."""
        return None if self.query == "sequential" else self.num_layers * self.memory_len

    @property
    def output_feedback_dim(self) -> int:
        """Width of the output that one-shot is given."""
        return self.dim if self.query == "one-shot" else 0

    @property
    def temporal(self) -> TransformerXLConfig:
        """The settings of the temporal attention."""
        return TransformerXLConfig(
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            memory_len=self.memory_len,
            relu_outputs=True,
            activation="relu",
            final_norm=self.final_norm,
        )

    def require_map_of(self, shape: tuple[int, int, int]) -> None:
        """Raise ``ValueError`` unless ``grid`` and ``channels`` are those of a map of this shape."""
        require_map_of(self.grid, self.channels, shape)

    def build(self, input_dim: int) -> "SpatioTemporalAttention":
        """Make the core for inputs of width ``input_dim``.

        Raises:
            ValueError: the width does not fit the map and the output that is given.
        """
        return SpatioTemporalAttention(self, input_dim)


class SpatioTemporalAttention(MemoryCore[SpatioTemporalAttentionState]):
    """Equations, paper and differences at the top of this file.

    Args:
        config: settings.
        input_dim: width of the inputs: y * x * channels, what is told, and (one-shot) the output that is given.
    """

    basis: Tensor
    """S: ``[y * x, c_S]``."""

    runs_in_float16 = True

    def __init__(self, config: SpatioTemporalAttentionConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.given = config.output_feedback_dim
        if input_dim <= self.given:
            raise ValueError(
                f"input_dim={input_dim}: with query=one-shot the last dim={config.dim} inputs are an earlier output, "
                "and a map stands before them: give both"
            )
        self.channels, self.told = infer_map_channels(config.grid, config.channels, input_dim - self.given)
        self.register_buffer("basis", spatial_basis(*config.grid, FREQUENCIES), persistent=False)
        self.see = self._vision()
        m, heads = config.map_dim or self.channels, config.num_heads
        require(config.key_dim < m, "key_dim", config.key_dim, f"leave some of the map's {m} channels to the values")
        width = config.key_dim + self.basis.shape[1]
        answers = heads * (m - config.key_dim + self.basis.shape[1])
        self.query = perceptron(config.dim, config.query_dim, heads * width, heads * width)
        self.answer = perceptron(answers + heads * width + self.told, config.answer_dim, config.dim)
        for part in (self.see, self.query, self.answer):
            init_lecun(part)
        self.temporal = config.temporal.build(config.dim)
        self.map_tap = Tap("b h t y x")
        self.what_where_tap = Tap("b h t y x")
        """Nats by which content says more for a place than location does."""

    def _vision(self) -> nn.Module:
        m = self.config.map_dim
        if m is None:
            return nn.Identity()
        first = nn.Conv2d(self.channels, m, KERNEL, padding=KERNEL // 2)
        return nn.Sequential(first, nn.ReLU(), nn.Conv2d(m, m, KERNEL, padding=KERNEL // 2))

    def initial_state(self, batch_size: int) -> SpatioTemporalAttentionState:
        """An empty window, and an output of zeros."""
        return SpatioTemporalAttentionState(
            self.temporal.initial_state(batch_size), self.zeros(batch_size, self.config.dim)
        )

    def unroll(
        self, inputs: Tensor, state: SpatioTemporalAttentionState, is_first: Tensor
    ) -> tuple[Tensor, SpatioTemporalAttentionState]:
        """All maps at once; then step by step, or (one-shot) all steps at once."""
        maps, others = split_map(inputs, math.prod(self.config.grid), self.channels)
        told, given = others.split((self.told, self.given), 2)
        vision = self.vision(maps)
        if not self.given:
            return self._sequential(vision, told, state, is_first)
        begins = steps_since_first(is_first, state.memory.count) == 0  # also at the first step from an initial state
        asked = self.look(vision, torch.where(begins[..., None], 0.0, given), told)
        outputs, memory = self.temporal.unroll(asked, state.memory, is_first)
        return outputs, SpatioTemporalAttentionState(memory, outputs[:, -1])

    def vision(self, maps: Tensor) -> Tensor:
        """O: ``[b, t, n, c]`` to ``[b, t, m, n]``."""
        pictures = maps.flatten(0, 1).transpose(1, 2).unflatten(2, self.config.grid)
        return self.see(pictures).flatten(2).unflatten(0, maps.shape[:2])

    def look(self, vision: Tensor, output: Tensor, told: Tensor) -> Tensor:
        """u: from O ``[b, t, m, n]``, the outputs o ``[b, t, dim]`` and what is told ``[b, t, e]``, ``[b, t, dim]``."""
        query = self.query(output)
        queries = query.unflatten(-1, (self.config.num_heads, -1))
        taps = {"tap": self.map_tap, "what_where_tap": self.what_where_tap}
        answers = attend_to_places(vision, queries, self.basis, self.config.grid, **taps)
        return self.answer(torch.cat((answers, query, told), 2))

    def _sequential(
        self, vision: Tensor, told: Tensor, state: SpatioTemporalAttentionState, is_first: Tensor
    ) -> tuple[Tensor, SpatioTemporalAttentionState]:
        memory, layers = state.memory, self.temporal.layers
        plan = plan_window(is_first, memory.count, self.config.memory_len)
        positions = self.temporal.relative_positions()
        folded = [layer.folded(positions) for layer in layers]
        windows = zip(layers, memory.window.unbind(1), folded, strict=True)
        known = [layer.project_memory(cached, plan.held, weights) for layer, cached, weights in windows]
        outputs: list[Tensor] = []
        raw: list[list[Tensor]] = [[] for _ in layers]
        output = state.output[:, None]
        steps = zip(*(part.split(1, 1) for part in (vision, told, is_first, plan.visible)), strict=True)
        for seen, step_told, first, visible in steps:
            x = self.look(seen, torch.where(first[..., None], 0.0, output), step_told).to(memory.window.dtype)
            for index, layer in enumerate(layers):
                raw[index].append(x)
                x, (keys, values) = layer.advance(x, known[index], visible, folded[index])
                known[index] = keys[:, :, 1:], values[:, :, 1:]
            output = self.temporal.norm(x)
            outputs.append(output)
        window = slide_layers(memory.window, [torch.cat(rows, 1) for rows in raw], plan.count)
        return torch.cat(outputs, 1), SpatioTemporalAttentionState(TransformerXLState(window, plan.count), output[:, 0])

    def largest_counters(self) -> dict[str, int]:
        """How far the counters of the state go."""
        return {"memory.count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """The windows of the temporal attention; see :class:`MemoryCore`."""
        places = window_steps(clock, self.config.memory_len)
        return {f"temporal.layers.{i}.tap": places for i in range(self.config.num_layers)}

    def flops_per_step(self) -> int:
        """Convolutions over all places, scores and answers of all queries, both MLPs, and the temporal attention."""
        places = math.prod(self.config.grid)
        m = self.config.map_dim or self.channels
        convolutions = sum(layer.weight.numel() for layer in self.see.modules() if isinstance(layer, nn.Conv2d))
        products = places * (convolutions + self.config.num_heads * (m + 2 * self.basis.shape[1]))
        for layer in (*self.query, *self.answer):
            products += layer.weight.numel() if isinstance(layer, nn.Linear) else 0
        return 2 * products + self.temporal.flops_per_step()
