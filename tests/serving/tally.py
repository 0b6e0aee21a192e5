"""A core of whole numbers, so that what it computes is the same to the bit however its rows are batched."""

from typing import NamedTuple

import torch
from torch import nn

from recollect.cores.contract import MemoryCore

PRIME = 65521


class TallyState(NamedTuple):
    steps: torch.Tensor  # long b
    code: torch.Tensor  # long b: depends on every input since the reset, and on their order


class Tally(MemoryCore[TallyState]):
    """Answers the number of steps since the reset, a code of all inputs, and the input times a weight."""

    input_shape, output_shape = (1,), (3,)

    def __init__(self, weight=2.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([weight]))

    def initial_state(self, batch_size):
        zeros = torch.zeros(batch_size, dtype=torch.long)
        return TallyState(zeros, zeros.clone())

    def unroll(self, inputs, state, is_first):
        steps, code, outputs = state.steps, state.code, []
        for t in range(inputs.shape[1]):
            steps, code = (torch.where(is_first[:, t], 0, part) for part in (steps, code))
            steps, code = steps + 1, (31 * code + inputs[:, t, 0].long()) % PRIME
            outputs.append(torch.stack([steps, code, inputs[:, t, 0] * self.weight], -1))
        return torch.stack(outputs, 1), TallyState(steps, code)

    def flops_per_step(self):
        return 1


def literal(history, weight=2.0):
    """What a stream answers to the last of the inputs ``(number, is_first)`` that it was given."""
    steps = code = 0
    for number, is_first in history:
        steps, code = (1, number) if is_first else (steps + 1, (31 * code + number) % PRIME)
    return [steps, code, weight * history[-1][0]]
