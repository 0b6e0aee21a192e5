"""Memoryless as a plain loop, one step of one row at a time.

x  = W i + b                                         the input i, or x = i where the widths agree
x <- x + W_2 f(W_1 norm_l(x) + b_1) + b_2            l = 1 .. L,  f: gelu or relu
y  = norm(x)

norm(x) = g * (x - mean(x)) / sqrt(var(x) + 1e-5) + s
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from recollect.cores.memoryless.core import Memoryless, MemorylessState
from recollect.layers.feedforward import ACTIVATIONS, FeedForward


def reference_unroll(
    core: Memoryless, inputs: Tensor, state: MemorylessState, is_first: Tensor
) -> tuple[Tensor, MemorylessState]:
    """What ``core(inputs, state, is_first)`` computes.

    Args:
        core: whose weights are used; without dropout.
        inputs: ``[b, t, i]``.
        state: nothing.
        is_first: bool ``[b, t]``; there is nothing to clear.

    Returns:
        Outputs ``[b, t, d]`` and the state as it came.

    Raises:
        ValueError: the core is in training and drops out.
    """
    if core.training and core.config.dropout:
        raise ValueError(f"dropout={core.config.dropout}: the plain form has none; call core.eval() first")
    outputs = []
    for row in inputs:
        for step in row:
            outputs.append(one_step(core, step))
    return torch.stack(outputs).unflatten(0, inputs.shape[:2]), state


def one_step(core: Memoryless, x: Tensor) -> Tensor:
    """``[i] -> [d]``."""
    if isinstance(core.project, nn.Linear):
        x = core.project.weight @ x + core.project.bias
    for layer_norm, feedforward in cast(Iterable[tuple[nn.LayerNorm, FeedForward]], core.layers):
        first, second = feedforward.expand, feedforward.contract
        hidden = ACTIVATIONS[core.config.activation]()(first.weight @ norm(layer_norm, x) + first.bias)
        x = x + second.weight @ hidden + second.bias
    return norm(core.norm, x)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """``[d] -> [d]``."""
    deviation = (x.var(unbiased=False) + layer.eps).sqrt()
    return layer.weight * (x - x.mean()) / deviation + layer.bias
