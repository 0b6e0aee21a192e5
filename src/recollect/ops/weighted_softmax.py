"""Softmax over the few steps of each of many chunks, times a weight of every chunk.

    p = softmax_c(s)        m = r p                 s [..., c, n],  r [..., n]
    u = sum_c p dm          dr = u                  ds = m (dm - u)

With chunks in the last axis, torch processes a register of chunks at a time however few steps they have, and the
derivative needs one product less than that of the two parts. Forward and backward of 2 to 8 steps in 12 to 32 chunks
took 0.4x to 0.7x the time of a softmax over the last axis and a product (one thread of an AMD EPYC).
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


def plain_weighted_softmax(scores: Tensor, weights: Tensor) -> Tensor:
    """Return the softmax over c times the weights: ``[..., c, n], [..., n] -> [..., c, n]``."""
    return scores.softmax(-2) * weights.unsqueeze(-2)


class _WeightedSoftmax(torch.autograd.Function):
    """Returns p beside m: to be differentiated again, a derivative may be built from outputs only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        shares = scores.softmax(-2)
        weighted = shares * weights.unsqueeze(-2)
        ctx.save_for_backward(weights, shares, weighted)
        ctx.set_materialize_grads(False)
        return weighted, shares

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        weights, shares, weighted = ctx.saved_tensors
        dm, dp = grads
        if dm is None:
            return None if dp is None else shares * (dp - (dp * shares).sum(-2, keepdim=True)), None
        mean = (dm * shares).sum(-2)
        dr = mean.sum_to_size(weights.shape)
        if dp is None:
            return (dm - mean.unsqueeze(-2)).mul_(weighted), dr
        both = torch.addcmul(dp, dm, weights.unsqueeze(-2))
        return shares * (both - (both * shares).sum(-2, keepdim=True)), dr


def weighted_softmax(scores: Tensor, weights: Tensor) -> Tensor:
    """Return the softmax over c times the weights: ``[..., c, n], [..., n] -> [..., c, n]``. Twin:
    :func:`plain_weighted_softmax`.

    Args:
        scores: floats.
        weights: of the same dtype; axes before the last may be of length 1.
    """
    if is_traced() or scores.dtype != weights.dtype:
        return plain_weighted_softmax(scores, weights)
    return _WeightedSoftmax.apply(scores, weights)[0]
