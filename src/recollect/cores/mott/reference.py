"""Steered spatial attention as a plain loop over rows, steps, heads and places.

    O        = ConvLSTM(X)
    A^n_ij   = exp(q^n . [K_ij | S_ij]) / sum_i'j' exp(q^n . [K_i'j' | S_i'j'])
    a^n      = sum_ij A^n_ij [V_ij | S_ij]
    h, c     = LSTM(MLP([a^1..a^H, q^1..q^H, e]), h, c),        q = Q(h of the step before)

Papers: see ``core.py``.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.mott.core import SpatialAttentionMemory, SpatialAttentionMemoryState


def reference_unroll(
    core: SpatialAttentionMemory, inputs: Tensor, state: SpatialAttentionMemoryState, is_first: Tensor
) -> tuple[Tensor, SpatialAttentionMemoryState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs."""
    all_outputs, all_states = [], []
    for row, row_inputs in enumerate(inputs):
        memory = [leaf[row] for leaf in state]
        outputs = []
        for x, first in zip(row_inputs, is_first[row], strict=True):
            if first:
                memory = [torch.zeros_like(leaf) for leaf in memory]
            memory = step(core, x, *memory)
            outputs.append(memory[2])
        all_outputs.append(torch.stack(outputs))
        all_states.append(memory)
    leaves = [torch.stack(leaf) for leaf in zip(*all_states, strict=True)]
    return torch.stack(all_outputs), SpatialAttentionMemoryState(*leaves)


def step(core: SpatialAttentionMemory, x: Tensor, map_h: Tensor, map_c: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    """Compute the four leaves of the state after one step of one row."""
    rows, columns = core.config.grid
    size = rows * columns * core.channels
    image = x[:size].reshape(rows, columns, core.channels).permute(2, 0, 1)
    padding = core.config.kernel // 2
    vision = F.conv2d(image, core.see.weight, core.see.bias, padding=padding)
    if core.keep is not None:
        i, f, g, o = (vision + F.conv2d(map_h, core.keep.weight, padding=padding)).chunk(4)
        map_c = f.sigmoid() * map_c + i.sigmoid() * g.tanh()
        vision = map_h = o.sigmoid() * map_c.tanh()

    query = perceptron(core.query, h)
    answers = look(vision, query, core.config.num_heads, core.config.key_dim, core.config.frequencies)

    u = perceptron(core.answer, torch.cat([*answers, query, x[size:]]))
    cell = core.cell
    i, f, g, o = (cell.weight_ih @ u + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return [map_h, map_c, o.sigmoid() * c.tanh(), c]


def look(vision: Tensor, query: Tensor, num_heads: int, key_dim: int, frequencies: int) -> list[Tensor]:
    """Answer each head from ``vision [c, y, x]``, of which the first ``key_dim`` channels are keys."""
    _, rows, columns = vision.shape
    answers = []
    for q in query.chunk(num_heads):
        scores, values = [], []
        for row in range(rows):
            for column in range(columns):
                place = torch.stack(basis(row / rows, column / columns, frequencies)).to(vision)
                scores.append(q @ torch.cat((vision[:key_dim, row, column], place)))
                values.append(torch.cat((vision[key_dim:, row, column], place)))
        weights = torch.stack(scores).softmax(0)
        answers.append(torch.stack([weight * value for weight, value in zip(weights, values, strict=True)]).sum(0))
    return answers


def perceptron(layers: nn.Sequential, x: Tensor) -> Tensor:
    """Apply linear maps with ReLU between them."""
    first, *others = (layer for layer in layers if isinstance(layer, nn.Linear))
    x = first.weight @ x + first.bias
    for layer in others:
        x = layer.weight @ F.relu(x) + layer.bias
    return x


def basis(down: float, across: float, frequencies: int) -> list[Tensor]:
    """Compute the channels of S at one place, whose row and column are given as shares of the map."""
    waves = [
        [wave(math.pi * u * share) for wave in (math.cos, math.sin) for u in range(1, frequencies + 1)]
        for share in (down, across)
    ]
    return [torch.tensor(a * b, dtype=torch.float32) for a in waves[0] for b in waves[1]]
