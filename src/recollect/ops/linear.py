"""Linear maps with gradients at the speed of the faster library.

    y = x W^T + b        dx = dy W        dW = dy^T x        db = sum dy

On CPU, torch multiplies float32 matrices with MKL. oneDNN, which torch also includes, was 1.7x to 2x as fast on an
AMD EPYC (Zen 5; forward and backward of 2048 rows, one and two threads) and 0.8x on an Intel Xeon, so it is used on
AMD's processors only. Few rows, other dtypes (bfloat16 runs in oneDNN anyway), autocast, compilers and devices use
``F.linear``. Same numbers up to rounding.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.ops import packed_linear
from recollect.ops.torch_internals import can_detect_transforms, is_traced

MIN_ROWS = 128
"""Below this many rows ``F.linear`` is faster."""


def is_available() -> bool:
    """Return whether this torch has the private interfaces that make :func:`linear` faster than ``F.linear``."""
    return packed_linear.is_available() and can_detect_transforms()


def _prefers_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and packed_linear.MAKER == "amd"
        and not is_traced()  # before sizes: their comparison would become a guard on the batch in exported programs
        and x.numel() >= MIN_ROWS * x.shape[-1]
        and not torch.is_autocast_enabled("cpu")
        and packed_linear.is_available()
    )


class _Linear(torch.autograd.Function):
    """The products of :func:`linear` on ``x [r, i]``, weight ``[o, i]`` and bias ``[o]`` or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Made of itself, so that it can be differentiated again.
        (grad,) = grads
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _Linear.apply(grad, weight.t(), None) if needs_x else None,
            _Linear.apply(grad.t(), x.t(), None) if needs_weight else None,
            grad.sum(0) if needs_bias else None,
        )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x W^T + b`` along the last axis: ``[..., i], [o, i], [o] -> [..., o]``. Twin: ``F.linear``."""
    if not _prefers_onednn(x, weight):
        return F.linear(x, weight, bias)
    # A slice of wider rows is copied: oneDNN multiplies such strides by a plain loop, hundreds of times slower.
    return _Linear.apply(x.reshape(-1, x.shape[-1]).contiguous(), weight, bias).unflatten(0, x.shape[:-1])


class Linear(nn.Linear):
    """``nn.Linear``, with the same parameters and initial values, and the products of :func:`linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Map vectors: ``[..., i] -> [..., o]``."""
        if not _prefers_onednn(input, self.weight):  # saves a call for every small product
            return F.linear(input, self.weight, self.bias)
        return linear(input, self.weight, self.bias)
