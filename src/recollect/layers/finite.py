"""Which inputs can be computed with: neither NaN nor so large that what is made of them overflows.

The limit is the number whose square overflows in float32 (bfloat16 reaches as far), or in float64. float16 reaches to
65 504, so that such a limit would be 256; where inputs or products (under autocast) are of it, :data:`HALF` is.
"""

import math

import torch
from torch import Tensor

from recollect.ops.tracing import is_traced

HALF = 2048.0
"""Largest float16 input: a projection of a thousand such numbers with weights that keep their scale does not overflow.
"""


def is_finite(inputs: Tensor) -> Tensor:
    """Bool, of the shape of ``inputs``: what is finite and below the limit."""
    return inputs.abs() <= _largest(inputs)  # a comparison with NaN is False


def surely_finite(inputs: Tensor) -> bool:
    """Whether all of it is, found in one pass without a copy.

    Only where looking at a number costs no synchronisation and is not recorded by a compiler; elsewhere the answer
    is no.
    """
    if inputs.device.type != "cpu" or is_traced():
        return False
    least, most = torch.aminmax(inputs.detach())
    limit = _largest(inputs)
    return -limit <= least.item() and most.item() <= limit


def _largest(inputs: Tensor) -> float:
    dtype, device = inputs.dtype, inputs.device.type
    # The device without numbers, on which shapes are tried, knows no autocast.
    if dtype != torch.float64 and device != "meta" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    if dtype == torch.float16:
        return HALF
    return math.sqrt(torch.finfo(torch.promote_types(dtype, torch.float32)).max)
