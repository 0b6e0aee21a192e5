"""Attention to places, with queries from a Transformer-XL that remembers what they read.

A step reads a map of y * x places and c channels, and e other features of the agent (reward, last action).

    O        = W_2 * relu(W_1 * X)                                      vision core: convolutions of 3 x 3
    K, V     = [O[..., :c_K] | S], [O[..., c_K:] | S]                   keys, values and the spatial basis
    q^1..q^H = Q(o)                                                     query network
    a^n      = sum over places of softmax(q^n K) V                      answers
    u        = MLP([a^1..a^H, q^1..q^H, e])                             answer processor
    h        = TransformerXL(u)                                         temporal attention, w steps back

h is the output. The queries come from an earlier output o, so attention is directed before the step is seen.

    query = sequential    o is the core's output at the step before. A call is a loop over its steps.
    query = one-shot      o is in the last dim inputs. A call takes all steps at once.

At the first step of an episode o is zero, in both forms, whatever the input.

Inputs are vectors ``[y * x * c + e]`` (sequential) or ``[y * x * c + e + dim]`` (one-shot): the map, ordered row,
column, channel, then e, then o.

**Inputs of the one-shot form.** An actor appends the output of the step before, which is also in the state, and stores
it beside the observation (agents of this library do so, by ``output_feedback_dim``):

    feedback = state.output                                             # [b, dim], before the step
    outputs, state = core(torch.cat((map, others, feedback), -1)[:, None], state, is_first[:, None])

A learner appends the stored rows as constants: row t of a rollout has the ``feedback`` of row t, the output of the
actor's core at row t - 1. With the actor's weights both compute the same, step by step or all at once; with newer
weights the queries lag behind, as in the paper. In a stream, append the last result of ``step``.

Paper: George, Neural architecture impact on identifying temporally extended Reinforcement Learning tasks (master's
thesis, Freiburg 2021), section 3.3 and figure 3.8; attention to places as in Mott et al. (2019).

Differs:

- The paper does not specify the replacement of Mott's ConvLSTM. Two convolutions give the 1.95 M parameters that it
  reports; ``map_dim=None`` uses the channels of the map directly.
- Temporal attention is that of ``transformer-xl`` with ``relu_outputs``, relative positions and a ReLU feed-forward, as
  in the code behind the paper; its window slides, and its three unused LayerNorms do not exist.
- Initial weights of convolutions and MLPs are normal by fan in, with zero biases, as in ``mott``.
- The MLPs have ReLU between their layers and none after the last (the paper does not specify this).
- Outputs become queries, and queries reach outputs through two MLPs and sums: nothing in the paper's form bounds that
  loop, and training has driven it to 1e17 within a few updates. ``final_norm`` bounds it; it is off, as in the code
  behind the paper.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.spatio_temporal.config import SpatioTemporalAttentionConfig
from recollect.cores.transformer_xl.core import TransformerXLState
from recollect.layers.feedforward import init_lecun, linear_flops, perceptron
from recollect.layers.spatial_attention import attend_to_places, infer_map_channels, spatial_basis, split_map
from recollect.layers.tap import Tap
from recollect.layers.window_attention import plan_window, slide_layers, steps_since_first

FREQUENCIES = 4
"""Of the basis, along each axis (section 3.1)."""
KERNEL = 3
"""Side of the convolutions."""


class SpatioTemporalAttentionState(NamedTuple):
    """Window of the temporal attention, and the last output."""

    memory: TransformerXLState
    """Of the temporal attention."""
    output: Tensor
    """float ``[b, dim]``: the last output, from which the next queries come (one-shot: once the caller appends it)."""


class SpatioTemporalAttention(MemoryCore[SpatioTemporalAttentionState]):
    """Spatial attention in front of a Transformer-XL; equations and differences are at the top of this module.

    Raises:
        ValueError: ``input_dim`` does not fit the map and, in the one-shot form, the earlier output; or no channels are
            left for values.
    """

    stream_type = companion("recollect.cores.spatio_temporal.stream:SpatioTemporalStream")
    reference_unroll = companion("recollect.cores.spatio_temporal.reference:reference_unroll")
    runs_in_float16 = True

    basis: Tensor
    """S: ``[y * x, c_S]``."""

    def __init__(self, config: SpatioTemporalAttentionConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.feedback_dim = config.output_feedback_dim
        if input_dim <= self.feedback_dim:
            raise ValueError(
                f"input_dim={input_dim}: with query=one-shot the last dim={config.dim} inputs are an earlier output, "
                "after the map: give both"
            )
        self.channels, self.num_others = infer_map_channels(config.grid, config.channels, input_dim - self.feedback_dim)
        self.register_buffer("basis", spatial_basis(*config.grid, FREQUENCIES), persistent=False)
        self.see = self._vision()
        m, heads = config.map_dim or self.channels, config.num_heads
        require(config.key_dim < m, "key_dim", config.key_dim, f"leave some of the map's {m} channels to the values")
        width = config.key_dim + self.basis.shape[1]
        answers = heads * (m - config.key_dim + self.basis.shape[1])
        self.query = perceptron(config.dim, config.query_dim, heads * width, heads * width)
        self.answer = perceptron(answers + heads * width + self.num_others, config.answer_dim, config.dim)
        for part in (self.see, self.query, self.answer):
            init_lecun(part)
        self.temporal = config.temporal.build(config.dim)
        self.map_tap = Tap("b h t y x")
        self.what_where_tap = Tap("b h t y x")
        """Nats by which content adds more to a place's score than location does."""

    def _vision(self) -> nn.Module:
        m = self.config.map_dim
        if m is None:
            return nn.Identity()
        first = nn.Conv2d(self.channels, m, KERNEL, padding=KERNEL // 2)
        return nn.Sequential(first, nn.ReLU(), nn.Conv2d(m, m, KERNEL, padding=KERNEL // 2))

    def initial_state(self, batch_size: int) -> SpatioTemporalAttentionState:
        """Return an empty window, and an output of zeros."""
        output = self.zeros(batch_size, self.config.dim)
        return SpatioTemporalAttentionState(self.temporal.initial_state(batch_size), output)

    def unroll(
        self, inputs: Tensor, state: SpatioTemporalAttentionState, is_first: Tensor
    ) -> tuple[Tensor, SpatioTemporalAttentionState]:
        """Read the maps of all steps in one product; where they depend on the last output, step by step."""
        vision, others, feedback = self.split(inputs)
        if not self.feedback_dim:
            return self._sequential(vision, others, state, is_first)
        begins = steps_since_first(is_first, state.memory.count) == 0  # also at the first step from an initial state
        read = self.read_map(vision, torch.where(begins[..., None], 0.0, feedback), others)
        outputs, memory = self.temporal.unroll(read, state.memory, is_first)
        return outputs, SpatioTemporalAttentionState(memory, outputs[:, -1])

    def split(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split inputs ``[b, t, i]`` into the encoded image map ``[b, t, m, n]``, other features and last output."""
        maps, rest = split_map(inputs, math.prod(self.config.grid), self.channels)
        images = maps.flatten(0, 1).transpose(1, 2).unflatten(2, self.config.grid)
        vision = self.see(images).flatten(2).unflatten(0, maps.shape[:2])
        others, feedback = rest.split((self.num_others, self.feedback_dim), 2)
        return vision, others, feedback

    def read_map(self, vision: Tensor, output: Tensor, others: Tensor) -> Tensor:
        """Compute u ``[b, t, dim]`` from O, earlier outputs o ``[b, t, dim]`` and other features ``[b, t, e]``."""
        query = self.query(output)
        queries = query.unflatten(-1, (self.config.num_heads, -1))
        taps = {"tap": self.map_tap, "what_where_tap": self.what_where_tap}
        answers = attend_to_places(vision, queries, self.basis, self.config.grid, **taps)
        return self.answer(torch.cat((answers, query, others), 2))

    def _sequential(
        self, vision: Tensor, others: Tensor, state: SpatioTemporalAttentionState, is_first: Tensor
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
        steps = zip(*(part.split(1, 1) for part in (vision, others, is_first, plan.visible)), strict=True)
        for seen, step_others, first, visible in steps:
            x = self.read_map(seen, torch.where(first[..., None], 0.0, output), step_others).to(memory.window.dtype)
            for index, layer in enumerate(layers):
                raw[index].append(x)
                x, (keys, values) = layer.advance(x, known[index], visible, folded[index])
                known[index] = keys[:, :, 1:], values[:, :, 1:]
            output = self.temporal.norm(x)
            outputs.append(output)
        window = slide_layers(memory.window, [torch.cat(rows, 1) for rows in raw], plan.count)
        return torch.cat(outputs, 1), SpatioTemporalAttentionState(TransformerXLState(window, plan.count), output[:, 0])

    def largest_counters(self) -> dict[str, int]:
        """Return the state's step counter, with its largest value."""
        return {"memory.count": self.config.memory_len}

    def recalled_steps(self, clock: Tensor) -> Places:
        """Return the windows of the temporal attention."""
        return {f"temporal.{name}": places for name, places in self.temporal.recalled_steps(clock).items()}

    def flops_per_step(self) -> int:
        """Sum of convolutions, scores and answers over all places, both MLPs, and the temporal attention."""
        places = math.prod(self.config.grid)
        m = self.config.map_dim or self.channels
        convolutions = sum(layer.weight.numel() for layer in self.see.modules() if isinstance(layer, nn.Conv2d))
        products = 2 * places * (convolutions + self.config.num_heads * (m + 2 * self.basis.shape[1]))
        return products + linear_flops(self.query, self.answer) + self.temporal.flops_per_step()
