"""Recurrent memories as authors of other libraries write them: no class of ours, the docs of the contract alone."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, DIM, HEADS = 6, 8, 2


def finite(inputs: Tensor) -> Tensor:
    return torch.where(inputs.isfinite(), inputs, 0.0)


def keep(first: Tensor, old: Tensor, new: Tensor | float = 0.0) -> Tensor:
    """``new`` where an episode starts."""
    return torch.where(first.reshape(-1, *[1] * (old.ndim - 1)), new, old)


class Foreign(nn.Module):
    """A loop over steps around a cell; the state begins as zeros of these shapes."""

    shapes: tuple[tuple[int, ...], ...] = ((DIM,),)

    def zeros(self, *shape: int) -> Tensor:
        return next(self.parameters()).new_zeros(shape)

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        return tuple(self.zeros(batch_size, *shape) for shape in self.shapes)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        raise NotImplementedError

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        outs = []
        dtypes = [leaf.dtype for leaf in state]
        for x, first in zip(finite(inputs).unbind(1), is_first.unbind(1), strict=True):
            fresh = self.initial_state(len(x))
            state = tuple(keep(first, old, new) for old, new in zip(state, fresh, strict=True))
            y, state = self.cell(x, state)
            state = tuple(leaf.to(dtype) for leaf, dtype in zip(state, dtypes, strict=True))
            outs.append(y)
        return torch.stack(outs, 1), state


class ZeroOrderHoldS4D(nn.Module):
    """A diagonal state space with complex numbers, all of which are stored as pairs of real numbers."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.log_real = nn.Parameter(torch.full((WIDTH, size), -0.7))
        self.imaginary = nn.Parameter(math.pi * torch.arange(size).float().repeat(WIDTH, 1))
        self.read = nn.Parameter(torch.randn(WIDTH, size, 2) / math.sqrt(size))
        self.log_step = nn.Parameter(torch.rand(WIDTH) * 2 - 3)
        self.skip = nn.Parameter(torch.randn(WIDTH))

    def initial_state(self, batch_size: int) -> Tensor:
        return self.read.new_zeros(batch_size, *self.read.shape)

    def forward(self, inputs: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        inputs = finite(inputs)
        pole = torch.complex(-self.log_real.exp(), self.imaginary)
        turn = (pole * self.log_step.exp()[:, None]).exp()
        drive = (turn - 1) / pole * torch.view_as_complex(self.read)
        z, outs = torch.view_as_complex(state.contiguous()), []
        for t in range(inputs.shape[1]):
            z = torch.where(is_first[:, t, None, None], 0.0, z) * turn + inputs[:, t, :, None]
            outs.append(2 * (drive * z).real.sum(-1))
        return torch.stack(outs, 1) + self.skip * inputs, torch.view_as_real(z)


class Mamba2(Foreign):
    """One decay per head, a short convolution before it (Dao and Gu 2024)."""

    shapes = ((3, DIM + 8), (HEADS, 4, DIM // HEADS))

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, DIM + DIM + 8 + HEADS, bias=False)
        self.taps, self.bias = nn.Parameter(torch.randn(4, DIM + 8) / 2), nn.Parameter(torch.zeros(DIM + 8))
        self.log_a = nn.Parameter(torch.arange(1.0, HEADS + 1).log())
        self.step_bias, self.skip = nn.Parameter(torch.rand(HEADS)), nn.Parameter(torch.ones(HEADS))
        self.norm, self.out = nn.RMSNorm(DIM), nn.Linear(DIM, WIDTH, bias=False)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        window, memory = state
        gate, wide, step = self.project(x).split((DIM, DIM + 8, HEADS), -1)
        window = torch.cat((window, wide[:, None]), 1)
        value, key, query = F.silu((window * self.taps).sum(1) + self.bias).split((DIM, 4, 4), -1)
        step, value = F.softplus(step + self.step_bias), value.unflatten(-1, (HEADS, -1))
        decay = torch.exp(-step * self.log_a.exp())[..., None, None]
        memory = decay * memory + torch.einsum("bh,bk,bhv->bhkv", step, key, value)
        y = torch.einsum("bk,bhkv->bhv", query, memory) + self.skip[:, None] * value
        return self.out(self.norm(y.flatten(1) * F.silu(gate))), (window[:, 1:], memory)


class RWKV7(Foreign):
    """A matrix with a decay per channel and a removal along a direction of its own (Peng et al. 2025)."""

    shapes = ((WIDTH,), (HEADS, DIM // HEADS, DIM // HEADS))

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(5, WIDTH))
        self.nets = nn.ModuleList(nn.Linear(WIDTH, DIM, bias=index > 2) for index in range(5))
        self.norm, self.out = nn.GroupNorm(HEADS, DIM), nn.Linear(DIM, WIDTH)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        before, s = state
        mixed = [net(torch.lerp(x, before, mix)) for net, mix in zip(self.nets, self.mix, strict=True)]
        r, k, v, w, a = (part.unflatten(-1, (HEADS, -1)) for part in mixed)
        decay, rate, direction = torch.exp(-0.6065 * w.sigmoid()), a.sigmoid(), F.normalize(k, dim=-1)
        seen = torch.einsum("bhvk,bhk->bhv", s, direction)
        s = s * decay[:, :, None] - seen[..., None] * (direction * rate)[:, :, None] + v[..., None] * k[:, :, None]
        return self.out(self.norm(torch.einsum("bhvk,bhk->bhv", s, r).flatten(1))), (x.clone(), s)


class MLSTM(Foreign):
    """A matrix memory with exponential gates and their stabiliser (Beck et al. 2024)."""

    shapes = ((HEADS, 4, 4), (HEADS, 4), (HEADS,))

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.gates = nn.Linear(WIDTH, 3 * DIM), nn.Linear(WIDTH, 2 * HEADS)
        self.open, self.out = nn.Linear(WIDTH, DIM), nn.Linear(DIM, WIDTH)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, n, m = state
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).unbind(1)
        write, forget = self.gates(x).chunk(2, -1)
        log_f, k = F.logsigmoid(forget), k / math.sqrt(k.shape[-1])
        most = torch.maximum(log_f + m, write)
        f, i = (log_f + m - most).exp(), (write - most).exp()
        c = f[..., None, None] * c + i[..., None, None] * v[..., None] * k[:, :, None]
        n = f[..., None] * n + i[..., None] * k
        size = torch.maximum((n * q).sum(-1).abs(), (-most).exp())
        h = (c @ q[..., None])[..., 0] / size[..., None]
        return self.out(self.open(x).sigmoid() * h.flatten(1)), (c, n, most)


class DeltaNet(Foreign):
    """Replaces what was stored under a key (Schlag et al. 2021)."""

    shapes = ((DIM, DIM),)

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.beta = nn.Linear(WIDTH, 3 * DIM, bias=False), nn.Linear(WIDTH, 1)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.qkv(x).chunk(3, -1)
        k, (s,) = F.normalize(F.silu(k), dim=-1), state
        error = v - torch.einsum("bvk,bk->bv", s, k)
        s = s + self.beta(x).sigmoid()[..., None] * torch.einsum("bv,bk->bvk", error, k)
        return torch.einsum("bvk,bk->bv", s, F.silu(q)), (s,)


class HandWrittenGRU(Foreign):
    """A GRU with layer norms and a learned start."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(WIDTH, 3 * DIM), nn.Linear(DIM, 3 * DIM, bias=False)
        self.norm_x, self.norm_h = nn.LayerNorm(3 * DIM), nn.LayerNorm(3 * DIM)
        self.start = nn.Parameter(torch.randn(DIM))

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        return (self.start.tanh().repeat(batch_size, 1),)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        (h,) = state
        rx, zx, nx = self.norm_x(self.x(x)).chunk(3, -1)
        rh, zh, nh = self.norm_h(self.h(h)).chunk(3, -1)
        z = (zx + zh).sigmoid()
        h = (1 - z) * ((rx + rh).sigmoid() * nh + nx).tanh() + z * h
        return h, (h,)


class ProjectedState(NamedTuple):
    h: Tensor
    c: Tensor


class ProjectedLSTM(nn.Module):
    """nn.LSTM with a projection, whose two memories have different widths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, DIM, num_layers=2, proj_size=3, batch_first=True)

    def initial_state(self, batch_size: int) -> ProjectedState:
        zeros = self.lstm.weight_hh_l0.new_zeros
        return ProjectedState(zeros(batch_size, 2, 3), zeros(batch_size, 2, DIM))

    def forward(self, inputs: Tensor, state: ProjectedState, is_first: Tensor) -> tuple[Tensor, ProjectedState]:
        outs = []
        for x, first in zip(finite(inputs).split(1, 1), is_first.unbind(1), strict=True):
            memory = tuple(keep(first, leaf).transpose(0, 1).contiguous() for leaf in state)
            y, (h, c) = self.lstm(x, memory)
            state = ProjectedState(h.transpose(0, 1).to(state.h.dtype), c.transpose(0, 1).to(state.c.dtype))
            outs.append(y)
        return torch.cat(outs, 1), state


class Elman(Foreign):
    """nn.RNNCell and a clock that runs at several speeds (clockwork)."""

    shapes = ((DIM,), ())

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNNCell(WIDTH, DIM)
        self.register_buffer("periods", torch.tensor([1.0, 1, 2, 2, 4, 4, 8, 8]))

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, clock = state
        due = torch.remainder(clock[:, None], self.periods) == 0
        h = torch.where(due, self.rnn(x, h), h)
        return h, (h, torch.remainder(clock + 1, 8))


class Legendre(Foreign):
    """A Legendre memory unit (Voelker et al. 2019): its matrices are buffers."""

    shapes = ((DIM,), (4,))

    def __init__(self, order: int = 4, theta: float = 12.0) -> None:
        super().__init__()
        i = torch.arange(order, dtype=torch.float64)
        scale = (2 * i + 1)[:, None] / theta
        below = torch.where(i[:, None] >= i, (-1.0) ** (i[:, None] - i + 1), -1.0)
        a, b = scale * below, scale[:, 0] * (-1.0) ** i
        whole = torch.linalg.matrix_exp(torch.cat((torch.cat((a, b[:, None]), 1), torch.zeros(1, order + 1)), 0))
        self.register_buffer("a", whole[:order, :order].float())
        self.register_buffer("b", whole[:order, order].float())
        self.encode, self.rnn = nn.Linear(WIDTH, 1), nn.RNNCell(WIDTH + order, DIM)

    def cell(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, m = state
        m = m @ self.a.T + self.encode(x) * self.b
        h = self.rnn(torch.cat((x, m), -1), h)
        return h, (h, m)


class EchoState(nn.Module):
    """A reservoir of fixed weights with a read-out that learns."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.randn(DIM, DIM)
        self.register_buffer("recur", 0.9 * weights / torch.linalg.eigvals(weights).abs().max())
        self.register_buffer("drive", torch.randn(DIM, WIDTH))
        self.out = nn.Linear(DIM, WIDTH)

    def initial_state(self, batch_size: int) -> Tensor:
        return self.recur.new_zeros(batch_size, DIM)

    def forward(self, inputs: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        h, outs = state, []
        for x, first in zip(finite(inputs).unbind(1), is_first.unbind(1), strict=True):
            h = (keep(first, h) @ self.recur.T + x @ self.drive.T).tanh().to(state.dtype)
            outs.append(h)
        return self.out(torch.stack(outs, 1)), h


RECURRENT: list[type[nn.Module]] = [
    ZeroOrderHoldS4D,
    Mamba2,
    RWKV7,
    MLSTM,
    DeltaNet,
    HandWrittenGRU,
    ProjectedLSTM,
    Elman,
    Legendre,
    EchoState,
]
"""Cores that must pass."""
