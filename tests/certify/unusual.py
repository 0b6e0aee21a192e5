"""Cores that keep the contract in unusual ways: the certificate neither accuses them nor breaks down."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore
from recollect.state import where_first

WIDTH = 6


class Stepwise(nn.Module):
    """A user-defined core as a loop over its own :meth:`step`; the memory is a bare tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.keep = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> Any:
        return self.read.weight.new_zeros(batch_size, WIDTH)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        clean, outputs = torch.where(inputs.isfinite(), inputs, 0.0), []
        for x, first in zip(clean.unbind(1), is_first.unbind(1), strict=True):
            output, state = self.step(x, self.clear(first, state))
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def clear(self, first: Tensor, state: Any) -> Any:
        return where_first(first, self.initial_state(first.shape[0]), state)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden = torch.tanh(self.read(x) + self.keep(state))
        return hidden, hidden.to(state.dtype)


class RemembersNothing(Stepwise):
    """Its state is an empty tuple."""

    def initial_state(self, batch_size: int) -> Any:
        return ()

    def clear(self, first: Tensor, state: Any) -> Any:
        return state

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.keep(self.read(x).relu()), state


class LearnsNothing(nn.Module):
    """A moving average: buffers, and no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("decay", torch.linspace(0.1, 0.9, WIDTH))

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (self.decay.new_zeros(batch_size, WIDTH),)

    def forward(self, inputs: Tensor, state: tuple[Tensor], is_first: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        (mean,), outputs = state, []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            mean = self.decay * torch.where(first[:, None], 0.0, mean) + (1 - self.decay) * x
            outputs.append(mean)
        return torch.stack(outputs, 1), (mean.clone(),)


class Frozen(Stepwise):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(requires_grad=False)


class Ring(NamedTuple):
    steps: Tensor  # b n d
    place: Tensor  # b, uint8
    is_full: Tensor  # b, bool


class Rings(NamedTuple):
    ring: Ring
    more: tuple[Tensor, tuple[Tensor]]


class NestedRing(Stepwise):
    """A ring buffer with a pointer of eight bits and a flag, inside a tuple inside a tuple."""

    size = 5

    def initial_state(self, batch_size: int) -> Rings:
        zeros = self.read.weight.new_zeros(batch_size, self.size, WIDTH)
        number = zeros.new_zeros(batch_size, dtype=torch.int32)
        return Rings(Ring(zeros, number.to(torch.uint8), number.bool()), (zeros[:, 0].clone(), (number.clone(),)))

    def step(self, x: Tensor, state: Rings) -> tuple[Tensor, Rings]:
        (steps, place, is_full), (mean, (number,)) = state
        here = F.one_hot(place.long(), self.size).bool()[..., None]
        steps = torch.where(here, x[:, None], steps)
        place = (place + 1) % self.size
        output = self.read(steps.mean(1)) + self.keep(x + mean) * is_full[:, None]
        ring = Ring(steps.to(state.ring.steps.dtype), place, is_full | (place == 0))
        return output, Rings(ring, ((0.5 * mean + x).to(mean.dtype), (number + 1,)))


class OneNumber(Stepwise):
    """Outputs are [b, t]."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = super().step(x, state)
        return hidden.sum(-1), state


class Noisy(NamedTuple):
    hidden: Tensor
    stored: Tensor
    steps: Tensor


class NoiseAtChunkEnds(Stepwise):
    """In training mode, noise on what is stored every fifth step."""

    def initial_state(self, batch_size: int) -> Noisy:
        zeros = self.read.weight.new_zeros(batch_size, WIDTH)
        return Noisy(zeros, zeros.clone(), zeros.new_zeros(batch_size, dtype=torch.int64))

    def step(self, x: Tensor, state: Noisy) -> tuple[Tensor, Noisy]:
        hidden = 0.5 * state.hidden + self.read(x)
        new = hidden + 0.3 * torch.randn_like(hidden) if self.training else hidden
        stored = torch.where((state.steps % 5 == 4)[:, None], new, state.stored)
        kept = (leaf.to(state.hidden.dtype) for leaf in (hidden, stored))
        return torch.tanh(hidden) + self.keep(stored), Noisy(*kept, state.steps + 1)


class LayerNamedStream(Stepwise):
    """One of two streams of a network, no method of this library's."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = nn.Linear(WIDTH, WIDTH)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return super().step(self.stream(x), state)


class NarrowMemory(Stepwise):
    """Keeps its memory in bfloat16."""

    stops_gradient = "rounding has none"

    def initial_state(self, batch_size: int) -> Any:
        return self.read.weight.new_zeros(batch_size, WIDTH, dtype=torch.bfloat16)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, _ = super().step(x, state.to(x.dtype))
        return hidden, hidden.to(torch.bfloat16)


class Walk(NamedTuple):
    hidden: Tensor  # b d
    place: Tensor  # b 2, whole numbers of either sign


class WalksBackwards(MemoryCore[Walk]):
    """Where one stands on a grid: whole numbers that count nothing, and go below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.read, self.keep = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> Walk:
        return Walk(self.zeros(batch_size, WIDTH), self.zeros(batch_size, 2, dtype=torch.int64))

    def flops_per_step(self) -> int:
        return 4 * WIDTH**2

    def unroll(self, inputs: Tensor, state: Walk, is_first: Tensor) -> tuple[Tensor, Walk]:
        outputs = []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            hidden, place = where_first(first, self.initial_state(first.shape[0]), state)
            place = place - (x[:, :2] > -0.5).long()
            seen = torch.sin(0.1 * place.sum(-1, keepdim=True).to(x.dtype))
            state = Walk(torch.tanh(self.read(x) + self.keep(hidden) + seen), place)
            outputs.append(state.hidden)
        return torch.stack(outputs, 1), state


UNUSUAL = (
    Stepwise,
    RemembersNothing,
    LearnsNothing,
    Frozen,
    NestedRing,
    OneNumber,
    NoiseAtChunkEnds,
    LayerNamedStream,
    NarrowMemory,
    WalksBackwards,
)
