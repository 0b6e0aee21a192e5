"""Streams of LSTM and GRU, one step at a time, in place.

The input and the h of every layer are side by side in one buffer, so that the inputs of a layer, the h of the layer
below and its own, are one slice of it. An LSTM's step is then one product with [W U]; a GRU's are two, because of its
reset gate. A stream applies no dropout and no noise.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.cores.recurrent.core import Recurrent
from recollect.cores.stream import Stream
from recollect.ops.packed_linear import PackedLinear
from recollect.ops.recurrent_scans import stretched
from recollect.state import clone


class RecurrentStream(Stream):
    """Base of the streams of LSTM and GRU."""

    core: Recurrent[Any]

    def __init__(self, core: Recurrent[Any], batch_size: int) -> None:
        width, d, num_layers = core.input_shape[0], core.config.dim, core.config.num_layers
        self._joined = core.zeros(batch_size, width + num_layers * d)
        h = self._joined[:, width:].unflatten(1, (num_layers, d))
        others = (core.zeros(batch_size, num_layers, d) for _ in core.state_type._fields[1:])
        self._memory = core.state_type(h, *others)
        super().__init__(core, batch_size)
        edges = [0, *(width + layer * d for layer in range(num_layers + 1))]
        self._cells = []
        for layer, (lower, upper) in enumerate(zip(edges[:-2], edges[2:], strict=True)):
            weights = [weight.detach() for weight in core.cells.layer(layer)]
            memory = [leaf[:, layer] for leaf in self._memory]
            self._cells.append(self.cell(weights, self._joined[:, lower:upper], *memory))

    @abstractmethod
    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """Return a function that makes one step of one layer, in place.

        Args:
            weights: W, U, b and e of the layer.
            found: ``[b, i + d]``: the layer's input and its own h, in the same storage.
            memory: ``[b, d]`` each.
        """

    @property
    def state(self) -> Any:
        """The memory as the core's state (a copy)."""
        return clone(self._memory)

    def load_state(self, state: Any) -> None:
        """Continue from a state of the core."""
        self.core.check_state(state, self.batch_size, self._never.device)
        for own, leaf in zip(self._memory, state, strict=True):
            own.copy_(leaf)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step ``[b, i] -> [b, d]``."""
        if is_first is not self._never:
            for own, initial in zip(self._memory, self._fresh, strict=True):
                own.copy_(torch.where(is_first[:, None, None], initial, own))
        self._joined[:, : inputs.shape[1]] = inputs
        for cell in self._cells:
            cell()
        return self._memory[0][:, -1].clone()

    def buffers(self) -> list[Tensor]:
        """Return input and h in one tensor, then c."""
        return [self._joined, *self._memory[1:]]


class LSTMStream(RecurrentStream):
    """Stream of an LSTM: one product per layer and step."""

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """Return one step of one layer."""
        w, u, b, e = weights
        h, c = memory
        d, stretch = u.shape[1], self.core.config.gate_stretch
        # Rows in the order i, f, o, g: one sigmoid for three gates.
        i, f, g, o = torch.cat((torch.cat((w, u), 1), (b + e)[:, None]), 1).chunk(4)
        ordered = torch.cat((i, f, o, g))
        gates_of = PackedLinear(ordered[:, :-1].contiguous(), ordered[:, -1].contiguous(), rows=len(h), uses=1000)

        def step() -> None:
            gates = gates_of(found)
            i, f, o = gates[:, : 3 * d].sigmoid_().chunk(3, 1)
            stretched(gates[:, : 2 * d], stretch)
            torch.mul(f, c, out=c).addcmul_(i, gates[:, 3 * d :].tanh_())
            torch.mul(o, c.tanh(), out=h)

        return step


class GRUStream(RecurrentStream):
    """Stream of a GRU: two products per layer and step."""

    def cell(self, weights: list[Tensor], found: Tensor, *memory: Tensor) -> Callable[[], None]:
        """Return one step of one layer."""
        w, u, b, e = weights
        (h,) = memory
        d, stretch = u.shape[1], self.core.config.gate_stretch
        from_x = PackedLinear(w, b, rows=len(h), uses=1000)
        from_h = PackedLinear(u, e, rows=len(h), uses=1000)

        def step() -> None:
            x, gates = from_x(found[:, :-d]), from_h(h)
            r, z = gates[:, : 2 * d].add_(x[:, : 2 * d]).sigmoid_().chunk(2, 1)
            n = torch.addcmul(x[:, 2 * d :], r, gates[:, 2 * d :]).tanh_()
            torch.lerp(n, h, stretched(z, stretch), out=h)

        return step
