"""Gated DeltaNet: a matrix per head in which a new value replaces the old value of its key, and the rest decays.

Per layer, with n_t = norm(x_t), and per head:

    q, k, v = silu(convolution of W_qkv n over the last conv_len steps of the episode)
    q       = q / |q| / sqrt(e)              k = k / |k|
    beta    = sigmoid(W_b n)                 a = exp(-exp(A) * softplus(W_a n + dt))
    S_t     = a_t S_{t-1} + k_t (beta_t (v_t - k_t^T a_t S_{t-1}))^T      S_{t-1} = 0 where an episode begins
    o_t     = S_t^T q_t
    y_t     = x_t + W_o (norm(o_t) * silu(W_z n_t))
    x'      = y_t + W_3 (silu(W_1 norm(y_t)) * W_2 norm(y_t))

S is ``[e, v]``. exp(A) is drawn from 0.01 to 16, softplus(dt) from 0.001 to 0.1 evenly in logarithm; with
``chrono_steps``, exp(A) is 1 and softplus(dt) is 1 / tau for the time constants tau.

Paper: Yang et al. (2024), Gated Delta Networks: improving Mamba2 with delta rule; equation 10, section 3.4.

Differs: |x| is sqrt(x . x + 1e-6). One width for keys and values by default, as in Qwen3-Next; the paper has values
twice as wide (``value_dim``).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.linear.config import GatedDeltaNetConfig
from recollect.cores.linear.stack import (
    EPSILON,
    GatedFeedForward,
    LinearRecurrence,
    Memory,
    MemoryLayer,
    Refine,
    ShortConvolution,
    Step,
    log_expm1,
    step_size_bias,
    time_constants,
    unit,
)
from recollect.cores.linear.step import least_length, normed, product, unit_length, widened
from recollect.ops.linear import Linear
from recollect.ops.matrix_scan import delta_rule
from recollect.ops.short_convolution import short_convolution


class GatedDeltaNetState(NamedTuple):
    """State of a Gated DeltaNet."""

    matrix: Tensor  # b l h e v
    window: Tensor  # b l (conv_len - 1) (h (2 e + v))


class GatedDeltaNetLayer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        super().__init__()
        heads, (e, v) = config.num_heads, config.head_sizes
        self.num_heads, self.sizes = heads, (e, v)
        self.split = (2 * heads * e + heads * v, heads * v, heads, heads)
        self.norm = nn.RMSNorm(config.dim, EPSILON)
        self.expand = Linear(config.dim, sum(self.split), bias=False)  # W_qkv, W_z, W_b, W_a
        self.convolution = ShortConvolution(self.split[0], config.conv_len, bias=False)
        self.norm_heads = nn.RMSNorm(v, EPSILON)
        self.out = Linear(heads * v, config.dim, bias=False)
        hidden = config.feedforward_dim
        self.refine = Refine(config.dim, GatedFeedForward(config.dim, hidden) if hidden else None)
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(0.01, 16).log())  # A
        self.step_bias = nn.Parameter(step_size_bias(heads))  # dt
        if config.chrono_steps is not None:
            with torch.no_grad():
                self.log_rate.zero_()
                self.step_bias.copy_(log_expm1(1 / time_constants(heads, config.chrono_steps)))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the matrices and of the convolution's inputs."""
        return (self.num_heads, *self.sizes), (self.convolution.weight.shape[1] - 1, self.split[0])

    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Run the layer over t steps."""
        matrix, window = memory
        heads, (e, v) = self.num_heads, self.sizes
        mixed, gate, rate, step = self.expand(self.norm(x)).split(self.split, -1)
        mixed, window = short_convolution(mixed, self.convolution.weight, None, window, first)
        q, k, values = F.silu(mixed).split((heads * e, heads * e, heads * v), -1)
        q, k = unit(q.unflatten(-1, (heads, e))) * e**-0.5, unit(k.unflatten(-1, (heads, e)))
        beta = rate.to(matrix.dtype).sigmoid()[..., None]
        log_a = -self.log_rate.exp() * F.softplus(step.to(matrix.dtype) + self.step_bias)
        read, matrix = delta_rule(
            q, k, beta * values.unflatten(-1, (heads, v)), -beta * k, log_a, matrix, first
        )  # b t h v
        read = (self.norm_heads(read) * F.silu(gate.unflatten(-1, (heads, v)))).flatten(-2)
        return self.refine(x + self.out(read)), (matrix, window)

    def make_step(self, rows: int) -> Step:
        """Return one step of the layer."""
        heads, (e, v), weight = self.num_heads, self.sizes, self.expand.weight
        bias = weight.new_zeros(len(weight))
        bias[-heads:] = self.step_bias
        expand, convolve = normed(self.norm, weight, bias, rows), self.convolution.make_step()
        rate, least = -widened(self.log_rate).exp(), least_length(EPSILON, 1, weight)
        # Queries keep the length 1, and the epsilon of the norm behind them is e times as large instead.
        least_read, scale = least_length(EPSILON * e, v, weight), (self.norm_heads.weight * v**0.5).repeat(heads)
        out, refine = product(self.out.weight * scale, None, rows), self.refine.make_step(rows)

        def step(x: Tensor, memory: Memory) -> Tensor:
            matrix, window = memory
            mixed, gate, beta, size = expand(x).split_with_sizes(self.split, 1)
            mixed = F.silu(convolve(mixed, window), inplace=True)
            both, values = mixed.split_with_sizes((2 * heads * e, heads * v), 1)
            q, k = unit_length(both.view(-1, 2, heads, e), least).unbind(1)
            k = k.reshape(-1, 1, e)
            matrix.mul_(F.softplus(size).mul_(rate).exp_().view(-1, heads, 1, 1))
            heads_of = matrix.view(-1, e, v)
            change = torch.baddbmm(values.reshape(-1, 1, v), k, heads_of, alpha=-1)
            change.mul_(beta.sigmoid_().reshape(-1, 1, 1))
            heads_of.baddbmm_(k.mT, change)
            read = torch.bmm(q.reshape(-1, 1, e), heads_of).view(-1, heads, v)
            read = unit_length(read, least_read).flatten(1)
            return refine(out(F.silu(gate).mul_(read)).add_(x))

        return step

    def flops(self) -> int:
        """Return those of two reads and one write of every matrix."""
        e, v = self.sizes
        return 6 * self.num_heads * e * v


class GatedDeltaNet(LinearRecurrence[GatedDeltaNetState]):
    """Gated delta rule; equations are at the top of this module."""

    state_type = GatedDeltaNetState

    def __init__(self, config: GatedDeltaNetConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, [GatedDeltaNetLayer(config) for _ in range(config.num_layers)])
