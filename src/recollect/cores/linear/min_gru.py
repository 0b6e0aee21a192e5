"""minGRU: a GRU whose gates do not read the memory, so that all steps of a call are one scan.

Per layer, with n_t = norm(x_t):

    z_t = sigmoid(W_z n_t + b_z)
    c_t = g(W_h n_t + b_h)                      g(a) = a + 1/2 for a >= 0, else sigmoid(a)
    h_t = (1 - z_t) * h_{t-1} + z_t * c_t       h_{t-1} = 0 where an episode begins
    y_t = x_t + W_o h_t
    x'  = y_t + W_2 gelu(W_1 norm(y_t) + b_1) + b_2

Paper: Feng et al. (2024), Were RNNs all we needed?; section 3.1, appendix B.2 (g, the scan) and C (the block).

Differs: the paper scans in log space, ``logcumsumexp`` over log(1 - z), because it divides by products of gates
otherwise; ``ops/diagonal_scan.py`` never divides, so that values and gradients are those of the plain loop, and a
memory of exactly 0 needs no exception. No convolution before the recurrence, which the paper has for language only.
With ``chrono_steps`` b_z starts at log(exp(1 / tau) - 1) for the time constants tau.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.linear.config import MinGRUConfig
from recollect.cores.linear.stack import (
    EPSILON,
    LinearRecurrence,
    Memory,
    MemoryLayer,
    Refine,
    Step,
    log_expm1,
    time_constants,
)
from recollect.cores.linear.step import linear, normed, widened
from recollect.layers.feedforward import FeedForward
from recollect.ops.diagonal_scan import diagonal_scan
from recollect.ops.linear import Linear


class MinGRUState(NamedTuple):
    """State of a minGRU."""

    h: Tensor  # b l d


class MinGRULayer(MemoryLayer):
    """The equations at the top of this module."""

    def __init__(self, config: MinGRUConfig) -> None:
        super().__init__()
        self.width = config.state_dim or config.dim
        self.norm = nn.RMSNorm(config.dim, EPSILON)
        self.gates = Linear(config.dim, 2 * self.width)  # W_z, W_h
        self.out = Linear(self.width, config.dim, bias=False)
        hidden = config.feedforward_dim
        self.refine = Refine(config.dim, FeedForward(config.dim, hidden) if hidden else None)
        if config.chrono_steps is not None:
            with torch.no_grad():
                self.gates.bias[: self.width] = log_expm1(1 / time_constants(self.width, config.chrono_steps))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of h."""
        return ((self.width,),)

    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Run the layer over t steps."""
        (h,) = memory
        keep, candidate = self.gates(self.norm(x)).to(h.dtype).chunk(2, -1)
        candidate = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
        z = keep.sigmoid()
        states = diagonal_scan((-keep).sigmoid(), z * candidate, h, first)
        return self.refine(x + self.out(states)), (states[:, -1],)

    def make_step(self, rows: int) -> Step:
        """Return one step of the layer."""
        gates, out = normed(self.norm, self.gates.weight, self.gates.bias, rows), linear(self.out, rows)
        refine = self.refine.make_step(rows)
        half = widened(self.gates.bias).new_full((1,), 0.5)

        def step(x: Tensor, memory: Memory) -> Tensor:
            (h,) = memory
            z, candidate = gates(x).chunk(2, 1)
            # g(a) is the larger of a + 1/2 and sigmoid(a), which cross at 0.
            candidate = torch.maximum(candidate + half, candidate.sigmoid())
            h.lerp_(candidate, z.sigmoid_())
            return refine(out(h).add_(x))

        return step


class MinGRU(LinearRecurrence[MinGRUState]):
    """Minimal gated recurrent unit; equations are at the top of this module."""

    state_type = MinGRUState

    def __init__(self, config: MinGRUConfig, input_dim: int) -> None:
        super().__init__(config, input_dim, [MinGRULayer(config) for _ in range(config.num_layers)])
