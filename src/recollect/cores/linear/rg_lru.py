"""RG-LRU: the real-gated linear recurrent unit of Griffin and Hawk, behind a short convolution.

Per layer, with n_t = norm(x_t); B_a and B_i are block diagonal:

    g_t = gelu(W_g n_t + b_g)
    u_t = convolution of W_u n_t + b_u over the last conv_len steps of the episode
    r_t = sigmoid(B_a u_t + b_a)            i_t = sigmoid(B_i u_t + b_i)
    a_t = exp(-8 r_t * softplus(lambda))
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (i_t * u_t)      h_{t-1} = 0 where an episode begins
    y_t = x_t + W_o (g_t * h_t) + b_o
    x'  = y_t + W_3 (gelu(W_1 norm(y_t)) * W_2 norm(y_t))

lambda starts so that a at r = 1 is drawn from 0.9 to 0.999, evenly in its square; with ``chrono_steps``, so that a at
r = 1/2 is exp(-1 / tau) for the time constants tau.

Paper: De et al. (2024), Griffin: mixing gated linear recurrences with local attention; section 2.4, appendix A.

Differs: feed-forward without biases. The released code leaves out the factor sqrt(1 - a^2) at the first step of a
document; the paper's equations do not, nor do we. It clips the gradient of that square root at 1000; ours is 0 where
1 - a^2 is below 1e-12.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.linear.config import RGLRUConfig
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
    time_constants,
)
from recollect.cores.linear.step import linear, normed, widened
from recollect.ops.diagonal_scan import diagonal_scan
from recollect.ops.linear import Linear
from recollect.ops.short_convolution import short_convolution

SHARPNESS = 8.0
LEAST_SQUARE = 1e-12
"""Smallest 1 - a^2 with a gradient."""


class RGLRUState(NamedTuple):
    """State of an RG-LRU."""

    h: Tensor  # b l d
    window: Tensor  # b l (conv_len - 1) d


class BlockDiagonal(nn.Module):
    """Two block-diagonal linear maps of one vector, side by side: those of r and of i."""

    def __init__(self, width: int, num_blocks: int) -> None:
        super().__init__()
        size = width // num_blocks
        self.weight = nn.Parameter(torch.randn(num_blocks, size, 2 * size) * size**-0.5)
        self.bias = nn.Parameter(torch.zeros(num_blocks, 2 * size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return two block-diagonal maps of the inputs, ``[b, t, d]`` each."""
        blocks = x.unflatten(-1, (len(self.weight), -1))
        mapped = (blocks[..., None, :] @ self.weight)[..., 0, :] if x.shape[1] == 1 else self._many(blocks)
        first, second = (mapped + self.bias).chunk(2, -1)
        return first.flatten(-2), second.flatten(-2)

    def _many(self, blocks: Tensor) -> Tensor:
        """One product for each block over all steps: ``[b, t, h, e] -> [b, t, h, 2 e]``."""
        return (blocks.transpose(1, 2) @ self.weight).transpose(1, 2)


class RGLRULayer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: RGLRUConfig) -> None:
        super().__init__()
        self.width = width = config.state_dim or config.dim
        self.norm = nn.RMSNorm(config.dim, EPSILON)
        self.expand = Linear(config.dim, 2 * width)  # W_g, W_u
        self.convolution = ShortConvolution(width, config.conv_len, bias=True)
        self.gates = BlockDiagonal(width, config.num_heads)
        self.decay = nn.Parameter(torch.empty(width))
        self.out = Linear(width, config.dim)
        hidden = config.feedforward_dim
        self.refine = Refine(config.dim, GatedFeedForward(config.dim, hidden, gelu=True) if hidden else None)
        with torch.no_grad():
            if config.chrono_steps is None:
                rate = -torch.empty(width).uniform_(0.9**2, 0.999**2).log() / 2
                self.decay.copy_(log_expm1(rate / SHARPNESS))
            else:
                self.decay.copy_(log_expm1(2 / SHARPNESS / time_constants(width, config.chrono_steps)))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of h and of the convolution's inputs."""
        return (self.width,), (self.convolution.weight.shape[1] - 1, self.width)

    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Run the layer over t steps."""
        h, window = memory
        gate, u = self.expand(self.norm(x)).chunk(2, -1)
        u, window = short_convolution(u, self.convolution.weight, self.convolution.bias, window, first)
        r, i = (part.to(h.dtype).sigmoid() for part in self.gates(u))
        log_a = -SHARPNESS * r * F.softplus(self.decay)
        square = -torch.expm1(2 * log_a)
        root = square.clamp(min=LEAST_SQUARE).sqrt()
        scale = torch.where(square > LEAST_SQUARE, root, square.detach().sqrt())
        states = diagonal_scan(log_a.exp(), scale * (i * u), h, first)
        read = F.gelu(gate, approximate="tanh") * states
        return self.refine(x + self.out(read)), (states[:, -1], window)

    def make_step(self, rows: int) -> Step:
        """Return one step of the layer."""
        expand = normed(self.norm, self.expand.weight, self.expand.bias, rows)
        convolve, out, refine = self.convolution.make_step(), linear(self.out, rows), self.refine.make_step(rows)
        blocks, offsets = widened(self.gates.weight), widened(self.gates.bias)[:, None]
        heads, half = len(blocks), offsets.new_full((1,), 0.5)
        rate = -2 * SHARPNESS * F.softplus(widened(self.decay)).view(heads, 1, -1)

        def step(x: Tensor, memory: Memory) -> Tensor:
            h, window = memory
            gate, u = expand(x).chunk(2, 1)
            u = convolve(u, window).view(len(x), heads, -1).transpose(0, 1)  # h b e
            r, i = torch.baddbmm(offsets, u, blocks).sigmoid_().chunk(2, 2)
            log_square = r.mul_(rate)
            a = (log_square * half).exp_()
            update = log_square.expm1_().neg_().sqrt_().mul_(i)
            h.view(len(x), heads, -1).transpose(0, 1).mul_(a).addcmul_(update, u)
            return refine(out(F.gelu(gate, approximate="tanh").mul_(h)).add_(x))

        return step

    def flops(self) -> int:
        """Return those of the block-diagonal gates."""
        return 2 * self.gates.weight.numel()


class RGLRU(LinearRecurrence[RGLRUState]):
    """Real-gated linear recurrent unit; equations are at the top of this module."""

    state_type = RGLRUState

    def __init__(self, config: RGLRUConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, [RGLRULayer(config) for _ in range(config.num_layers)])
