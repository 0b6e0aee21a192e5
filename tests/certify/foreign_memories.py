"""Attention, convolutions and external memories as authors of other libraries write them."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from foreign_cores import DIM, HEADS, WIDTH, Foreign, finite, keep
from torch import Tensor, nn


def episodes(is_first: Tensor) -> Tensor:
    """Number of the episode of each step; 0: the one that began before the call."""
    return is_first.long().cumsum(1)


class DilatedState(NamedTuple):
    near: Tensor  # b 2 d
    far: Tensor  # b 4 d


class TCN(nn.Module):
    """Two dilated causal convolutions; the inputs that they still need are the state."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv1d(WIDTH, DIM, 3), nn.Conv1d(DIM, DIM, 3, dilation=2)

    def initial_state(self, batch_size: int) -> DilatedState:
        zeros = self.near.weight.new_zeros
        return DilatedState(zeros(batch_size, 2, WIDTH), zeros(batch_size, 4, DIM))

    @staticmethod
    def convolve(layer: nn.Conv1d, past: Tensor, x: Tensor, age: Tensor) -> tuple[Tensor, Tensor]:
        """Taps that reach before the episode's start read zeros."""
        span, step = past.shape[1], layer.dilation[0]
        line, out = torch.cat((past, x), 1), layer.bias
        for tap in range(3):
            back = (2 - tap) * step
            part = line[:, span - back : span - back + x.shape[1]]
            out = out + torch.where((age >= back)[..., None], part, 0.0) @ layer.weight[..., tap].T
        kept = line[:, -span:]
        return out, torch.where((age[:, -1:] >= torch.arange(span - 1, -1, -1, device=x.device))[..., None], kept, 0.0)

    def forward(self, inputs: Tensor, state: DilatedState, is_first: Tensor) -> tuple[Tensor, DilatedState]:
        t = torch.arange(inputs.shape[1], device=inputs.device)
        last = torch.where(is_first, t, -100).cummax(1).values
        # Before the first reset the cache counts as part of the episode: it has zeros where nothing was.
        age, x = t - last, finite(inputs)
        hidden, near = self.convolve(self.near, state.near, x, age)
        hidden = hidden.relu()
        out, far = self.convolve(self.far, state.far, hidden, age)
        return out, DilatedState(near.to(state.near.dtype), far.to(state.far.dtype))


class NearestState(NamedTuple):
    keys: Tensor  # b n d
    values: Tensor  # b n d
    count: Tensor  # b


class NearestNeighbours(nn.Module):
    """A ring of keys and values; the three nearest are averaged (Memorizing Transformers, Wu et al. 2022)."""

    discrete = True

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.size = size
        self.query, self.key, self.value = (nn.Linear(WIDTH, DIM) for _ in range(3))
        self.gate = nn.Parameter(torch.zeros(()))

    def initial_state(self, batch_size: int) -> NearestState:
        zeros = self.gate.new_zeros(batch_size, self.size, DIM)
        return NearestState(zeros, zeros.clone(), torch.zeros(batch_size, dtype=torch.long, device=zeros.device))

    def forward(self, inputs: Tensor, state: NearestState, is_first: Tensor) -> tuple[Tensor, NearestState]:
        x, outs = finite(inputs), []
        queries, new_keys, new_values = self.query(x), self.key(x), self.value(x)
        keys, values, count = state
        for t in range(x.shape[1]):
            first, place = is_first[:, t], torch.arange(self.size, device=x.device)
            keys, values, count = keep(first, keys), keep(first, values), keep(first, count, 0)
            here = (place == (count % self.size)[:, None])[..., None]
            keys = torch.where(here, new_keys[:, t, None].to(keys.dtype), keys)
            values = torch.where(here, new_values[:, t, None].to(values.dtype), values)
            count = count + 1
            scores = (keys * queries[:, t, None]).sum(-1).masked_fill(place >= count[:, None], -math.inf)
            best, index = scores.topk(3)
            found = values.gather(1, index[..., None].expand(-1, -1, DIM))
            outs.append(self.gate.sigmoid() * (best.softmax(-1)[..., None] * found).sum(1) + new_values[:, t])
        return torch.stack(outs, 1), NearestState(keys, values, count)


class LinearAttention(Foreign):
    """Sums of feature maps, and their normaliser (Katharopoulos et al. 2020)."""

    shapes = ((DIM, DIM), (DIM,))

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.fade = nn.Linear(WIDTH, 3 * DIM), nn.Parameter(torch.full((DIM,), 2.0))

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.qkv(x).chunk(3, -1)
        (s, z), q, k = state, F.elu(q) + 1, F.elu(k) + 1
        fade = self.fade.sigmoid()
        s, z = fade[:, None] * s + k[..., None] * v[:, None], fade * z + k
        return (q[:, None] @ s)[:, 0] / ((q * z).sum(-1, keepdim=True) + 1e-6), (s, z)


