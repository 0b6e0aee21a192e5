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
from recollect.cores.stream import RowStream
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import PackedLinear
from recollect.ops.recurrent_scans import stretched
from recollect.state import clone, take_rows

Cell = Callable[..., None]
"""One step of one layer, in place: of the layer's input and its own h ``[b, i + d]`` in the same storage, and of its
memory ``[b, d]`` each."""


class RecurrentStream(RowStream):
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
        self._edges = list(zip(edges[:-2], edges[2:], strict=True))  # of each layer's input and h in the buffer
        layers = [[weight.detach() for weight in core.cells.layer(layer)] for layer in range(num_layers)]
        self._cells = [self.cell(weights, batch_size) for weights in layers]
        self._views = self._views_of(self._joined, self._memory)

    @abstractmethod
    def cell(self, weights: list[Tensor], batch_size: int) -> Cell:
        """Return a function that makes one step of one layer with weights W, U, b and e."""

    def _views_of(self, joined: Tensor, memory: Any) -> list[list[Tensor]]:
        """Return for each layer its part of the joined buffer and its memory ``[b, d]``."""
        return [
            [joined[:, lower:upper], *(leaf[:, layer] for leaf in memory)]
            for layer, (lower, upper) in enumerate(self._edges)
        ]

    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the core's state of some rows; None: of all."""
        return clone(self._memory) if rows is None else take_rows(self._memory, rows.index)

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        for own, leaf in zip(self._memory, state, strict=True):
            own[slice(None) if rows is None else rows.index] = leaf.to(own.dtype)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, d]``."""
        if rows is not None:
            return self._advance_some(inputs, is_first, rows)
        if is_first is not self._never:
            for own, initial in zip(self._memory, self._fresh, strict=True):
                own.copy_(torch.where(is_first[:, None, None], initial, own))
        self._joined[:, : inputs.shape[1]] = inputs
        for cell, views in zip(self._cells, self._views, strict=True):
            cell(*views)
        return self._memory[0][:, -1].clone()

    def _advance_some(self, inputs: Tensor, is_first: Tensor, rows: Rows) -> Tensor:
        """Take one step in a copy of some rows, and put them back."""
        width, (h, *others) = inputs.shape[1], self.read_rows(rows)
        joined = torch.cat((inputs, h.flatten(1)), 1)
        memory = (joined[:, width:].view_as(h), *others)
        for own, initial in zip(memory, self._fresh, strict=True):
            own.copy_(torch.where(is_first[:, None, None], initial[: len(rows)], own))
        for cell, views in zip(self._cells, self._views_of(joined, memory), strict=True):
            cell(*views)
        self.write_rows(memory, rows)
        return memory[0][:, -1].clone()

    def buffers(self) -> list[Tensor]:
        """Return input and h in one tensor, then c."""
        return [self._joined, *self._memory[1:]]


class LSTMStream(RecurrentStream):
    """Stream of an LSTM: one product per layer and step."""

    def cell(self, weights: list[Tensor], batch_size: int) -> Cell:
        """Return one step of one layer."""
        w, u, b, e = weights
        d, stretch = u.shape[1], self.core.config.gate_stretch
        # Rows in the order i, f, o, g: one sigmoid for three gates.
        i, f, g, o = torch.cat((torch.cat((w, u), 1), (b + e)[:, None]), 1).chunk(4)
        ordered = torch.cat((i, f, o, g))
        gates_of = PackedLinear(ordered[:, :-1].contiguous(), ordered[:, -1].contiguous(), rows=batch_size, uses=1000)

        def step(found: Tensor, h: Tensor, c: Tensor) -> None:
            gates = gates_of(found)
            i, f, o = gates[:, : 3 * d].sigmoid_().chunk(3, 1)
            stretched(gates[:, : 2 * d], stretch)
            torch.mul(f, c, out=c).addcmul_(i, gates[:, 3 * d :].tanh_())
            torch.mul(o, c.tanh(), out=h)

        return step


class GRUStream(RecurrentStream):
    """Stream of a GRU: two products per layer and step."""

    def cell(self, weights: list[Tensor], batch_size: int) -> Cell:
        """Return one step of one layer."""
        w, u, b, e = weights
        d, stretch = u.shape[1], self.core.config.gate_stretch
        from_x = PackedLinear(w, b, rows=batch_size, uses=1000)
        from_h = PackedLinear(u, e, rows=batch_size, uses=1000)

        def step(found: Tensor, h: Tensor) -> None:
            x, gates = from_x(found[:, :-d]), from_h(h)
            r, z = gates[:, : 2 * d].add_(x[:, : 2 * d]).sigmoid_().chunk(2, 1)
            n = torch.addcmul(x[:, 2 * d :], r, gates[:, 2 * d :]).tanh_()
            torch.lerp(n, h, stretched(z, stretch), out=h)

        return step
