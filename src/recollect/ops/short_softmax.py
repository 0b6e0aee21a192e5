"""Softmax over an axis that is shorter than a vector register, as in chunks and short windows.

    p = exp(s - max s) / sum exp(s - max s)        ds = p (dp - sum p dp)

On CPU, torch reads the last axis a register at a time: 16 numbers of float32 with AVX-512, 8 with AVX2. It reads a
shorter axis number by number, 4 to 6 times as slow forward and 2 to 8 times backward as the few passes over all numbers
that are written here (one thread of an AMD EPYC, 4 096 rows of 3 to 15 numbers). Few rows, longer axes, other dtypes,
compilers and devices use torch's own. Same numbers up to rounding.
"""

from typing import Any

import torch
from torch import Tensor

from recollect.ops.torch_internals import is_traced

MIN_ROWS = 256
"""Below this many rows torch's own is faster."""
REGISTER = {"AVX512": 64, "AVX2": 32}.get(torch.backends.cpu.get_cpu_capability(), 0)
"""Bytes of a vector register that torch uses here; 0 on processors that were not measured."""


def plain_softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last axis."""
    return scores.softmax(-1)


def _is_short(scores: Tensor) -> bool:
    # is_traced comes before sizes: a comparison of sizes would become a guard on the batch in exported programs.
    if is_traced() or scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
        return False
    length = scores.shape[-1] if scores.dim() else 0
    return 0 < length * scores.element_size() < REGISTER and scores.numel() >= MIN_ROWS * length


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = (scores - scores.amax(-1, keepdim=True)).exp_()
        weights /= weights.sum(-1, keepdim=True)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # Made of operations that have derivatives themselves, so that it can be differentiated again.
        (weights,) = ctx.saved_tensors
        shares = grads[0] * weights
        return shares.addcmul_(weights, shares.sum(-1, keepdim=True), value=-1)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis, ``[..., s] -> [..., s]``. Twin: :func:`plain_softmax`."""
    return _Softmax.apply(scores) if _is_short(scores) else plain_softmax(scores)
