"""A core whose state is one array of bytes per row, for engines that store and return one array with every step."""

import secrets
from typing import Any

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.state import detach, from_bytes, leaf_bytes, to_bytes

HEAD = 8
"""Bytes before those of the state: the number of a step and row, as int64."""
ROWS = 2**16
"""Most rows that act together."""


class PackedCore(nn.Module):
    """A core that takes and returns uint8 ``[b, width]``; zeros are an episode that has not begun.

    Single steps without gradients are taken by a stream. It continues as long as every row returns what the step before
    gave it, or begins an episode; otherwise it loads the rows' bytes. ``width`` is a multiple of ``HEAD``, so that
    engines may look at the bytes as at numbers of 4 or 8 bytes.

    Args:
        core: that reads and gives one vector a step.

    Raises:
        ValueError: a core that reads or gives several vectors a step.
    """

    def __init__(self, core: MemoryCore[Any]) -> None:
        super().__init__()
        one = len(core.input_shape) == len(core.output_shape) == 1
        require(one, "core", type(core).__name__, "use a core that reads and gives one vector a step")
        self.core = core
        self.like = detach(core.initial_state(1))
        size = to_bytes(self.like).shape[1]
        self.width = HEAD + -(-size // HEAD) * HEAD
        self._padding = self.width - HEAD - size
        self._acting: _Acting | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_acting": None}

    def forward(self, inputs: Tensor, content: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``[b, t, d]`` and the new bytes, for inputs ``[b, t, d]`` and ``is_first`` ``[b, t]``."""
        numbers = content[:, :HEAD].clone().view(torch.long)
        if inputs.shape[1] == 1 and not torch.is_grad_enabled():
            return self._act(inputs, content, is_first, numbers)
        is_first = torch.cat([is_first[:, :1] | (numbers == 0), is_first[:, 1:]], 1)
        outputs, state = self.core(inputs, from_bytes(content[:, HEAD:], self.like), is_first)
        return outputs, self._pack(torch.ones_like(numbers), state)

    def _act(self, inputs: Tensor, content: Tensor, is_first: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        acting, begins = self._acting, is_first[:, 0]
        if acting is None or acting.stream.batch_size != len(inputs) or acting.stream.has_changed_weights():
            acting = None
        if acting is None or not torch.equal(numbers, acting.numbers):
            begins = begins | (numbers[:, 0] == 0)
            if acting is None or not bool(((numbers == acting.numbers)[:, 0] | begins).all()):
                acting = _Acting(self.core.stream(len(inputs)), numbers)
                acting.stream.load_state(from_bytes(content[:, HEAD:], self.like))
        outputs = acting.stream.step(inputs[:, 0], begins if bool(begins.any()) else None)
        acting.numbers += ROWS
        if acting is not self._acting:
            self._acting = acting
        return outputs[:, None], self._pack(acting.numbers, acting.stream.state)

    def _pack(self, numbers: Tensor, state: Any) -> Tensor:
        head = numbers.view(torch.uint8)
        return torch.cat([head, *leaf_bytes(state), head[:, : self._padding]], 1)


class _Acting:
    """A stream, and the numbers ``[b, 1]`` in front of the bytes that its last step gave."""

    def __init__(self, stream: Any, like: Tensor) -> None:
        first = secrets.randbits(40) * ROWS  # no number of another stream's
        self.stream, self.numbers = stream, torch.arange(first, first + len(like), device=like.device)[:, None]


def require_core(field: str, core: Any) -> None:
    """Raise ``ValueError`` unless these are the settings of a core."""
    require(isinstance(core, CoreConfig), field, core, "give the settings of a core, such as LSTMConfig(dim=64)")
