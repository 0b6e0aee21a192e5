"""Streams of linear recurrences: a step as the plain recurrence, in place, and blocks of steps in the chunked form."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.linear.stack import LinearRecurrence
from recollect.cores.linear.step import linear, rms_norm, widened
from recollect.cores.stream import RowStream
from recollect.layers.rings import Rows
from recollect.ops.packed_linear import without_autocast


class LinearStream(RowStream):
    """Stream of a linear recurrence: the memory of every layer is kept in the layout of its step."""

    core: LinearRecurrence[Any]

    def __init__(self, core: LinearRecurrence[Any], batch_size: int) -> None:
        self._project, self._norm = linear(core.project, batch_size), rms_norm(core.norm)
        self._steps = core.make_steps(batch_size)
        state = core.initial_state(batch_size)
        self._kind, self._wide = state[0].dtype, widened(state[0]).dtype
        self._memories = self._to_steps(core, state)
        super().__init__(core, batch_size)

    def _to_steps(self, core: LinearRecurrence[Any], state: Any) -> list[tuple[Tensor, ...]]:
        return [layer.to_step(tuple(leaf[:, index] for leaf in state)) for index, layer in enumerate(core.layers)]

    def read_rows(self, rows: Rows | None) -> Any:
        """Return a copy of the core's state of some rows; None: of all."""
        memories = self._memories if rows is None else self._taken(rows, self._kind)
        parts = [layer.from_step(memory) for layer, memory in zip(self.core.layers, memories, strict=True)]
        return self.core.state_type._make(torch.stack(leaf, 1) for leaf in zip(*parts, strict=True))

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a state ``[r, ...]``; None: all."""
        self._put(self._to_steps(self.core, state), rows)

    def advance_rows(self, inputs: Tensor, is_first: Tensor, rows: Rows | None) -> Tensor:
        """Take one step ``[r, i] -> [r, d]``."""
        in_place = rows is None and self._wide == self._kind
        memories = self._memories if in_place else self._taken(rows, self._wide)
        # Reading a value from an accelerator would wait for it.
        if is_first is not self._never and (is_first.device.type != "cpu" or is_first.any()):
            for leaf in (leaf for memory in memories for leaf in memory):
                leaf.masked_fill_(is_first.view(-1, *[1] * (leaf.ndim - 1)), 0.0)
        with without_autocast(inputs):
            x = self._project(inputs.to(self._wide))
            for step, memory in zip(self._steps, memories, strict=True):
                x = step(x, memory)
            outputs = self._norm(x).to(self._kind)
        if not in_place:
            self._put(memories, rows)
        return outputs

    def _taken(self, rows: Rows | None, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
        """Return a copy of the memories of some rows."""
        index = slice(None) if rows is None else rows.index
        return [tuple(leaf[index].to(dtype) for leaf in memory) for memory in self._memories]

    def _put(self, memories: list[tuple[Tensor, ...]], rows: Rows | None) -> None:
        """Overwrite the memories of some rows."""
        index = slice(None) if rows is None else rows.index
        for own, new in zip(self._memories, memories, strict=True):
            for leaf, part in zip(own, new, strict=True):
                leaf[index] = part.to(leaf.dtype)

    def advance_block(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take t steps ``[b, t, i] -> [b, t, d]``, of which only the first may begin an episode."""
        first = F.pad(is_first[:, None], (0, inputs.shape[1] - 1))
        outputs, state = self.core.unroll(inputs, self.read_rows(None), first)
        self.write_rows(state, None)
        return outputs

    def buffers(self) -> list[Tensor]:
        """Return the memories."""
        return [leaf for memory in self._memories for leaf in memory]
