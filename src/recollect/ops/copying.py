"""Many tensors copied into as many others: the weights of a learner into those of its actors."""

import torch
from torch import Tensor


def is_available() -> bool:
    """Whether this torch copies a list of tensors in one call."""
    return hasattr(torch, "_foreach_copy_")


def copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy every source into its target, in one call of torch.

    Args:
        targets: changed in place.
        sources: as many, of the same shapes.
    """
    if is_available():
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
    else:
        plain_copy_each(targets, sources)


def plain_copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    """The plain twin of :func:`copy_each`: one after the other."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
