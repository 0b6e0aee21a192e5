"""What linear recurrences share: a residual stack of layers with constant memories, its states, and small blocks.

    x   = W_in input                            omitted where the widths agree
    x   = x + memory(norm(x))                   in every layer,
    x   = x + feed-forward(norm(x))             then this, where there is one
    out = norm(x)

Norms are RMS norms, except inside the layers of ``rwkv7``; without ``final_norm`` out = x.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, StateT, companion
from recollect.cores.linear.config import LinearConfig
from recollect.cores.linear.step import Map, convolution, least_length, normed, product, unit_length, widened
from recollect.layers.feedforward import FeedForward, StreamFeedForward, input_projection, linear_flops
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import working_dtype
from recollect.ops.torch_internals import is_traced

Memory = tuple[Tensor, ...]
"""The memory of one layer: tensors ``[b, ...]``, in the order of the state's fields."""
Step = Callable[[Tensor, Memory], Tensor]
"""One step of a layer in a stream: the residual stream ``[b, d]`` and the memory, which it changes in place, to the
residual stream after the layer, a new tensor."""

BLOCK = 1024
"""Steps of a block. Longer calls are computed block by block: what all of their steps need at once would not stay in
the processor's caches, and a step took up to 2.4 times as long in a call of 100 000 steps as in one of 1 000."""
EPSILON = 1e-6
"""Added to squares in norms."""


class MemoryLayer(nn.Module, ABC):
    """A layer of the residual stack with a memory that starts as zeros."""

    @abstractmethod
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of one row of each tensor of the memory."""

    @abstractmethod
    def forward(self, x: Tensor, memory: Memory, first: Tensor) -> tuple[Tensor, Memory]:
        """Take t steps: the stream ``[b, t, d]``, the memory, bool ``[b, t]`` -> the stream and the memory after."""

    @abstractmethod
    def make_step(self, rows: int) -> Step:
        """Return :meth:`forward` for one step, with the present weights; ``rows`` of the stream are a hint.

        Memories and inputs of the step are at least float32.
        """

    def to_step(self, memory: Memory) -> Memory:
        """Return the memory in the layout of a step: new tensors, of zeros where the memory is zeros."""
        return tuple(leaf.clone() for leaf in memory)

    def from_step(self, memory: Memory) -> Memory:
        """Return the memory that :meth:`to_step` changed the layout of."""
        return memory

    def flops(self) -> int:
        """Return multiply-adds x 2 of one step, beside those of the linear maps."""
        return 0


class LinearRecurrence(MemoryCore[StateT]):
    """Base of the linear recurrences: a stack of layers of one kind.

    A state of ``state_type`` has leaves ``[b, l, ...]``.
    """

    state_type: ClassVar[type[Any]]
    runs_in_float16 = True
    stream_type = companion("recollect.cores.linear.stream:LinearStream")
    reference_unroll = companion("recollect.cores.linear.reference:reference_unroll")

    layers: Sequence[Any]

    def __init__(self, config: LinearConfig, input_dim: int, layers: Sequence[MemoryLayer]) -> None:
        super().__init__()
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.project = input_projection(input_dim, config.dim)
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = nn.RMSNorm(config.dim, EPSILON) if config.final_norm else nn.Identity()

    def initial_state(self, batch_size: int) -> StateT:
        """Return a state of zeros."""
        shapes = self.layers[0].shapes()
        return self.state_type._make(self.zeros(batch_size, len(self.layers), *shape) for shape in shapes)

    def unroll(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Compute all steps, block by block and layer by layer."""
        if is_traced() or inputs.shape[1] <= BLOCK:
            return self._unroll_block(inputs, state, is_first)
        outputs = []
        for part, first in zip(inputs.split(BLOCK, 1), is_first.split(BLOCK, 1), strict=True):
            x, state = self._unroll_block(part, state, first)
            outputs.append(x)
        return torch.cat(outputs, 1), state

    def _unroll_block(self, inputs: Tensor, state: StateT, is_first: Tensor) -> tuple[Tensor, StateT]:
        """Compute all steps at once."""
        x, memories = self.project(inputs).to(state[0].dtype), []  # the stream keeps its precision under autocast
        for index, layer in enumerate(self.layers):
            x, memory = layer(x, tuple(leaf[:, index] for leaf in state), is_first)
            memories.append(memory)
        return self.norm(x), self.state_type._make(torch.stack(leaf, 1) for leaf in zip(*memories, strict=True))

    def make_steps(self, rows: int) -> list[Step]:
        """Return one step of every layer, for streams."""
        return [layer.make_step(rows) for layer in self.layers]

    def flops_per_step(self) -> int:
        """Return the sum of all linear maps and of the layers' own products."""
        return linear_flops(self) + sum(layer.flops() for layer in self.layers)


