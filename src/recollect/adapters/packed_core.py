"""A core whose state is one array of bytes per row, for engines that store and return one array with every step."""

import secrets
from typing import Any

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.state import detach, from_bytes, to_bytes

HEAD = 8
"""Bytes before those of the state: the number of a step and row, as int64."""
ROWS = 2**16
"""Most rows that act together."""


class PackedCore(nn.Module):
    """A core that takes and returns uint8 ``[b, width]``; zeros are an episode that has not begun.

    Single steps without gradients are taken by a stream. It continues as long as every row returns what the step before
    gave it, or begins an episode; otherwise it loads the rows' bytes.

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
        self.width = HEAD + to_bytes(self.like).shape[1]
        self._stream: Any = None
        self._known = torch.zeros(0, dtype=torch.long)
        self._steps = secrets.randbits(40)  # no number of another module's

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stream": None}

    def forward(self, inputs: Tensor, content: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``[b, t, d]`` and the new bytes, for inputs ``[b, t, d]`` and ``is_first`` ``[b, t]``."""
        numbers = content[:, :HEAD].flatten().clone().view(torch.long)
        begins = is_first[:, 0] | (numbers == 0)
        if inputs.shape[1] == 1 and not torch.is_grad_enabled():
            return self._act(inputs, content, begins, numbers)
        is_first = torch.cat([begins[:, None], is_first[:, 1:]], 1)
        outputs, state = self.core(inputs, from_bytes(content[:, HEAD:], self.like), is_first)
        return outputs, torch.cat([torch.ones_like(numbers).view(torch.uint8).reshape(-1, HEAD), to_bytes(state)], 1)

    def _act(self, inputs: Tensor, content: Tensor, begins: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        stream = self._stream
        fits = stream is not None and stream.batch_size == len(inputs) and not stream.has_changed_weights()
        if not fits or not bool(((numbers == self._known) | begins).all()):
            self._stream = self.core.stream(len(inputs))
            self._stream.load_state(from_bytes(content[:, HEAD:], self.like))
        outputs = self._stream.step(inputs[:, 0], begins)
        self._steps += 1
        self._known = torch.arange(len(inputs), device=numbers.device) + self._steps * ROWS
        head = self._known.view(torch.uint8).reshape(-1, HEAD)
        return outputs[:, None], torch.cat([head, to_bytes(self._stream.state)], 1)


def require_core(field: str, core: Any) -> None:
    """Raise ``ValueError`` unless these are the settings of a core."""
    require(isinstance(core, CoreConfig), field, core, "give the settings of a core, such as LSTMConfig(dim=64)")
