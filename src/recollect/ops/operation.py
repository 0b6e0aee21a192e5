"""One row of the table of operations: a kernel, its plain twin, and example inputs of both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.ops.torch_internals import can_detect_transforms

Results = tuple[Tensor, ...]


def call(implementation: Callable[..., Any], *tensors: Tensor) -> Results:
    """Call a function of tensors and return its results as a tuple."""
    results = implementation(*tensors)
    return results if isinstance(results, tuple) else (results,)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A hand-written kernel and the few lines of public torch that compute the same."""

    kernel: Callable[..., Any]
    """The function that the library calls; it calls its twin or torch where it cannot run or is slower."""
    twin: Callable[..., Any]
    """Same signature, same numbers up to rounding."""
    example: Callable[[int, int, torch.dtype], tuple[Tensor, ...]]
    """Make random tensors for ``use`` from a number of rows, a width and the dtype of its floats."""
    use: Callable[..., Results] = call
    """``use(kernel or twin, *tensors)`` returns the results as a tuple of tensors."""
    is_available: Callable[[], bool] = can_detect_transforms
    """Whether this torch has the private interfaces that the kernel needs."""
    needs: str = "detection of function transforms"
    """Those interfaces, in a few words."""
    differentiable: bool = True
    """Whether the results have gradients."""
    typical_rows: int = 32
    """For ``recollect benchmark ops``."""
