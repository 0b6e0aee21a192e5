"""Arrangements of objects: their number in bits, and the index of a permutation."""

from __future__ import annotations

import math

from recollect.lazy import torch


def arrangement_bits(n: int, k: int) -> float:
    """Return the bits of an ordered choice of k of n objects without repetition: log2(n! / (n - k)!)."""
    return (math.lgamma(n + 1) - math.lgamma(n - k + 1)) / math.log(2)


def arrangement_number(order: torch.Tensor) -> torch.Tensor:
    """Return the index of each permutation, whose digits count the smaller later elements (Lehmer code).

    Args:
        order: permutations of 0 .. n - 1, long ``[b, n]``.

    Returns:
        Long ``[b]``, 0 to n! - 1.
    """
    n = order.shape[1]
    later = torch.ones(n, n, dtype=torch.bool, device=order.device).triu(1)
    smaller = (order[:, None, :] < order[:, :, None]) & later
    weights = torch.tensor([math.factorial(k) for k in reversed(range(n))], device=order.device)
    return (smaller.sum(2) * weights).sum(1)
