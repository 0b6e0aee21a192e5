"""Cores that keep the contract, as somebody writes them who has read the docs alone."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore

WIDTH = 6
DIM = 8


class VectorState(NamedTuple):
    h: Tensor  # b d


class SpectralState(NamedTuple):
    z: Tensor  # b d n, complex


class S4D(MemoryCore[SpectralState]):
    """Diagonal state space with complex numbers, a step at a time."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.input_shape = self.output_shape = (WIDTH,)
        self.log_decay = nn.Parameter(torch.zeros(WIDTH, size) - 0.7)
        self.frequency = nn.Parameter(torch.arange(size).float().expand(WIDTH, size).clone())
        self.mix = nn.Parameter(torch.randn(WIDTH, size, 2))
        self.log_dt = nn.Parameter(torch.full((WIDTH,), -1.0))
        self.skip = nn.Parameter(torch.ones(WIDTH))
        self.out = nn.Linear(WIDTH, WIDTH)

    def initial_state(self, batch_size: int) -> SpectralState:
        zeros = self.zeros(batch_size, *self.log_decay.shape)
        return SpectralState(torch.complex(zeros, zeros))

    def flops_per_step(self) -> int:
        return 16 * self.log_decay.numel()

    def unroll(self, inputs: Tensor, state: SpectralState, is_first: Tensor) -> tuple[Tensor, SpectralState]:
        a = torch.complex(-self.log_decay.exp(), self.frequency)
        turn = (a * self.log_dt.exp()[:, None]).exp()
        drive = (turn - 1) / a
        z, outs = state.z, []
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            z = torch.where(first[:, None, None], torch.zeros_like(z), z)
            z = turn * z + drive * x[..., None]
            y = 2 * (torch.view_as_complex(self.mix) * z).real.sum(-1) + self.skip * x
            outs.append(self.out(F.gelu(y)))
        return torch.stack(outs, 1), SpectralState(z)


class LSTMState(NamedTuple):
    h: Tensor  # b l d
    c: Tensor  # b l d


def has_bfloat16_lstm() -> bool:
    """Whether torch has a kernel of nn.LSTM for bfloat16 on this processor."""
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(WIDTH, DIM, num_layers=2, batch_first=True)(torch.zeros(1, 1, WIDTH))
    except RuntimeError:
        return False
    return True


class TorchLSTM(MemoryCore[LSTMState]):
    """nn.LSTM, one step at a time."""

    exemptions = {} if has_bfloat16_lstm() else {"bfloat16": "torch has no bfloat16 LSTM for this processor"}

    def __init__(self) -> None:
        super().__init__()
        self.input_shape, self.output_shape = (WIDTH,), (DIM,)
        self.cell = nn.LSTM(WIDTH, DIM, num_layers=2, batch_first=True, dropout=0.1)

    def initial_state(self, batch_size: int) -> LSTMState:
        return LSTMState(self.zeros(batch_size, 2, DIM), self.zeros(batch_size, 2, DIM))

    def flops_per_step(self) -> int:
        return 8 * DIM * (WIDTH + 3 * DIM)

    def unroll(self, inputs: Tensor, state: LSTMState, is_first: Tensor) -> tuple[Tensor, LSTMState]:
        outs = []
        for t in range(inputs.shape[1]):
            state = self.reset(is_first[:, t], state)
            memory = (state.h.transpose(0, 1).contiguous(), state.c.transpose(0, 1).contiguous())
            out, (h, c) = self.cell(inputs[:, t : t + 1], memory)
            state = LSTMState(h.transpose(0, 1), c.transpose(0, 1))
            outs.append(out)
        return torch.cat(outs, 1), state


class TorchGRU(nn.Module):
    """nn.GRU by the methods of the contract alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(WIDTH, DIM, batch_first=True)

    def initial_state(self, batch_size: int) -> tuple[Tensor]:
        return (self.gru.weight_hh_l0.new_zeros(batch_size, 1, DIM),)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        clean = torch.where(inputs.isfinite(), inputs, 0.0)
        h, outs = state[0], []
        for t in range(inputs.shape[1]):
            h = torch.where(is_first[:, t, None, None], torch.zeros_like(h), h)
            out, last = self.gru(clean[:, t : t + 1], h.transpose(0, 1).contiguous())
            h = last.transpose(0, 1).to(state[0].dtype)
            outs.append(out)
        return torch.cat(outs, 1), (h,)


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


USER_CORES: list[type[nn.Module]] = [
    S4D,
    TorchLSTM,
    TorchGRU,
    DecayingLinearAttention,
    SlidingConvolution,
    QueueMemory,
]
