"""Mamba-2: a selective state space with one decay for each head.

Per layer, with n_t = norm(x_t), and per head; B and C are shared by the heads of a group:

    u, B, C = silu(convolution of W_u n over the last conv_len steps of the episode)
    d_t     = softplus(W_d n_t + dt)
    S_t     = exp(-exp(A) d_t) S_{t-1} + B_t (d_t u_t)^T         S_{t-1} = 0 where an episode begins
    o_t     = S_t^T C_t + D u_t
    x'      = x_t + W_o norm(o_t * silu(W_z n_t))                norm over the heads of a group

S is ``[n, p]``, n = ``state_dim``. exp(A) is drawn from 1 to 16, softplus(dt) from 0.001 to 0.1 evenly in logarithm,
D = 1; with ``chrono_steps``, exp(A) is 1 and softplus(dt) is 1 / tau for the time constants tau. With ``hidden_dim``
a gated feed-forward follows, as in ``gated-deltanet``.

Paper: Dao and Gu (2024), Transformers are SSMs; section 7.1, and section 6 for the chunked form.

Differs: the bias of the convolution starts as zeros.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.linear.config import Mamba2Config
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
)
from recollect.cores.linear.step import least_length, normed, product, unit_length, widened
from recollect.ops.linear import Linear
from recollect.ops.matrix_scan import linear_attention
from recollect.ops.short_convolution import short_convolution


class Mamba2State(NamedTuple):
    """State of a Mamba-2."""

    matrix: Tensor  # b l h n p
    window: Tensor  # b l (conv_len - 1) (h p + 2 g n)


class Mamba2Layer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__()
        heads, inner, self.num_groups = config.num_heads, config.expand * config.dim, config.num_groups
        shared = config.num_groups * config.state_dim
        self.num_heads, self.sizes = heads, (config.state_dim, inner // heads)
        self.parts = (inner, shared, shared)
        self.split = (inner, sum(self.parts), heads)
        self.norm = nn.RMSNorm(config.dim, EPSILON)
        self.expand = Linear(config.dim, sum(self.split), bias=False)  # W_z, W_u, W_d
        self.convolution = ShortConvolution(sum(self.parts), config.conv_len, bias=True)
        self.norm_groups = nn.Parameter(torch.ones(inner))
        self.out = Linear(inner, config.dim, bias=False)
        hidden = config.feedforward_dim
        self.refine = Refine(config.dim, GatedFeedForward(config.dim, hidden) if hidden else None)
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())  # A
        self.step_bias = nn.Parameter(step_size_bias(heads))  # dt
        self.skip = nn.Parameter(torch.ones(heads))  # D
        if config.chrono_steps is not None:
            with torch.no_grad():
                self.log_rate.zero_()
                self.step_bias.copy_(log_expm1(1 / time_constants(heads, config.chrono_steps)))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the matrices and of the convolution's inputs."""
        return (self.num_heads, *self.sizes), (self.convolution.weight.shape[1] - 1, sum(self.parts))

    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Run the layer over t steps."""
        matrix, window = memory
        gate, mixed, step = self.expand(self.norm(x)).split(self.split, -1)
        weights = self.convolution
        mixed, window = short_convolution(mixed, weights.weight, weights.bias, window, first)
        u, rows, readers = F.silu(mixed).split(self.parts, -1)
        u = u.unflatten(-1, (self.num_heads, -1))
        rows, readers = (part.unflatten(-1, (self.num_groups, -1)) for part in (rows, readers))
        size = F.softplus(step.to(matrix.dtype) + self.step_bias)  # b t h
        decay = -self.log_rate.exp() * size
        read, matrix = linear_attention(readers, rows, u * size[..., None], decay, matrix, first)
        read = (read + self.skip[:, None] * u).flatten(-2) * F.silu(gate)
        groups = read.unflatten(-1, (self.num_groups, -1))
        read = F.rms_norm(groups, groups.shape[-1:], eps=EPSILON).flatten(-2) * self.norm_groups
        return self.refine(x + self.out(read)), (matrix, window)

    def make_step(self, rows: int) -> Step:
        """Return one step of the layer."""
        weight, groups, (n, p) = self.expand.weight, self.num_groups, self.sizes
        bias = weight.new_zeros(len(weight))
        bias[-self.num_heads :] = self.step_bias
        expand, convolve = normed(self.norm, weight, bias, rows), self.convolution.make_step()
        rate, skip = -widened(self.log_rate).exp(), widened(self.skip).repeat_interleave(p).view(groups, 1, -1)
        width = skip.shape[-1]
        least = least_length(EPSILON, width, weight)
        out = product(self.out.weight * self.norm_groups * width**0.5, None, rows)
        refine = self.refine.make_step(rows)

        def step(x: Tensor, memory: Memory) -> Tensor:
            matrix, window = memory  # b g n r p, with r heads to a group
            gate, mixed, size = expand(x).split_with_sizes(self.split, 1)
            mixed = F.silu(convolve(mixed, window), inplace=True)
            u, keys, readers = (part.unflatten(1, (groups, -1)) for part in mixed.split_with_sizes(self.parts, 1))
            size = F.softplus(size)
            matrix.mul_((size * rate).exp_().view(-1, groups, 1, width // p, 1))
            written = u.view(-1, groups, width // p, p) * size.view(-1, groups, width // p, 1)
            columns = matrix.view(-1, n, width)
            columns.baddbmm_(keys.reshape(-1, n, 1), written.view(-1, 1, width))
            read = torch.baddbmm((u * skip[:, 0]).view(-1, 1, width), readers.reshape(-1, 1, n), columns)
            read = read.view(-1, groups, width).mul_(F.silu(gate).view(-1, groups, width))
            return refine(out(unit_length(read, least).flatten(1)).add_(x))

        return step

    def to_step(self, memory: Memory) -> Memory:
        """Return the matrices with the heads of a group side by side, ``[b, g, n, r, p]``, and the window."""
        matrix, window = memory
        return matrix.unflatten(1, (self.num_groups, -1)).transpose(2, 3).clone(
            memory_format=torch.contiguous_format
        ), window.clone()

    def from_step(self, memory: Memory) -> Memory:
        """Return the matrices ``[b, h, n, p]`` and the window."""
        matrix, window = memory
        return matrix.transpose(2, 3).flatten(1, 2), window

    def flops(self) -> int:
        """Return those of one read and one write of every matrix."""
        n, p = self.sizes
        return 4 * self.num_heads * n * p


class Mamba2(LinearRecurrence[Mamba2State]):
    """Selective state space with a scalar decay; equations are at the top of this module."""

    state_type = Mamba2State

    def __init__(self, config: Mamba2Config, input_dim: int) -> None:
        super().__init__(config, input_dim, [Mamba2Layer(config) for _ in range(config.num_layers)])
