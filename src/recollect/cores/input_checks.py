"""Checks of inputs and ``is_first`` that cores, streams and agents share, each a line with the value and the remedy."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def require_float_dtype(inputs: Tensor, own: torch.dtype, model: str = "this model") -> None:
    """Raise ``ValueError`` unless float inputs have the dtype of the weights, ``own``, or autocast converts them."""
    if inputs.dtype == own:
        return
    # Autocast leaves float64 as it is.
    can_convert = inputs.is_floating_point() and inputs.dtype != torch.float64
    if not (can_convert and torch.is_autocast_enabled(inputs.device.type)):
        raise ValueError(f"inputs are {inputs.dtype}; {model} computes in {own}: give inputs.to({own})")


def require_is_first(is_first: Any, shape: Sequence[int] | None = None, model: str = "this model") -> None:
    """Raise ``ValueError`` unless ``is_first`` is a tensor of bools, of a shape where one is given."""
    dtype = is_first.dtype if isinstance(is_first, Tensor) else type(is_first).__name__
    if dtype != torch.bool:
        raise ValueError(f"is_first has dtype {dtype}: give bools, for example is_first.bool()")
    if shape is not None and tuple(is_first.shape) != tuple(shape):
        raise ValueError(f"is_first has shape {list(is_first.shape)}; {model} takes {list(shape)}")
