"""Differentiable gradients of a hand-written kernel, by autograd through its plain twin.

A hand-written backward pass computes first derivatives only. Where the graph of the gradient is requested
(``create_graph=True``, in which autograd runs a backward pass with gradients enabled), the pass calls
:func:`plain_gradients` instead.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def plain_gradients(
    twin: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of ``sum(grads * twin(*inputs))`` by the inputs, with their own graph.

    Args:
        twin: plain form of the kernel.
        inputs: its arguments.
        grads: gradients by its results.

    Returns:
        One gradient per input; None for an input that requires none.
    """
    # Aliases: an input that was computed from another one must not pass its gradient on to it.
    aliases = [None if x is None else x.view_as(x) for x in inputs]
    needed = [x for x in aliases if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(twin(*aliases), needed, grads, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in aliases]
