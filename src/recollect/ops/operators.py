"""Operators of torch by name: the private ones change between versions and builds."""

from typing import Any

import torch


def find_operator(name: str) -> Any | None:
    """The operator ``namespace::name``; None where this torch has no such."""
    namespace, _, own = name.partition("::")
    return getattr(getattr(torch.ops, namespace), own, None)