class GatedFeedForward(nn.Module):
    """``W3 (f(W1 x) * W2 x)`` with the SiLU or the GELU approximation as f, without biases."""

    def __init__(self, dim: int, hidden_dim: int, *, gelu: bool = False) -> None:
        super().__init__()
        self.gelu = gelu
        self.expand = Linear(dim, 2 * hidden_dim, bias=False)
        self.contract = Linear(hidden_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated feed-forward of vectors ``[..., dim]``."""
        gate, value = self.expand(x).chunk(2, -1)
        return self.contract((F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)) * value)

    def make_step(self, norm: nn.RMSNorm, rows: int) -> Map:
        """Return ``x + feed-forward(norm(x))`` for one step."""
        expand = normed(norm, self.expand.weight, None, rows)
        contract = product(self.contract.weight, None, rows)
        gelu = self.gelu

        def refine(x: Tensor) -> Tensor:
            gate, value = expand(x).chunk(2, 1)
            gate = F.gelu(gate, approximate="tanh") if gelu else F.silu(gate, inplace=True)
            return contract(gate.mul_(value)).add_(x)

        return refine


class Refine(nn.Module):
    """Add a feed-forward of the normalized stream to the stream; without one, the identity."""

    def __init__(self, dim: int, feed_forward: nn.Module | None) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim, EPSILON) if feed_forward else None
        self.feed_forward = feed_forward

    def forward(self, x: Tensor) -> Tensor:
        """Add the feed-forward of the normalised vectors to them, ``[..., dim]``."""
        return x + self.feed_forward(self.norm(x)) if self.norm and self.feed_forward else x

    def make_step(self, rows: int) -> Map:
        """Return :meth:`forward` for one step."""
        if self.norm is None or self.feed_forward is None:
            return lambda x: x
        if isinstance(self.feed_forward, GatedFeedForward):
            return self.feed_forward.make_step(self.norm, rows)
        assert isinstance(self.feed_forward, FeedForward)
        return _plain_step(self.norm, self.feed_forward, rows)


def _plain_step(norm: nn.RMSNorm, feed_forward: FeedForward, rows: int) -> Map:
    """Return ``x + feed-forward(norm(x))`` for one step of a feed-forward with the GELU."""
    width = norm.weight.numel()
    least = least_length(norm.eps or 0.0, width, norm.weight)
    dtype, scale = working_dtype(feed_forward.expand.weight), widened(norm.weight) * width**0.5
    run = StreamFeedForward(feed_forward, rows=rows, dtype=dtype, scale=scale)
    return lambda x: run(unit_length(x, least)).to(x.dtype).add_(x)


class ShortConvolution(nn.Module):
    """Weights ``[d, k]`` of a short convolution, which start as in ``nn.Conv1d``, and its bias, zeros at first."""

    def __init__(self, dim: int, steps: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, steps).uniform_(-(steps**-0.5), steps**-0.5))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    def make_step(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the convolution for one step, which shifts its window in place."""
        return convolution(self.weight, self.bias)


def unit(x: Tensor) -> Tensor:
    """Scale vectors ``[..., e]`` to length 1; those near 0 stay short, so that gradients are bounded."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # in float16 the gradient would overflow
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + EPSILON)).to(x.dtype)


def time_constants(count: int, longest: int) -> Tensor:
    """Return ``count`` time constants from 2 to ``longest`` steps, evenly in logarithm."""
    return torch.logspace(math.log10(2), math.log10(longest), count)


def log_expm1(x: Tensor) -> Tensor:
    """Return log(exp(x) - 1), the inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def step_size_bias(heads: int) -> Tensor:
    """Return biases whose softplus is drawn from 0.001 to 0.1, evenly in logarithm: step sizes of state spaces."""
    low, high = math.log(1e-3), math.log(0.1)
    return log_expm1(torch.empty(heads).uniform_(low, high).exp().clamp(min=1e-4))
