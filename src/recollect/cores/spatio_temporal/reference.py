"""Spatial attention in front of a Transformer-XL, as a plain loop over rows, steps, heads and places.

    O    = W_2 * relu(W_1 * X)
    A_ij = exp(q . [K_ij | S_ij]) / sum_i'j' exp(q . [K_i'j' | S_i'j'])        for each of the queries Q(o)
    a    = sum_ij A_ij [V_ij | S_ij]
    h    = TransformerXL(MLP([a^1..a^H, q^1..q^H, e]))         o: the h of the step before, or an input

Papers: see ``core.py``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.mott.reference import look, perceptron
from recollect.cores.spatio_temporal.core import FREQUENCIES, SpatioTemporalAttention, SpatioTemporalAttentionState
from recollect.cores.transformer_xl.reference import reference_unroll as temporal_unroll
from recollect.state import concatenate, take_rows


def reference_unroll(
    core: SpatioTemporalAttention, inputs: Tensor, state: SpatioTemporalAttentionState, is_first: Tensor
) -> tuple[Tensor, SpatioTemporalAttentionState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs."""
    all_outputs, all_states = [], []
    for row in range(inputs.shape[0]):
        memory, output = take_rows(state, slice(row, row + 1))
        outputs = []
        for x, first in zip(inputs[row], is_first[row], strict=True):
            is_input = core.config.query == "one-shot"
            before = x[-core.config.dim :] if is_input else output[0]
            begins = bool(first) or (is_input and int(memory.count) == 0)
            answers = _look(core, x, torch.zeros_like(before) if begins else before)
            output, memory = temporal_unroll(core.temporal, answers[None, None], memory, first[None, None])
            output = output[:, 0]
            outputs.append(output)
        all_outputs.append(torch.cat(outputs))
        all_states.append(SpatioTemporalAttentionState(memory, output))
    return torch.stack(all_outputs), concatenate(all_states)


def _look(core: SpatioTemporalAttention, x: Tensor, before: Tensor) -> Tensor:
    """Compute the input ``[dim]`` of the temporal attention at one step of one row."""
    rows, columns = core.config.grid
    size = rows * columns * core.channels
    vision = x[:size].reshape(rows, columns, core.channels).permute(2, 0, 1)
    layers = [layer for layer in core.see.modules() if isinstance(layer, nn.Conv2d)]
    for number, layer in enumerate(layers):
        vision = F.conv2d(F.relu(vision) if number else vision, layer.weight, layer.bias, padding=1)

    query = perceptron(core.query, before)
    answers = look(vision, query, core.config.num_heads, core.config.key_dim, FREQUENCIES)
    return perceptron(core.answer, torch.cat([*answers, query, x[size : size + core.num_others]]))
