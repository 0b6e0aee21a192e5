"""Small cores that keep the contract."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore
from recollect.layers.window_attention import next_count, slide, steps_since_first, to_full, visible_steps
from recollect.state import where_first

WIDTH = 6


class RecurrentState(NamedTuple):
    hidden: Tensor  # b d
    steps: Tensor  # b


class Recurrent(MemoryCore[RecurrentState]):
    """h = tanh(W x + U h), with a learned initial memory and a step counter in the output."""

    def __init__(self, dim: int = WIDTH, dropout: float = 0.0) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (dim,)
        self.read = nn.Linear(dim, dim)
        self.recur = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.start = nn.Parameter(torch.randn(dim))
        self.dropout = nn.Dropout(dropout)

    def initial_state(self, batch_size: int) -> RecurrentState:
        return RecurrentState(self.start.repeat(batch_size, 1), self.zeros(batch_size, dtype=torch.int64))

    def flops_per_step(self) -> int:
        return 6 * self.input_shape[0] ** 2

    def clear(self, first: Tensor, state: RecurrentState) -> RecurrentState:
        return where_first(first, self.initial_state(first.shape[0]), state)

    def advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden = torch.tanh(self.read(x) + self.recur(state.hidden))
        phase = torch.sin(0.1 * state.steps.to(x.dtype))[:, None]
        return self.dropout(self.out(hidden)) + phase, RecurrentState(hidden, state.steps + 1)

    def unroll(self, inputs: Tensor, state: RecurrentState, is_first: Tensor) -> tuple[Tensor, RecurrentState]:
        outputs = []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            out, state = self.advance(x, self.clear(first, state))
            outputs.append(out)
        return torch.stack(outputs, 1), state


class WindowState(NamedTuple):
    cache: Tensor  # b w d
    valid: Tensor  # b


def window_mask(is_first: Tensor, count: Tensor, window: int) -> Tensor:
    """Which of the cached and the new keys each query may see, bool ``[b, t, w + t]``."""
    return to_full(visible_steps(steps_since_first(is_first, count), window))


class Window(MemoryCore[WindowState]):
    """One head of attention over the step itself and the w before it, all steps at once."""

    def __init__(self, dim: int = WIDTH, window: int = 5) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (dim,)
        self.window = window
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))

    def initial_state(self, batch_size: int) -> WindowState:
        cache = self.zeros(batch_size, self.window, self.input_shape[0])
        return WindowState(cache, self.zeros(batch_size, dtype=torch.int64))

    def flops_per_step(self) -> int:
        return 6 * self.input_shape[0] ** 2

    def arrive(self, first: Tensor, state: WindowState) -> WindowState:
        return self.reset(first, state)

    def unroll(self, inputs: Tensor, state: WindowState, is_first: Tensor) -> tuple[Tensor, WindowState]:
        state = self.arrive(is_first[:, 0], state)
        mask = window_mask(is_first, state.valid, self.window)
        context = torch.cat((state.cache, inputs), 1)
        scores = self.query(inputs) @ self.key(context).transpose(1, 2) / math.sqrt(self.input_shape[0])
        weights = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min).softmax(-1).to(inputs.dtype)
        weights = weights.masked_fill(~mask, 0.0)
        count = next_count(is_first, state.valid, self.window)
        return weights @ self.value(context), WindowState(slide(state.cache, inputs, count), count)


class ChunkState(NamedTuple):
    total: Tensor  # b d, sum of the running chunk
    summary: Tensor  # b d, mean of the chunks before
    place: Tensor  # b


class Chunked(MemoryCore[ChunkState]):
    """Every c steps of an episode the sum of the chunk is folded into a slow summary."""

    chunk_len = 4

    def __init__(self, dim: int = WIDTH) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (dim,)
        self.out = nn.Linear(2 * dim, dim)

    def initial_state(self, batch_size: int) -> ChunkState:
        zeros = self.zeros(batch_size, *self.input_shape)
        return ChunkState(zeros, zeros.clone(), self.zeros(batch_size, dtype=torch.int64))

    def flops_per_step(self) -> int:
        return 4 * self.input_shape[0] ** 2

    def places(self, state: ChunkState, is_first: Tensor) -> Tensor:
        return steps_since_first(is_first, state.place)

    def unroll(self, inputs: Tensor, state: ChunkState, is_first: Tensor) -> tuple[Tensor, ChunkState]:
        places = self.places(state, is_first)
        outputs = []
        for t, (x, first) in enumerate(zip(inputs.unbind(1), is_first.unbind(1), strict=True)):
            total, summary, _ = where_first(first, self.initial_state(x.shape[0]), state)
            border = (places[:, t] % self.chunk_len == 0) & (places[:, t] > 0)
            summary = torch.where(border[:, None], 0.5 * summary + 0.5 * torch.tanh(total), summary)
            total = torch.where(border[:, None], x, total + x)
            outputs.append(self.out(torch.cat((total, summary), -1)))
            state = ChunkState(total, summary, places[:, t] + 1)
        return torch.stack(outputs, 1), state


class Plain(nn.Module):
    """A user-defined core: it follows the contract by its methods alone, without a base class or a stream."""

    def __init__(self, dim: int = WIDTH) -> None:
        super().__init__()
        self.read = nn.Linear(dim, dim)
        self.keep = nn.Linear(dim, dim)

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (self.read.weight.new_zeros(batch_size, self.read.out_features),)

    def guard(self, x: Tensor) -> Tensor:
        return torch.where(x.isfinite(), x, 0.0)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        outputs = []
        for x, first in zip(self.guard(inputs).unbind(1), is_first.unbind(1), strict=True):
            (hidden,) = where_first(first, self.initial_state(x.shape[0]), state)
            gate = torch.sigmoid(self.keep(x))
            hidden = gate * hidden + (1 - gate) * self.read(x)
            state = (hidden.to(state[0].dtype),)
            outputs.append(hidden)
        return torch.stack(outputs, 1), state


CORRECT: dict[str, Callable[[], nn.Module]] = {
    "recurrent": Recurrent,
    "window": Window,
    "chunked": Chunked,
    "plain": Plain,
    "with dropout": partial(Recurrent, dropout=0.3),
}
