"""Spatial attention memory: its queries attend to places of a map of features, and it remembers what they read.

A step reads a map X of y * x places and c channels, and e other features of the agent (reward, last action).

    O, s_vis = ConvLSTM(X, s_vis)                                       vision core             equation 3.1
    K, V     = O[..., :c_K], O[..., c_K:]                               keys and values
    K, V     = [K | S], [V | S]                                         spatial basis           equation 3.2
    q^1..q^H = Q(h)                                                     query network           equation 3.3
    A^n      = softmax over places of sum_l q_l^n K_l                   attention               equations 3.4, 3.5
    a^n      = sum over places of A^n V                                 answers                 equation 3.6
    h, c     = LSTM(MLP([a^1..a^H, q^1..q^H, e]), h, c)                 policy core             equations 3.7, 3.8

h is the output. The queries come from the h of the step before, so attention is directed before the step is seen
("top-down"). ConvLSTM is an LSTM whose products are convolutions of size k x k over the map:

    i, f, g, o = W * X + b + U * H          C = sigmoid(f) C + sigmoid(i) tanh(g)          H = sigmoid(o) tanh(C)

The basis has (2 U)^2 channels, all products of one of cos(pi u i / y), sin(pi u i / y) and one of the same for columns,
u = 1..U (``layers/spatial_attention.py``).

Inputs are vectors ``[y * x * c + e]``: the map, ordered row, column, channel, then e.

Paper: Mott et al. 2019 (Towards interpretable reinforcement learning using attention augmented agents), as described
and measured by George 2021 (Neural architecture impact on identifying temporally extended reinforcement learning
tasks), section 3.1; the ConvLSTM is that of Shi et al. 2015.

Differs:

- No peephole weights in the ConvLSTM, as in the reported agent of 2 176 663 parameters.
- Initial weights are those of the library of Mott et al.: normal by fan in, zero biases (the LSTM's weights are
  torch's). With torch's, 0.06 % of a fresh core's output depends on the frame.
- The MLPs have ReLU between their layers and none after the last (the papers do not specify this).
- ``vision="feedforward"`` has no ConvLSTM: keys and values are a convolution of the map.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, companion
from recollect.cores.mott.config import SpatialAttentionMemoryConfig
from recollect.layers.feedforward import init_lecun, linear_flops, perceptron
from recollect.layers.spatial_attention import attend_to_places, infer_map_channels, spatial_basis, split_map
from recollect.layers.tap import Tap
from recollect.ops.torch_internals import is_traced


class SpatialAttentionMemoryState(NamedTuple):
    """States of ConvLSTM and LSTM."""

    map_h: Tensor
    """float ``[b, m, y, x]``: output of the ConvLSTM; without it m is 0."""
    map_c: Tensor
    """float ``[b, m, y, x]``: its cell."""
    h: Tensor
    """float ``[b, d]``: output of the LSTM, from which the next queries come."""
    c: Tensor
    """float ``[b, d]``: its cell."""


class SpatialAttentionMemory(MemoryCore[SpatialAttentionMemoryState]):
    """Spatial attention between a ConvLSTM and an LSTM; equations are at the top of this module."""

    reference_unroll = companion("recollect.cores.mott.reference:reference_unroll")
    runs_in_float16 = True

    basis: Tensor
    """S: ``[y * x, c_S]``."""

    def __init__(self, config: SpatialAttentionMemoryConfig, input_dim: int) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.channels, self.num_others = infer_map_channels(config.grid, config.channels, input_dim)
        self.register_buffer("basis", spatial_basis(*config.grid, config.frequencies), persistent=False)
        m, heads, padding = config.map_dim, config.num_heads, config.kernel // 2
        self.is_recurrent = config.vision == "recurrent"
        gates = 4 if self.is_recurrent else 1
        self.see = nn.Conv2d(self.channels, gates * m, config.kernel, padding=padding)
        self.keep = nn.Conv2d(m, gates * m, config.kernel, padding=padding, bias=False) if self.is_recurrent else None
        width = config.key_dim + self.basis.shape[1]
        answer = m - config.key_dim + self.basis.shape[1]
        self.query = perceptron(config.dim, config.query_dim, heads * width, heads * width)
        self.answer = perceptron(heads * (answer + width) + self.num_others, config.answer_dim, config.dim)
        self.cell = nn.LSTMCell(config.dim, config.dim)
        init_lecun(self)
        for bias in (self.cell.bias_ih, self.cell.bias_hh):
            nn.init.zeros_(bias)
        self.tap = Tap("b h t y x")
        self.what_where_tap = Tap("b h t y x")
        """Nats by which content adds more to a place's score than location does."""

    def initial_state(self, batch_size: int) -> SpatialAttentionMemoryState:
        """Return a state of zeros."""
        m = self.config.map_dim if self.is_recurrent else 0
        maps = self.zeros(batch_size, m, *self.config.grid)
        vector = self.zeros(batch_size, self.config.dim)
        return SpatialAttentionMemoryState(maps, maps.clone(), vector, vector.clone())

    def unroll(
        self, inputs: Tensor, state: SpatialAttentionMemoryState, is_first: Tensor
    ) -> tuple[Tensor, SpatialAttentionMemoryState]:
        """Compute the first convolution of all maps at once, then attend and remember step by step."""
        b, t, _ = inputs.shape
        maps, others = split_map(inputs, math.prod(self.config.grid), self.channels)
        maps = maps.flatten(0, 1).transpose(1, 2).unflatten(2, self.config.grid)
        seen = self.see(maps).unflatten(0, (b, t))
        outputs = []
        for step_seen, step_others, first in zip(seen.unbind(1), others.unbind(1), is_first.unbind(1), strict=True):
            state = self.step(step_seen, step_others, self.reset(first, state))
            outputs.append(state.h)
        return torch.stack(outputs, 1), state

    def step(self, seen: Tensor, others: Tensor, state: SpatialAttentionMemoryState) -> SpatialAttentionMemoryState:
        """Take one step from the convolved map ``seen [b, 4 m, y, x]`` (``m`` without ConvLSTM)."""
        map_h, map_c, h, c = state
        if self.keep is None:
            vision = seen
        else:
            i, f, g, o = (seen + self.keep(map_h)).chunk(4, 1)
            map_c = (f.sigmoid() * map_c + i.sigmoid() * g.tanh()).to(map_c.dtype)
            vision = map_h = (o.sigmoid() * map_c.tanh()).to(map_h.dtype)
        query = self.query(h)
        queries = query.unflatten(1, (self.config.num_heads, -1))
        taps = {"tap": self.tap, "what_where_tap": self.what_where_tap}
        answers = attend_to_places(vision.flatten(2), queries, self.basis, self.config.grid, **taps)
        h, c = self.update(self.answer(torch.cat((answers, query, others), 1)), h, c)
        return SpatialAttentionMemoryState(map_h, map_c, h, c)

    def update(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step of the LSTM that remembers answers, all arguments ``[b, dim]``."""
        if not is_traced():
            return self.cell(inputs, (h, c))
        # vmap has no rule for torch's fused cell.
        cell = self.cell
        gates = F.linear(inputs, cell.weight_ih, cell.bias_ih) + F.linear(h, cell.weight_hh, cell.bias_hh)
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def flops_per_step(self) -> int:
        """Sum of convolutions over all places, scores and answers of all heads, and products of all other layers."""
        places = math.prod(self.config.grid)
        convolutions = sum(
            2 * places * child.weight.numel() for child in self.children() if isinstance(child, nn.Conv2d)
        )
        cell = 2 * (self.cell.weight_ih.numel() + self.cell.weight_hh.numel())
        attention = 2 * self.config.num_heads * places * (self.config.map_dim + 2 * self.basis.shape[1])
        return convolutions + linear_flops(self) + cell + attention
