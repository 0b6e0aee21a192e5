"""mLSTM: the matrix memory of xLSTM, with exponential input gates and a stabilizer.

Per layer, with n_t = norm(x_t), cap(a) = c tanh(a / c), and per head:

    q, k, v = W_q n / sqrt(e), W_k n, W_v n
    i, f    = cap(W_i n + b_i), log sigmoid(cap(W_f n + b_f))
    m_t     = max(f_t + m_{t-1}, i_t)
    C_t     = exp(f_t + m_{t-1} - m_t) C_{t-1} + exp(i_t - m_t) k_t v_t^T
    s_t     = exp(f_t + m_{t-1} - m_t) s_{t-1} + exp(i_t - m_t) k_t
    h_t     = C_t^T q_t / (max(|s_t . q_t|, exp(-m_t)) + 1e-6)
    y_t     = x_t + W_o (sigmoid(W_z n_t) * layer norm(h_t))
    x'      = y_t + W_3 (silu(W_1 norm(y_t)) * W_2 norm(y_t))

C, s and m are 0 where an episode begins. Apart from the 1e-6, h does not depend on m, which keeps the exponentials in
range. W_i and W_f start at 0, b_i at -10, b_f evenly from 3 to 6; with ``chrono_steps``, exp(f) starts at exp(-1 / tau)
for the time constants tau, as far as the cap allows: b_f = c atanh(min(-log(exp(1 / tau) - 1) / c, 0.99)).

Paper: Beck et al. (2024), xLSTM: extended long short-term memory, equations 19-27; the block and the caps are those of
Beck et al. (2025), xLSTM 7B.

Differs: nothing.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.linear.config import MLSTMConfig
from recollect.cores.linear.stack import (
    EPSILON,
    GatedFeedForward,
    LinearRecurrence,
    Memory,
    MemoryLayer,
    Refine,
    Step,
    log_expm1,
    time_constants,
)
from recollect.cores.linear.step import normed, product, widened
from recollect.ops.diagonal_scan import gradient_scan
from recollect.ops.linear import Linear
from recollect.ops.matrix_scan import is_broken_after_reset, linear_attention
from recollect.ops.torch_internals import is_transformed


class MLSTMState(NamedTuple):
    """State of an mLSTM."""

    matrix: Tensor  # b l h e v
    total: Tensor  # b l h e
    stabilizer: Tensor  # b l h


class MLSTMLayer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: MLSTMConfig) -> None:
        super().__init__()
        heads, (e, v) = config.num_heads, config.head_sizes
        self.num_heads, self.sizes, self.cap = heads, (e, v), config.gate_cap
        self.split = (heads * e, heads * e, heads * v, heads * v)
        self.norm = nn.RMSNorm(config.dim, EPSILON)
        self.expand = Linear(config.dim, sum(self.split), bias=False)  # W_q, W_k, W_v, W_z
        self.gates = Linear(config.dim, 2 * heads)  # W_i, W_f
        self.norm_heads = nn.Parameter(torch.ones(heads * v))
        self.out = Linear(heads * v, config.dim, bias=False)
        hidden = config.feedforward_dim
        self.refine = Refine(config.dim, GatedFeedForward(config.dim, hidden) if hidden else None)
        with torch.no_grad():
            self.gates.weight.zero_()
            self.gates.bias[:heads] = -10.0
            steps = config.chrono_steps
            if steps is None:
                self.gates.bias[heads:] = torch.linspace(3, 6, heads)
            else:
                capped = (-log_expm1(1 / time_constants(heads, steps))).clamp(max=0.99 * self.cap)
                self.gates.bias[heads:] = self.cap * torch.atanh(capped / self.cap)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the matrices, of the sums of keys, and of the stabilizers."""
        e, v = self.sizes
        return (self.num_heads, e, v), (self.num_heads, e), (self.num_heads,)

    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Run the layer over t steps."""
        matrix, total, m = memory
        heads, (e, _) = self.num_heads, self.sizes
        n = self.norm(x)
        q, k, v, gate = self.expand(n).split(self.split, -1)
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in (q, k, v))
        i, f = (self.cap * torch.tanh(self.gates(n).to(m.dtype) / self.cap)).chunk(2, -1)
        f = F.logsigmoid(f)
        peak = stabilizers(f, i, m, first, self.cap)
        before = torch.cat((m[:, None], peak[:, :-1]), 1)
        decay = f + torch.where(first[..., None], 0.0, before) - peak
        # The sum of keys is one more column of the matrix, of values 1.
        joined = torch.cat((matrix, total[..., None]), -1)
        strength = (i - peak).exp()[..., None]
        values = torch.cat((v.to(m.dtype) * strength, strength), -1)
        read, joined = linear_attention(q * e**-0.5, k, values, decay, joined, first)
        read = read[..., :-1] / (torch.maximum(read[..., -1:].abs(), (-peak).exp()[..., None]) + EPSILON)
        read = F.layer_norm(read, read.shape[-1:], eps=EPSILON).flatten(-2) * self.norm_heads
        x = self.refine(x + self.out(gate.sigmoid() * read))
        return x, (joined[..., :-1], joined[..., -1], peak[:, -1])

    def make_step(self, rows: int) -> Step:
        """Return one step of the layer; q, k, v, gate, i and f are one product."""
        heads, (e, v), cap = self.num_heads, self.sizes, self.cap
        q, k, values, gate = self.expand.weight.split(self.split)
        values = F.pad(values.unflatten(0, (heads, v)), (0, 0, 0, 1)).flatten(0, 1)  # the value 1 is a bias alone
        joined = torch.cat((q * e**-0.5, k, values, gate, self.gates.weight / cap))
        ones = F.pad(values.new_zeros(heads, v), (0, 1), value=1.0).flatten()
        zeros = values.new_zeros(heads * e)
        bias = torch.cat((zeros, zeros, ones, values.new_zeros(heads * v), self.gates.bias / cap))
        expand, sizes = normed(self.norm, joined, bias, rows), (heads * e, heads * e, len(ones), heads * v, 2 * heads)
        largest, epsilon = widened(bias).new_full((1,), cap), widened(bias).new_full((1,), EPSILON)
        out, refine = product(self.out.weight * self.norm_heads, None, rows), self.refine.make_step(rows)

        def step(x: Tensor, memory: Memory) -> Tensor:
            matrix, m = memory  # b h e (v + 1), b h
            q, k, values, gate, limits = expand(x).split_with_sizes(sizes, 1)
            i, f = limits.tanh_().mul_(largest).chunk(2, 1)
            carried = F.logsigmoid(f).add_(m)
            torch.maximum(carried, i, out=m)
            forget, strength = carried.sub_(m).exp_(), i.sub_(m).exp_()
            values = values.view(-1, heads, v + 1).mul_(strength.unsqueeze(2))
            matrix.mul_(forget.view(-1, heads, 1, 1))
            matrix.addcmul_(k.view(-1, heads, e, 1), values.unsqueeze(2))
            read = torch.bmm(q.reshape(-1, 1, e), matrix.view(-1, e, v + 1)).view(-1, heads, v + 1)
            read, total = read.split_with_sizes((v, 1), 2)
            least = m.neg().exp_().unsqueeze(2)
            read = read / torch.maximum(total.abs(), least).add_(epsilon)
            read = F.layer_norm(read, (v,), eps=EPSILON).flatten(1)
            return refine(out(gate.sigmoid_().mul_(read)).add_(x))

        return step

    def to_step(self, memory: Memory) -> Memory:
        """Return the matrices with the sums of keys as one more column, and the stabilizers."""
        matrix, total, m = memory
        return torch.cat((matrix, total[..., None]), -1), m.clone()

    def from_step(self, memory: Memory) -> Memory:
        """Return the matrices, the sums of keys and the stabilizers."""
        joined, m = memory
        return joined[..., :-1], joined[..., -1], m

    def flops(self) -> int:
        """Return those of one read and one write of every matrix with its sum of keys."""
        e, v = self.sizes
        return 4 * self.num_heads * e * (v + 1)


def stabilizers(f: Tensor, i: Tensor, m: Tensor, first: Tensor, cap: float) -> Tensor:
    """Return m_t = max(f_t + m_{t-1}, i_t) of all steps, with m_{t-1} = 0 where an episode begins.

    Args:
        f: ``[b, t, h]``, at most 0.
        i: ``[b, t, h]``, between -cap and cap.
        m: m before the first step, ``[b, h]``.
        first: bool ``[b, t]``.
        cap: largest size of i.

    Returns:
        ``[b, t, h]``.
    """
    if not is_transformed() and f.shape[1] > 1:
        peak = _Stabilizers.apply(f, i, m, first, cap)
        if not is_broken_after_reset(peak, first):
            return peak
    peaks = []
    for fs, its, begins in zip(f.unbind(1), i.unbind(1), first.unbind(1), strict=True):
        m = torch.maximum(fs + torch.where(begins[:, None], 0.0, m), its)
        peaks.append(m)
    return torch.stack(peaks, 1)


class _Stabilizers(torch.autograd.Function):
    """Values of :func:`stabilizers` by sums and maxima, derivatives by the recurrence backwards.

    Derivatives of the sums would cancel where an episode begins, and leave a rest.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        f, i, m, first, cap = args
        begins = first[..., None]
        # m_t = F_t + max over s of (i_s - F_s) with F the sum of f. A fall of F where an episode begins puts all that
        # was before it, at most cap, below every i; float64 keeps the precision of long sums.
        fall = torch.where(begins, -(4 * cap + 1), f.double())
        height = fall.cumsum(1)
        entry = torch.where(begins, torch.maximum(f, i), i).double()
        peak = height + (entry - height).cummax(1).values
        of_memory = torch.where(begins.cumsum(1) > 0, -torch.inf, height + m[:, None])
        peak = torch.maximum(peak, of_memory).to(f.dtype)
        before = torch.where(begins, 0.0, torch.cat((m[:, None], peak[:, :-1]), 1))
        ctx.save_for_backward(f + before > i, first)
        return peak

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        carried, first = ctx.saved_tensors
        grad = gradient_scan(carried.to(grads[0].dtype), grads[0], first)  # 1 where m_t is f_t + m_{t-1}, else 0
        of_memory = torch.where(carried[:, 0] & ~first[:, :1], grad[:, 0], 0.0)
        return torch.where(carried, grad, 0.0), torch.where(carried, 0.0, grad), of_memory, None, None


class MLSTM(LinearRecurrence[MLSTMState]):
    """Matrix memory of xLSTM; equations are at the top of this module."""

    state_type = MLSTMState

    def __init__(self, config: MLSTMConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, [MLSTMLayer(config) for _ in range(config.num_layers)])