class ConvGRU(Foreign):
    """A GRU of maps of 3 x 4 x 4 behind a convolution."""

    shapes = ((4, 4, 4),)
    input_shape = (3, 4, 4)

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv2d(3, 4, 3, padding=1)
        self.gates, self.new = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        (h,), x = state, self.encode(x).relu()
        r, z = self.gates(torch.cat((x, h), 1)).sigmoid().chunk(2, 1)
        h = torch.lerp(h, self.new(torch.cat((x, r * h), 1)).tanh().to(h.dtype), z.to(h.dtype))
        return h.flatten(1), (h,)


class RetNet(nn.Module):
    """Retention of several heads in its parallel form, with a group norm (Sun et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.gate, self.out = nn.Linear(WIDTH, 3 * DIM), nn.Linear(WIDTH, DIM), nn.Linear(DIM, WIDTH)
        self.norm = nn.LayerNorm(DIM // HEADS, elementwise_affine=False)
        self.register_buffer("log_decay", torch.log1p(-(2.0 ** -torch.arange(2.0, 2 + HEADS))))

    def initial_state(self, batch_size: int) -> Tensor:
        return self.log_decay.new_zeros(batch_size, HEADS, DIM // HEADS, DIM // HEADS)

    def forward(self, inputs: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        x, steps = finite(inputs), torch.arange(inputs.shape[1], device=inputs.device)
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        age, log, which = steps[:, None] - steps, self.log_decay[:, None, None], episodes(is_first)
        same = (which[:, :, None] == which[:, None]) & (age >= 0)
        decay = torch.where(same[:, None], (log * age.clamp(min=0)).exp(), 0.0)
        state = keep(is_first[:, 0], state)
        carried = torch.where((which == 0)[:, None, :, None], (log * (steps[:, None] + 1)).exp() * (q @ state), 0.0)
        out = self.norm((q @ k.mT * decay) @ v + carried).transpose(1, 2).flatten(2)
        left = keep(which[:, -1] > 0, (log * len(steps)).exp() * state)
        return self.out(F.silu(self.gate(x)) * out), (left + (k * decay[:, :, -1, :, None]).mT @ v).to(state.dtype)


class TuringState(NamedTuple):
    memory: Tensor  # b m d
    read: Tensor  # b d
    weights: Tensor  # b m
    controller: tuple[Tensor, Tensor]


class NeuralTuringMachine(nn.Module):
    """Addresses by content, then moves (Graves et al. 2014); an LSTM cell controls it."""

    def __init__(self, slots: int = 5, width: int = 4) -> None:
        super().__init__()
        self.cell, self.sizes = nn.LSTMCell(WIDTH + width, DIM), (width, 1, 1, 3, 1, width, width)
        self.heads, self.start = nn.Linear(DIM, sum(self.sizes)), nn.Parameter(0.1 * torch.randn(slots, width))
        self.out = nn.Linear(DIM + width, WIDTH)

    def initial_state(self, batch_size: int) -> TuringState:
        slots, width = self.start.shape
        zeros, weights = self.start.new_zeros, torch.zeros(batch_size, slots, device=self.start.device)
        weights = torch.cat((weights[:, :1] + 1, weights[:, 1:]), 1).to(self.start.dtype)
        controller = (zeros(batch_size, DIM), zeros(batch_size, DIM))
        return TuringState(self.start.repeat(batch_size, 1, 1), zeros(batch_size, width), weights, controller)

    def forward(self, inputs: Tensor, state: TuringState, is_first: Tensor) -> tuple[Tensor, TuringState]:
        outs = []
        for x, first in zip(finite(inputs).unbind(1), is_first.unbind(1), strict=True):
            fresh = self.initial_state(len(x))
            memory, read, weights = (keep(first, old, new) for old, new in zip(state[:3], fresh[:3], strict=True))
            h, c = (keep(first, old, new) for old, new in zip(state.controller, fresh.controller, strict=True))
            h, c = self.cell(torch.cat((x, read), -1), (h, c))
            key, sharp, gate, shift, power, erase, add = self.heads(h).split(self.sizes, -1)
            content = (F.softplus(sharp) * F.cosine_similarity(memory, key[:, None], -1)).softmax(-1)
            weights = torch.lerp(weights, content, gate.sigmoid())
            moved = torch.stack([weights.roll(by, 1) for by in (-1, 0, 1)], -1)
            weights = (moved * shift.softmax(-1)[:, None]).sum(-1).clamp(min=1e-12) ** (1 + F.softplus(power))
            weights = weights / weights.sum(-1, keepdim=True)
            memory = memory * (1 - weights[..., None] * erase.sigmoid()[:, None]) + weights[..., None] * add[:, None]
            read = (weights[:, None] @ memory)[:, 0]
            made = (memory, read, weights, h, c)
            kept = (*state[:3], *state.controller)
            memory, read, weights, h, c = (new.to(old.dtype) for new, old in zip(made, kept, strict=True))
            state = TuringState(memory, read, weights, (h, c))
            outs.append(self.out(torch.cat((h, read), -1)))
        return torch.stack(outs, 1), state


class Hopfield(Foreign):
    """Retrieves by three steps of the modern Hopfield network, then writes where it looked (Ramsauer et al. 2020)."""

    shapes = ((DIM, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, 4), nn.Linear(4, WIDTH)
        self.patterns = nn.Parameter(torch.randn(DIM, 4))

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        return (self.patterns.expand(batch_size, -1, -1).clone(),)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        (stored,), seen = state, self.query(x)
        found = seen
        for _ in range(3):
            looked = (2 * (stored @ found[..., None])[..., 0]).softmax(-1)
            found = (looked[:, None] @ stored)[:, 0]
        stored = torch.lerp(stored, seen[:, None].to(stored.dtype), 0.5 * looked[..., None].to(stored.dtype))
        return self.out(found), (stored,)


class SumsOverTheCall(nn.Module):
    """All steps of a minLSTM at once by a scan in logarithms (Heinsen 2023; Feng et al. 2024).

    Broken: differences of sums over the whole call keep the rounding of what was before a reset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(WIDTH, 3 * DIM)

    def initial_state(self, batch_size: int) -> Tensor:
        return self.net.weight.new_ones(batch_size, DIM)

    def forward(self, inputs: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        forget, write, new = self.net(finite(inputs)).float().chunk(3, -1)
        balance = F.softplus(-forget) - F.softplus(-write)
        log_f, log_i = -F.softplus(balance), -F.softplus(-balance)
        log_h = log_i + torch.where(new >= 0, (F.relu(new) + 0.5).log(), -F.softplus(-new))
        # A step before it: the memory; at a reset a memory of ones enters, and what was before is forgotten.
        log_h = torch.where(is_first[..., None], torch.logaddexp(log_h, log_f), log_h)
        fresh, which = keep(is_first[:, 0], state, 1.0), F.pad(episodes(is_first), (1, 0))
        terms = torch.cat((fresh.log()[:, None], log_h), 1)
        total = F.pad(log_f.cumsum(1), (0, 0, 1, 0))
        age = total[:, :, None] - total[:, None]
        order = torch.arange(terms.shape[1], device=inputs.device)
        seen = (which[:, :, None] == which[:, None]) & (order[:, None] >= order)
        found = torch.where(seen[..., None], age + terms[:, None], -math.inf).logsumexp(2)[:, 1:].exp()
        return found, found[:, -1].to(state.dtype)


class RotaryState(NamedTuple):
    keys: Tensor  # b w h e
    values: Tensor  # b w h e
    age: Tensor  # b, steps of the episode


class RotaryWindow(nn.Module):
    """Attention over the last six steps with rotary positions, a cache of rotated keys and torch's attention."""

    def __init__(self, window: int = 6) -> None:
        super().__init__()
        self.window = window
        self.qkv, self.out = nn.Linear(WIDTH, 3 * DIM, bias=False), nn.Linear(DIM, WIDTH)
        self.register_buffer("speed", 10.0 ** -torch.arange(0.0, 2.0), persistent=False)

    def initial_state(self, batch_size: int) -> RotaryState:
        zeros = self.out.weight.new_zeros(batch_size, self.window, HEADS, DIM // HEADS)
        return RotaryState(zeros, zeros.clone(), torch.zeros(batch_size, dtype=torch.long, device=zeros.device))

    def turn(self, x: Tensor, place: Tensor) -> Tensor:
        angle = (place[:, None, None] * self.speed).to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

    def forward(self, inputs: Tensor, state: RotaryState, is_first: Tensor) -> tuple[Tensor, RotaryState]:
        keys, values, age = state
        qkv, outs = self.qkv(finite(inputs)).unflatten(-1, (3, HEADS, -1)), []
        for t in range(inputs.shape[1]):
            first = is_first[:, t]
            keys, values, age = keep(first, keys), keep(first, values), keep(first, age, 0)
            q, k, v = qkv[:, t].unbind(1)
            keys = torch.cat((keys[:, 1:], self.turn(k, age)[:, None].to(keys.dtype)), 1)
            values = torch.cat((values[:, 1:], v[:, None].to(values.dtype)), 1)
            filled = torch.arange(self.window - 1, -1, -1, device=age.device) <= age[:, None]
            attended = F.scaled_dot_product_attention(
                self.turn(q, age)[:, :, None].to(keys.dtype),
                keys.transpose(1, 2),
                values.transpose(1, 2),
                attn_mask=filled[:, None, None],
            )
            outs.append(self.out(attended.flatten(1)))
            age = age + 1
        return torch.stack(outs, 1), RotaryState(keys, values, age)


MEMORIES: list[type[nn.Module]] = [
    TCN,
    NearestNeighbours,
    LinearAttention,
    ConvGRU,
    RetNet,
    NeuralTuringMachine,
    Hopfield,
    RotaryWindow,
]
"""Cores that must pass."""
