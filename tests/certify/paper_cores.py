"""More cores that keep the contract, each the heart of a paper's memory, written with the docs alone."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from user_cores import DIM, WIDTH

from recollect.cores.contract import MemoryCore


class RWKVState(NamedTuple):
    before: Tensor  # b d, the input of the step before
    numerator: Tensor  # b d
    denominator: Tensor  # b d
    largest: Tensor  # b d, exponent that both are scaled by


class RWKV(MemoryCore[RWKVState]):
    """Time mixing of RWKV-4 (Peng et al. 2023): a weighted mean with decay, kept in a safe range of exponents."""

    def __init__(self) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.mix = nn.Parameter(torch.rand(3, WIDTH))
        self.decay, self.bonus = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH))
        self.key, self.value, self.gate, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def initial_state(self, batch_size: int) -> RWKVState:
        zeros = self.zeros(batch_size, WIDTH)
        return RWKVState(zeros, zeros.clone(), zeros.clone(), zeros - 1e4)

    def flops_per_step(self) -> int:
        return 8 * WIDTH**2

    def unroll(self, inputs: Tensor, state: RWKVState, is_first: Tensor) -> tuple[Tensor, RWKVState]:
        outs, decay = [], -self.decay.exp()
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            before, top, bottom, largest = self.reset(first, state)
            k, v, r = (torch.lerp(before, x, mix) for mix in self.mix)
            k, v, r = self.key(k), self.value(v), self.gate(r).sigmoid()
            most = torch.maximum(largest, self.bonus + k)
            old, new = (largest - most).exp(), (self.bonus + k - most).exp()
            outs.append(self.out(r * (old * top + new * v) / (old * bottom + new)))
            most = torch.maximum(largest + decay, k)
            old, new = (largest + decay - most).exp(), (k - most).exp()
            state = RWKVState(x.clone(), old * top + new * v, old * bottom + new, most)
        return torch.stack(outs, 1), state


class MatrixState(NamedTuple):
    memory: Tensor  # b k v


class DecayingLinearAttention(nn.Module):
    """S = a S + k v^T, read by q (RetNet, Sun et al. 2023), a call at once, by the methods of the contract alone."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, DIM) for _ in range(3))
        self.log_decay = nn.Parameter(torch.tensor([-0.1]))

    def initial_state(self, batch_size: int) -> MatrixState:
        return MatrixState(self.log_decay.new_zeros(batch_size, DIM, DIM))

    def forward(self, inputs: Tensor, state: MatrixState, is_first: Tensor) -> tuple[Tensor, MatrixState]:
        clean = torch.where(inputs.isfinite(), inputs, 0.0)
        q, k, v = (net(clean) for net in (self.q, self.k, self.v))
        t = clean.shape[1]
        steps, episode = torch.arange(t, device=inputs.device), is_first.long().cumsum(1)
        age = steps[:, None] - steps
        seen = (age >= 0) & (episode[:, :, None] == episode[:, None, :])
        decay = (self.log_decay * age.clamp(min=0)).exp()
        weights = torch.where(seen, decay * (q @ k.mT), 0.0)
        # Cleared before any product: a NaN in a forgotten memory must not meet a weight.
        memory = torch.where(is_first[:, 0, None, None], 0.0, state.memory)
        carried = (self.log_decay * (steps + 1)).exp()[:, None] * (q @ memory)
        out = weights @ v + torch.where((episode == 0)[..., None], carried, 0.0)
        memory = torch.where((episode[:, -1] > 0)[:, None, None], 0.0, memory * (self.log_decay * t).exp())
        last = torch.where(seen[:, -1], decay[-1], 0.0)
        return out, MatrixState((memory + (k * last[..., None]).mT @ v).to(state.memory.dtype))


