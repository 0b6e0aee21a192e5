"""Limits of usable inputs and states: neither NaN nor so large that products of them overflow.

The limit is the number whose square overflows in float32 (bfloat16 has the same range), or in float64. float16 ends at
65 504, where that limit would be 256; where inputs or products (under autocast) are float16 it is :data:`HALF`.
"""

import math

import torch
from torch import Tensor

from recollect.ops.torch_internals import is_traced

HALF = 2048.0
"""Largest float16 input: a projection of a thousand such numbers with weights that keep their scale does not overflow.
"""
LIMITS = {torch.float16: HALF} | {
    dtype: math.sqrt(torch.finfo(wide).max)
    for dtype, wide in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    )
}
"""Largest input of every dtype."""
STATE_LIMITS = LIMITS | {torch.float16: torch.finfo(torch.float16).max, torch.complex128: LIMITS[torch.float64]}
"""Largest number in a state; in float16 all of them, because memories add up more than one input."""


def is_finite(inputs: Tensor) -> Tensor:
    """Return which entries are finite and below the limit: bool, of the shape of ``inputs``."""
    return inputs.abs() <= _limit(inputs)  # a comparison with NaN is False


def is_known_finite(inputs: Tensor) -> bool:
    """Return whether all entries are finite and below the limit, found in one pass without a copy.

    False where reading a number would wait for a device or be recorded by a compiler.
    """
    if inputs.device.type != "cpu" or is_traced():
        return False
    least, most = torch.aminmax(inputs.detach())
    limit = _limit(inputs)
    return -limit <= least.item() and most.item() <= limit


def state_limit(leaf: Tensor) -> float:
    """Return the largest usable number of a leaf of a state: what is computed from a larger one may not be finite."""
    return STATE_LIMITS.get(leaf.dtype, LIMITS[torch.float32])


def _limit(inputs: Tensor) -> float:
    dtype, device = inputs.dtype, inputs.device.type
    # The meta device, on which shapes are computed, has no autocast.
    if dtype != torch.float64 and device != "meta" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return LIMITS.get(dtype, LIMITS[torch.float32])
