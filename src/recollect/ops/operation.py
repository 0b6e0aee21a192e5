"""One row of the table of operations: a kernel, its plain twin, and numbers to try both with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Results = tuple[Tensor, ...]


def call(implementation: Callable[..., Any], *tensors: Tensor) -> Results:
    """What a function of tensors returns, as a tuple."""
    results = implementation(*tensors)
    return results if isinstance(results, tuple) else (results,)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A hand-written kernel and the few lines of public torch that compute the same."""

    kernel: Callable[..., Any]
    """What the library calls. Where it cannot run or does not pay, it leaves the work to the twin or to torch."""
    twin: Callable[..., Any]
    """The same signature, the same numbers up to rounding."""
    is_available: Callable[[], bool]
    """Whether this torch has what the kernel needs."""
    needs: str
    """What that is, in a few words."""
    example: Callable[[int, int, torch.dtype], tuple[Tensor, ...]]
    """Random tensors for ``use``, given a number of rows, a width and the dtype of its floats."""
    use: Callable[..., Results] = call
    """``use(kernel or twin, *tensors)`` gives the results as a tuple of tensors."""
    differentiable: bool = True
    """Whether gradients come back."""
    typical_rows: int = 32
    """For ``recollect benchmark ops``."""
