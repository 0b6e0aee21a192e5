"""Which inputs can be computed with: neither NaN nor so large that their square overflows."""

import math

import torch
from torch import Tensor

from recollect.ops.tracing import is_traced


def is_finite(inputs: Tensor) -> Tensor:
    """Bool, of the shape of ``inputs``: what is finite and has a finite square."""
    return inputs.abs() <= _largest(inputs.dtype)  # a comparison with NaN is False


def surely_finite(inputs: Tensor) -> bool:
    """Whether all of it is, found in one pass without a copy.

    Only where looking at a number costs no synchronisation and is not recorded by a compiler; elsewhere the answer
    is no.
    """
    if inputs.device.type != "cpu" or is_traced():
        return False
    least, most = torch.aminmax(inputs.detach())
    limit = _largest(inputs.dtype)
    return -limit <= least.item() and most.item() <= limit


def _largest(dtype: torch.dtype) -> float:
    # float16 and bfloat16 are computed with in float32 where it matters.
    return math.sqrt(torch.finfo(torch.promote_types(dtype, torch.float32)).max)
