"""Errors about numbers that are not finite name the large reward or observation that may have caused them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from recollect.runs.errors import NonFiniteError

LARGE = 1e6
"""Rewards and observations beyond this are named."""


@contextmanager
def name_large_numbers(read: Mapping[str, Tensor]) -> Iterator[None]:
    """Add the largest number that was read to a :class:`NonFiniteError` of the block, if it is large.

    Args:
        read: rewards and observations of a rollout, by name.
    """
    try:
        yield
    except NonFiniteError as error:
        largest = {name: float(part.abs().max()) for name, part in read.items() if part.numel()}
        name, value = max(largest.items(), key=lambda item: item[1])
        if not value > LARGE:
            raise
        raise NonFiniteError(
            f"{str(error).rstrip(',')} (the largest {name} of the rollout is {value:g}, without its sign)",
            f"scale each {name.partition('.')[0]} of the world to numbers near 1, then start again",
        ) from error
