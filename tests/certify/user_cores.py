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


class MinGRU(MemoryCore[VectorState]):
    """h_t = (1 - z_t) h_{t-1} + z_t g(x_t), in log space (Feng et al. 2024, appendix B)."""

    def __init__(self) -> None:
        super().__init__()
        self.input_shape, self.output_shape = (WIDTH,), (DIM,)
        self.gate, self.candidate = nn.Linear(WIDTH, DIM), nn.Linear(WIDTH, DIM)

    def initial_state(self, batch_size: int) -> VectorState:
        return VectorState(self.zeros(batch_size, DIM) + 0.5)

    def flops_per_step(self) -> int:
        return 4 * WIDTH * DIM

    def unroll(self, inputs: Tensor, state: VectorState, is_first: Tensor) -> tuple[Tensor, VectorState]:
        gate, candidate = self.gate(inputs), self.candidate(inputs)
        written = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
        keep, write = F.logsigmoid(-gate), F.logsigmoid(gate) + written.log()
        outs, log_h, fresh = [], state.h.log(), self.initial_state(inputs.shape[0]).h.log()
        for t in range(inputs.shape[1]):
            log_h = torch.logaddexp(keep[:, t] + torch.where(is_first[:, t, None], fresh, log_h), write[:, t])
            outs.append(log_h.exp())
        return torch.stack(outs, 1), VectorState(log_h.exp())


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


class LRU(nn.Module):
    """Linear recurrent unit (Orvieto et al. 2023): complex weights, complex memory, no class of this library."""

    def __init__(self) -> None:
        super().__init__()
        self.nu, self.theta = nn.Parameter(torch.rand(DIM) - 1.0), nn.Parameter(torch.rand(DIM))
        self.b = nn.Parameter(torch.randn(DIM, WIDTH, dtype=torch.complex64) * 0.3)
        self.c = nn.Parameter(torch.randn(WIDTH, DIM, dtype=torch.complex64) * 0.3)
        self.d = nn.Parameter(torch.ones(WIDTH))

    def initial_state(self, batch_size: int) -> SpectralState:
        return SpectralState(torch.zeros(batch_size, DIM, dtype=torch.complex64, device=self.d.device))

    def forward(self, inputs: Tensor, state: SpectralState, is_first: Tensor) -> tuple[Tensor, SpectralState]:
        clean = torch.where(inputs.isfinite(), inputs, 0.0)
        size = torch.exp(-torch.exp(self.nu))
        turn = torch.polar(size, self.theta).to(torch.complex64)
        driven = clean.to(torch.complex64) @ self.b.T * (1 - size**2).sqrt()
        z, outs = state.z, []
        for x, first in zip(driven.unbind(1), is_first.unbind(1), strict=True):
            z = turn * torch.where(first[:, None], torch.zeros_like(z), z) + x
            z = z.to(torch.complex64)
            outs.append((z @ self.c.T).real)
        return torch.stack(outs, 1).to(inputs.dtype) + self.d * clean, SpectralState(z)


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


USER_CORES: list[type[nn.Module]] = [MinGRU, S4D, LRU, TorchLSTM, TorchGRU]
