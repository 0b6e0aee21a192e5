"""Copy many tensors at once: the weights of a learner into those of its actors."""

import torch
from torch import Tensor


def is_available() -> bool:
    """Return whether this torch copies a list of tensors in one call."""
    return hasattr(torch, "_foreach_copy_")


def copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy every source into the target of the same shape, in place. Twin: :func:`plain_copy_each`."""
    if is_available():
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
    else:
        plain_copy_each(targets, sources)


def plain_copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy one tensor after the other."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
