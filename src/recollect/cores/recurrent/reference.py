"""LSTM and GRU as a plain loop over rows and steps.

    LSTM    i   = sigmoid(W_i x + b_i + U_i h + e_i)     f and o alike
            g   = tanh(W_g x + b_g + U_g h + e_g)
            c' = f * c + i * g
            h' = o * tanh(c')

    GRU     r   = sigmoid(W_r x + b_r + U_r h + e_r)     z alike
            n   = tanh(W_n x + b_n + r * (U_n h + e_n))
            h' = (1 - z) * n + z * h

and with ``gate_stretch`` s: clip((1 + 2 s) sigmoid(.) - s, 0, 1) instead of the sigmoids of i, f and z.
x is the input or the h' of the layer below, at the same step; h and c are the layer's own, of the previous step, or the
initial ones where an episode begins. Papers: see ``core.py``.
"""

import torch
from torch import Tensor

from recollect.cores.contract import StateT, require_no_dropout
from recollect.cores.recurrent.core import LSTM, Recurrent


def reference_unroll(core: Recurrent[StateT], inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
    """Compute ``core(inputs, state, is_first)`` without dropout and noise.

    Raises:
        ValueError: the core is in training mode and has dropout or noise.
    """
    require_no_dropout(core, state_noise=core.config.state_noise)
    cell = lstm_cell if isinstance(core, LSTM) else gru_cell
    layers = range(core.config.num_layers)
    initial = core.initial_state(1)
    all_outputs, all_memories = [], []
    for row, row_inputs in enumerate(inputs):
        memory = [[leaf[row, layer] for leaf in state] for layer in layers]  # [h, c] or [h] of every layer
        outputs = []
        for x, first in zip(row_inputs, is_first[row], strict=True):
            if first:
                memory = [[leaf[0, layer] for leaf in initial] for layer in layers]
            for layer in layers:
                memory[layer] = cell(core.cells.layer(layer), core.config.gate_stretch, x, *memory[layer])
                x = memory[layer][0]
            outputs.append(x)
        all_outputs.append(torch.stack(outputs))
        all_memories.append([torch.stack(leaf) for leaf in zip(*memory, strict=True)])  # l d each
    leaves = [torch.stack(leaf) for leaf in zip(*all_memories, strict=True)]
    return torch.stack(all_outputs), core.state_type._make(leaves)  # type: ignore[attr-defined]


def keeping(a: Tensor, stretch: float) -> Tensor:
    """Return a gate that keeps memory."""
    return ((1 + 2 * stretch) * a.sigmoid() - stretch).clamp(0, 1)


def lstm_cell(weights: list[Tensor], stretch: float, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    """Return h' and c' ``[d]`` of one layer."""
    w, u, b, e = weights
    i, f, g, o = (w @ x + b + u @ h + e).chunk(4)
    c = keeping(f, stretch) * c + keeping(i, stretch) * g.tanh()
    return [o.sigmoid() * c.tanh(), c]


def gru_cell(weights: list[Tensor], stretch: float, x: Tensor, h: Tensor) -> list[Tensor]:
    """Return h' ``[d]`` of one layer."""
    w, u, b, e = weights
    (x_r, x_z, x_n), (h_r, h_z, h_n) = (w @ x + b).chunk(3), (u @ h + e).chunk(3)
    r, z = (x_r + h_r).sigmoid(), keeping(x_z + h_z, stretch)
    n = (x_n + r * h_n).tanh()
    return [(1 - z) * n + z * h]
