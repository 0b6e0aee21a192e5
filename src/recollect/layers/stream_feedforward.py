"""Feed-forward blocks and input projections for one step of a stream, over weights that are prepared once.

    y = W2 act(W1 (g * x + s) + b1) + b2

g and s, scale and shift of the norm before it, are folded into W1 and b1. The GELU of v is ``(u + u erf(u)) / sqrt(2)``
with ``u = v / sqrt(2)``; both factors are folded into weights too. torch's own starts oneDNN on a CPU, which takes
three to seven times as long as that for the numbers of one step.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recollect.layers.feedforward import FeedForward
from recollect.ops.packed_linear import PackedLinear


class StreamFeedForward:
    """``[r, dim] -> [r, out_dim]``, a new tensor in the dtype of the products; applies no dropout.

    Args:
        feed_forward: the block.
        rows: expected rows of an input.
        dtype: of the products.
        scale: g ``[dim]``, or None.
        shift: s ``[dim]``, or None.
    """

    def __init__(
        self,
        feed_forward: FeedForward,
        *,
        rows: int,
        dtype: torch.dtype,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        first, second = feed_forward.expand, feed_forward.contract
        kind = first.weight.dtype
        wide = torch.promote_types(kind, torch.float32)
        inward, bias, outward = (tensor.detach().to(wide) for tensor in (first.weight, first.bias, second.weight))
        if shift is not None:
            bias = bias + (inward * shift.detach().to(wide)).sum(-1)
        if scale is not None:
            inward = inward * scale.detach().to(wide)
        self._activate: Callable[[Tensor], Tensor] = feed_forward.activation
        if isinstance(self._activate, nn.ReLU):
            self._activate = torch.relu_
        elif isinstance(self._activate, nn.GELU) and self._activate.approximate == "none" and dtype == wide:
            half = 2**-0.5
            inward, bias, outward, self._activate = half * inward, half * bias, half * outward, _scaled_gelu
        self._expand = PackedLinear.for_stream(inward.to(kind), bias.to(kind), rows=rows, dtype=dtype)
        self._contract = PackedLinear.for_stream(outward.to(kind), second.bias, rows=rows, dtype=dtype)
        self._dtype = dtype

    def __call__(self, x: Tensor) -> Tensor:
        """Return the feed-forward of each row."""
        return self._contract(self._activate(self._expand(x.to(self._dtype))))


def _scaled_gelu(u: Tensor) -> Tensor:
    return torch.addcmul(u, u, torch.erf(u))


def stream_projection(project: nn.Module, rows: int) -> Callable[[Tensor], Tensor]:
    """Return an input projection for steps ``[r, i]`` or ``[b, t, i]``, in the dtype of its weights."""
    if not isinstance(project, nn.Linear):
        return project
    product = PackedLinear.for_stream(project.weight, project.bias, rows=rows)
    return lambda x: product(x) if x.ndim == 2 else product(x.flatten(0, 1)).unflatten(0, x.shape[:2])
