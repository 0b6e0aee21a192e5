"""Reconstruction losses: an agent restores its observations.

    image      L = sum_t 1 / (y x c) sum_pixels softplus(l) - l p        p: pixel in [0, 1], l: its logit
    language   L = sum_t sum_words -log softmax(l_word)[word]            padding (0) does not count
    tiles      L = sum_t 1 / cells sum_cells -log softmax(l_cell)[cell]

``sum`` and ``mean`` over the valid steps, and selection of them, as in ``policy_gradient.py``; in float32 or better.

Source: Lampinen et al. (2021), appendix A ("reconstruction loss"): images by sigmoid cross-entropy, averaged over
pixels and channels; language by softmax cross-entropy, summed over the sequence. The loss for tiles is ours: an image
whose cells are symbols.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.objectives.policy_gradient import Reduction, reduce_steps
from recollect.state import spread_rows


def image_loss(logits: Tensor, images: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum") -> Tensor:
    """Return the sigmoid cross-entropy of pixels, averaged over the pixels and channels of a step.

    Args:
        logits: float ``[b, t, ...]``.
        images: the same shape; uint8 0..255, or float in [0, 1].
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree, or images of another dtype.
    """
    if logits.shape != images.shape or logits.ndim < 3:
        raise ValueError(f"logits {list(logits.shape)} and images {list(images.shape)} do not agree: give [b, t, ...]")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"images are {images.dtype}: give uint8 0..255, or floats in [0, 1]")
    valid = _mask(valid, logits)
    logits, images = _select(valid, logits), _select(valid, images)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    pixels = images.to(logits.dtype)
    if images.dtype == torch.uint8:
        pixels = pixels / 255
    losses = F.binary_cross_entropy_with_logits(logits, pixels, reduction="none").flatten(2).mean(-1)
    return reduce_steps(losses, valid, reduction)


def language_loss(
    logits: Tensor, words: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum"
) -> Tensor:
    """Return the softmax cross-entropy of words, summed over the words of a step without padding.

    Args:
        logits: float ``[b, t, n, vocabulary]``.
        words: integers ``[b, t, n]``; 0 is padding.
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree.
    """
    losses = _cross_entropies(logits, words, _mask(valid, logits))
    return reduce_steps(torch.where(words != 0, losses, 0.0).flatten(2).sum(-1), valid, reduction)


def tile_loss(logits: Tensor, tiles: Tensor, *, valid: Tensor | None = None, reduction: Reduction = "sum") -> Tensor:
    """Return the softmax cross-entropy of symbols, averaged over the cells of a step; 0 is a symbol like any other.

    Args:
        logits: float ``[b, t, ..., symbols]``.
        tiles: integers ``[b, t, ...]``.
        valid: bool ``[b, t]``; None: all are valid.
        reduction: ``sum`` or ``mean`` over the valid steps.

    Returns:
        A scalar; 0 when no step is valid.

    Raises:
        ValueError: shapes that do not agree.
    """
    losses = _cross_entropies(logits, tiles, _mask(valid, logits))
    return reduce_steps(losses.flatten(2).mean(-1), valid, reduction)


def _cross_entropies(logits: Tensor, symbols: Tensor, valid: Tensor | None) -> Tensor:
    if logits.ndim < 4 or logits.shape[:-1] != symbols.shape:
        raise ValueError(
            f"logits {list(logits.shape)} and symbols {list(symbols.shape)} do not agree: "
            "give [b, t, ..., number of symbols] and [b, t, ...]"
        )
    logits, symbols = _select(valid, logits), _select(valid, symbols)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    flat = F.cross_entropy(logits.flatten(0, -2), symbols.flatten().long(), reduction="none")
    return flat.reshape(symbols.shape)


def _mask(valid: Tensor | None, logits: Tensor) -> Tensor | None:
    if valid is not None and (valid.dtype != torch.bool or valid.shape != logits.shape[:2]):
        raise ValueError(f"valid is {valid.dtype} {list(valid.shape)}: give bool {list(logits.shape[:2])}")
    return valid


def _select(valid: Tensor | None, tensor: Tensor) -> Tensor:
    """Return the tensor with 0 at steps that are not valid."""
    if valid is None:
        return tensor
    return torch.where(spread_rows(valid, tensor), tensor, tensor.new_zeros(()))
