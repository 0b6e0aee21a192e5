"""Broken cores of the fourth kind: right in the usual test, wrong where somebody uses them.

At another length of a call, with another number of rows, at a black frame, on another device, after an evaluation.
"""

import torch
from sound import Plain, Recurrent, RecurrentState
from torch import Tensor, nn

State = RecurrentState


# -- lengths of calls ----------------------------------------------------------------------------------------------


class BeginsAnewAtSixteen(Recurrent):
    """A path of its own for calls of 16 steps forgets what came before."""

    lengths = range(16, 17)

    def unroll(self, inputs: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        if inputs.shape[1] in self.lengths:
            state = self.initial_state(inputs.shape[0])
        return super().unroll(inputs, state, is_first)


class BeginsAnewFrom101To299(BeginsAnewAtSixteen):
    lengths = range(101, 300)


class SingleStepsDeafWhenAllBegin(Plain):
    """A shortcut for the step at which all rows begin does not begin."""

    def forward(self, inputs: Tensor, state: tuple[Tensor], is_first: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        if inputs.shape[1] == 1 and len(inputs) > 1 and is_first.all():
            is_first = torch.zeros_like(is_first)
        return super().forward(inputs, state, is_first)


# -- numbers of rows -----------------------------------------------------------------------------------------------


class SwapsTwoRows(Recurrent):
    """A path of its own for two rows confuses them."""

    rows = range(2, 3)

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if len(x) in self.rows:
            state = state._replace(hidden=state.hidden.flip(0))
        return super().advance(x, state)


class SwapsManyRows(SwapsTwoRows):
    rows = range(16, 1000)


USE: dict[type[nn.Module], str] = {
    BeginsAnewAtSixteen: "splits",
    BeginsAnewFrom101To299: "long",
    SingleStepsDeafWhenAllBegin: "splits",
    SwapsTwoRows: "rows",
    SwapsManyRows: "rows",
}
"""Which line must catch a core."""