class SelectiveScan(MemoryCore[MatrixState]):
    """Mamba's scan (Gu and Dao 2023): step size, read and write vectors are functions of the input."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.log_a = nn.Parameter(torch.arange(1.0, size + 1).log().repeat(WIDTH, 1))
        self.step, self.both = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * size, bias=False)
        self.skip, self.gate = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> MatrixState:
        return MatrixState(self.zeros(batch_size, *self.log_a.shape))

    def flops_per_step(self) -> int:
        return 4 * WIDTH**2 + 8 * self.log_a.numel()

    def unroll(self, inputs: Tensor, state: MatrixState, is_first: Tensor) -> tuple[Tensor, MatrixState]:
        dt = F.softplus(self.step(inputs))
        write, read = self.both(inputs).chunk(2, -1)
        keep = (-dt[..., None] * self.log_a.exp()).exp()
        push = (dt * inputs)[..., None] * write[..., None, :]
        h, outs = state.memory, []
        for t in range(inputs.shape[1]):
            h = keep[:, t] * torch.where(is_first[:, t, None, None], 0.0, h) + push[:, t]
            outs.append((h @ read[:, t, :, None])[..., 0])
        return F.silu(self.gate(inputs)) * (torch.stack(outs, 1) + self.skip * inputs), MatrixState(h)


class RecentState(NamedTuple):
    recent: Tensor  # b w d


class SlidingConvolution(MemoryCore[RecentState]):
    """A depthwise convolution over the last w + 1 steps of the episode."""

    def __init__(self, window: int = 4) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.window = window
        self.taps = nn.Parameter(torch.randn(window + 1, WIDTH))
        self.out = nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> RecentState:
        return RecentState(self.zeros(batch_size, self.window, WIDTH))

    def flops_per_step(self) -> int:
        return 2 * WIDTH * (WIDTH + self.window + 1)

    def unroll(self, inputs: Tensor, state: RecentState, is_first: Tensor) -> tuple[Tensor, RecentState]:
        timeline = torch.cat((state.recent, inputs), 1)
        episode = F.pad(is_first.long().cumsum(1), (self.window, 0))
        t, total = inputs.shape[1], torch.zeros_like(inputs)
        for back in range(self.window + 1):
            start = self.window - back
            same = episode[:, start : start + t] == episode[:, self.window :]
            total = total + torch.where(same[..., None], timeline[:, start : start + t], 0.0) * self.taps[back]
        kept = episode[:, -self.window :] == episode[:, -1:]
        return self.out(F.gelu(total)), RecentState(torch.where(kept[..., None], timeline[:, -self.window :], 0.0))


class QueueState(NamedTuple):
    entries: Tensor  # b n d
    count: Tensor  # b, steps of the episode


class QueueMemory(MemoryCore[QueueState]):
    """An external memory, first in first out: every third step of an episode is written, all steps attend to it."""

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.size = size
        self.write, self.query, self.out = nn.Linear(WIDTH, DIM), nn.Linear(WIDTH, DIM), nn.Linear(DIM, WIDTH)

    def initial_state(self, batch_size: int) -> QueueState:
        return QueueState(self.zeros(batch_size, self.size, DIM), self.zeros(batch_size, dtype=torch.int64))

    def flops_per_step(self) -> int:
        return 6 * WIDTH * DIM + 4 * self.size * DIM

    def unroll(self, inputs: Tensor, state: QueueState, is_first: Tensor) -> tuple[Tensor, QueueState]:
        outs = []
        written, queries = self.write(inputs), self.query(inputs)
        for t in range(inputs.shape[1]):
            entries, count = self.reset(is_first[:, t], state)
            place = torch.arange(self.size, device=count.device) == (count // 3 % self.size)[:, None]
            due = place & (count % 3 == 0)[:, None]
            entries = torch.where(due[..., None], written[:, t, None], entries)
            # Never empty: an episode's first step writes.
            filled = torch.arange(self.size, device=count.device) <= (count // 3)[:, None]
            scores = (entries @ queries[:, t, :, None])[..., 0].masked_fill(~filled, -torch.inf)
            outs.append(self.out((scores.softmax(-1)[:, None] @ entries)[:, 0]))
            state = QueueState(entries, count + 1)
        return torch.stack(outs, 1), state


PAPERS: list[type[nn.Module]] = [RWKV, DecayingLinearAttention, SelectiveScan, SlidingConvolution, QueueMemory]
"""Five more small cores that keep the contract."""
