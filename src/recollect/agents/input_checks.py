"""Checks of what a model is given, each a line that names the value and the remedy."""

import torch
from torch import Tensor


def require_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise ``ValueError`` where a token on the CPU is outside the vocabulary.

    On an accelerator the check would wait for the device at every step; the lookup itself fails there.
    """
    if tokens.device.type == "cpu" and tokens.numel() and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0].item()
        raise ValueError(f"token {wrong} is outside the vocabulary of {vocabulary}: use 0..{vocabulary - 1}")


def require_float_dtype(inputs: Tensor, own: torch.dtype) -> None:
    """Raise ``ValueError`` unless float inputs have the dtype of the weights, ``own``, or autocast converts them."""
    is_converted = inputs.dtype != torch.float64 and torch.is_autocast_enabled(inputs.device.type)
    if inputs.dtype != own and not is_converted:
        raise ValueError(f"inputs are {inputs.dtype}; this model computes in {own}: give inputs.to({own})")


def require_is_first(is_first: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Raise ``ValueError`` unless ``is_first`` holds bools, of a shape where one is given."""
    if is_first.dtype != torch.bool:
        raise ValueError(f"is_first has dtype {is_first.dtype}: give bools, for example is_first.bool()")
    if shape is not None and is_first.shape != shape:
        raise ValueError(f"is_first has shape {list(is_first.shape)}; this model takes {list(shape)}")
