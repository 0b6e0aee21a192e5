"""Softmax over the steps of each of many chunks, times a weight of every chunk.

    p = softmax_c(s)        m = r p                 s [..., c, n] or [..., n, c],  r [..., n]
    u = sum_c p dm          dr = u                  ds = r (p dm - p u)

The derivative needs fewer passes than those of the two parts. With few steps, it is best to have chunks in the last
axis: torch then processes a register of chunks at a time however few steps they have. Forward and backward of 2 to 8
steps in 12 to 32 chunks took 0.4x to 0.7x the time of a softmax over the last axis and a product (one thread of an AMD
EPYC).
"""

from typing import Any

import torch
from torch import Tensor

from recollect.ops import short_softmax
from recollect.ops.torch_internals import is_traced


def prefers_chunks_last(contents: Tensor) -> bool:
    """Return whether attention to chunks ``[b, n, c, d]`` is faster with chunks in the last axis, after their steps.

    So it is on a CPU, for fewer steps than a register holds and no more steps than chunks.
    """
    n, c = contents.shape[1:3]
    short = c * contents.element_size() < short_softmax.REGISTER
    return short and c <= n and contents.device.type == "cpu" and not is_traced()


def plain_weighted_softmax(scores: Tensor, weights: Tensor, dim: int = -2) -> Tensor:
    """Return the softmax over ``dim`` times the weights: ``[..., c, n], [..., n] -> [..., c, n]``."""
    return scores.softmax(dim) * weights.unsqueeze(dim)


class _WeightedSoftmax(torch.autograd.Function):
    """Returns p beside m: to be differentiated again, a derivative may be built from outputs only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        shares = short_softmax.softmax(scores) if dim == -1 else scores.softmax(dim)
        weighted = shares * weights.unsqueeze(dim)
        ctx.save_for_backward(weights, shares)
        ctx.set_materialize_grads(False)
        ctx.dim = dim
        return weighted, shares

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        (weights, shares), dim = ctx.saved_tensors, ctx.dim
        dm, dp = grads
        if dm is None:
            return None if dp is None else shares * (dp - (dp * shares).sum(dim, keepdim=True)), None, None
        parts = dm * shares
        mean = parts.sum(dim, keepdim=True)
        dr = mean.squeeze(dim).sum_to_size(weights.shape)
        if dp is None:
            return parts.addcmul_(shares, mean, value=-1).mul_(weights.unsqueeze(dim)), dr, None
        both = torch.addcmul(dp, dm, weights.unsqueeze(dim))
        return shares * (both - (both * shares).sum(dim, keepdim=True)), dr, None


def weighted_softmax(scores: Tensor, weights: Tensor, dim: int = -2) -> Tensor:
    """Return the softmax over steps times the weights of chunks: ``[..., c, n], [..., n] -> [..., c, n]``. Twin:
    :func:`plain_weighted_softmax`.

    Args:
        scores: floats.
        weights: of the same dtype; axes before the last may be of length 1.
        dim: axis of the steps; with -1 scores and result are ``[..., n, c]``.
    """
    if is_traced() or scores.dtype != weights.dtype:
        return plain_weighted_softmax(scores, weights, dim)
    return _WeightedSoftmax.apply(scores, weights, dim)[0]
