"""Memoryless as a plain loop over rows and steps.

For an input i, with the ``activation`` f:

    x  = W i + b                                         or x = i where the widths agree
    x <- x + W_2 f(W_1 norm_l(x) + b_1) + b_2            l = 1 .. L
    y  = norm(x)

    norm(x) = g * (x - mean(x)) / sqrt(var(x) + 1e-5) + s
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from recollect.cores.contract import require_no_dropout
from recollect.cores.memoryless.core import Memoryless, MemorylessState
from recollect.layers.feedforward import ACTIVATIONS, FeedForward


def reference_unroll(
    core: Memoryless, inputs: Tensor, state: MemorylessState, is_first: Tensor
) -> tuple[Tensor, MemorylessState]:
    """Compute ``core(inputs, state, is_first)`` without dropout.

    Raises:
        ValueError: the core is in training mode and has dropout.
    """
    require_no_dropout(core)
    outputs = [one_step(core, step) for row in inputs for step in row]
    return torch.stack(outputs).unflatten(0, inputs.shape[:2]), state


def one_step(core: Memoryless, x: Tensor) -> Tensor:
    """Compute one step, ``[i] -> [d]``."""
    if isinstance(core.project, nn.Linear):
        x = core.project.weight @ x + core.project.bias
    for layer_norm, feedforward in cast(Iterable[tuple[nn.LayerNorm, FeedForward]], core.layers):
        first, second = feedforward.expand, feedforward.contract
        hidden = ACTIVATIONS[core.config.activation]()(first.weight @ norm(layer_norm, x) + first.bias)
        x = x + second.weight @ hidden + second.bias
    return norm(core.norm, x)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute a layer norm, ``[d] -> [d]``."""
    deviation = (x.var(unbiased=False) + layer.eps).sqrt()
    return layer.weight * (x - x.mean()) / deviation + layer.bias
