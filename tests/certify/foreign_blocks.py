"""Memories of unusual kinds as authors of other libraries write them."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from foreign_cores import DIM, WIDTH, Foreign, finite, keep
from torch import Tensor, nn


class SparseReservoir(nn.Module):
    """An echo-state network with a sparse matrix of fixed weights (Jaeger 2001)."""

    exemptions = dict.fromkeys(("compile", "export"), "torch traces no sparse tensors")
    recur: Tensor
    drive: Tensor

    def __init__(self) -> None:
        super().__init__()
        weights = torch.where(torch.rand(16, 16) < 0.2, torch.randn(16, 16), 0.0) + 0.1 * torch.eye(16)
        weights = 0.9 * weights / torch.linalg.eigvals(weights).abs().max()
        self.register_buffer("recur", weights.to_sparse())
        self.register_buffer("drive", torch.randn(16, WIDTH))
        self.out = nn.Linear(16, WIDTH)

    def initial_state(self, batch_size: int) -> Tensor:
        return self.drive.new_zeros(batch_size, 16)

    def forward(self, inputs: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        h, outs = state, []
        with torch.autocast(inputs.device.type, enabled=False):  # sparse products have no bfloat16
            for x, first in zip(finite(inputs).unbind(1), is_first.unbind(1), strict=True):
                new = torch.sparse.mm(self.recur, keep(first, h).t()).t() + x.to(h.dtype) @ self.drive.t()
                h = torch.lerp(keep(first, h), new.tanh(), 0.7)
                outs.append(h)
        return self.out(torch.stack(outs, 1)), h


class WKVState(NamedTuple):
    shifted: Tensor  # b d
    mixed: Tensor  # b d
    top: Tensor  # b d
    bottom: Tensor  # b d
    largest: Tensor  # b d, exponent


class RWKV4(nn.Module):
    """A sum of values weighted by exponentials, kept relative to the largest exponent (Peng et al. 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.v, self.r = (nn.Linear(WIDTH, DIM, bias=False) for _ in range(3))
        self.out = nn.Linear(DIM, WIDTH, bias=False)
        self.mix, self.mix_channel = nn.Parameter(torch.rand(3, WIDTH)), nn.Parameter(torch.rand(2, WIDTH))
        self.decay, self.bonus = nn.Parameter(torch.linspace(-2.0, 1.0, DIM)), nn.Parameter(torch.randn(DIM))
        self.up, self.down, self.gate = nn.Linear(WIDTH, DIM), nn.Linear(DIM, WIDTH), nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> WKVState:
        narrow = self.mix.new_zeros(batch_size, WIDTH)
        wide = self.decay.new_zeros(batch_size, DIM)
        return WKVState(narrow, narrow.clone(), wide, wide.clone(), torch.full_like(wide, -1e38))

    def forward(self, inputs: Tensor, state: WKVState, is_first: Tensor) -> tuple[Tensor, WKVState]:
        dtypes, outs, decay = [leaf.dtype for leaf in state], [], self.decay.exp()
        for x, first in zip(finite(inputs).unbind(1), is_first.unbind(1), strict=True):
            fresh = self.initial_state(len(x))
            before, channel, top, bottom, most = (keep(first, old, new) for old, new in zip(state, fresh, strict=True))
            k, v, r = (
                net(torch.lerp(before, x, by)) for net, by in zip((self.k, self.v, self.r), self.mix, strict=True)
            )
            now = torch.maximum(most, self.bonus + k)
            old, new = (most - now).exp(), (self.bonus + k - now).exp()
            y = x + self.out(r.sigmoid() * (old * top + new * v) / (old * bottom + new))
            then = torch.maximum(most - decay, k)
            old, new = (most - decay - then).exp(), (k - then).exp()
            top, bottom = old * top + new * v, old * bottom + new
            a, b = (torch.lerp(channel, y.to(channel.dtype), by) for by in self.mix_channel)
            outs.append(y + self.gate(a).sigmoid() * self.down(self.up(b).relu().square()))
            made = (x, y, top, bottom, then)
            state = WKVState(*(leaf.to(dtype, copy=True) for leaf, dtype in zip(made, dtypes, strict=True)))
        return torch.stack(outs, 1), state


class HardSlots(Foreign):
    """Writes each step into the slot whose key is nearest, and into no other; reads by attention."""

    shapes = ((5, DIM), (5,))
    discrete = True

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(5, 4))
        self.address, self.value, self.query = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, DIM), nn.Linear(WIDTH, DIM)
        self.out = nn.Linear(DIM, WIDTH)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        slots, age = state
        score = self.address(x) @ self.keys.t() + 0.1 * age.clamp(max=9)
        chosen = F.one_hot(score.argmax(-1), 5).bool()
        slots = torch.where(chosen[..., None], (self.value(x) * score.amax(-1, keepdim=True).tanh())[:, None], slots)
        age = torch.where(chosen, 0.0, age + 1)
        look = (slots @ self.query(x)[..., None].to(slots.dtype))[..., 0].softmax(-1)
        return self.out((look[:, None] @ slots)[:, 0]), (slots, age)


class Hyena(nn.Module):
    """A gated convolution over the last steps, whose long filter is a function of the distance (Poli et al. 2023)."""

    place: Tensor
    features: Tensor

    def __init__(self, span: int = 10) -> None:
        super().__init__()
        self.span = span
        self.project, self.out = nn.Linear(WIDTH, 3 * DIM), nn.Linear(DIM, WIDTH)
        self.filter = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, DIM))
        self.fade = nn.Parameter(torch.linspace(0.5, 2.0, DIM))
        place = torch.linspace(0, 1, span)[:, None]
        waves = 2 * math.pi * place * torch.arange(1, 3)
        self.register_buffer("place", place)
        self.register_buffer("features", torch.cat((place, waves.sin(), waves.cos()), 1))

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (self.fade.new_zeros(batch_size, self.span - 1, DIM),)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        gate, key, value = self.project(finite(inputs)).chunk(3, -1)
        taps = self.filter(self.features) * (-self.fade.abs() * self.place).exp()  # by distance
        line = torch.cat((keep(is_first[:, 0], state[0]), (key * value).to(state[0].dtype)), 1)
        episode = F.pad(is_first.long().cumsum(1), (self.span - 1, 0))
        near = line.unfold(1, self.span, 1)  # b t d s, the latest last
        same = episode.unfold(1, self.span, 1) == episode[:, self.span - 1 :, None]
        same = torch.where((episode[:, self.span - 1 :] == 0)[..., None], True, same)
        seen = torch.where(same[:, :, None], near, 0.0)
        out = self.out(gate * torch.einsum("btds,sd->btd", seen, taps.flip(0).to(seen.dtype)))
        last = torch.where(episode[:, -self.span + 1 :, None] == episode[:, -1:, None], line[:, -self.span + 1 :], 0.0)
        return out, (last,)


BLOCKS: list[type[nn.Module]] = [SparseReservoir, RWKV4, HardSlots, Hyena]
"""Cores that must pass."""
