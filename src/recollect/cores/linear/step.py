"""Parts of one step of a linear recurrence in a stream: products, norms and a short convolution.

A step of a small core takes as long as torch takes to start its operations. What does not depend on the step is
therefore folded into weights when the stream is made, where that is exact:

    W norm(x) = W' x / sqrt(|x|^2 + d eps)          W' = W diag(g) sqrt(d), g: the scale of the norm

Memories and sums are in float32 (float64 in a float64 core), products in the dtype of the weights or of autocast.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recollect.ops.packed_linear import PackedLinear, working_dtype

Map = Callable[[Tensor], Tensor]
"""A map of one step, ``[b, i] -> [b, o]``, whose result is a new tensor."""


def widened(tensor: Tensor) -> Tensor:
    """Return the tensor, detached, in the dtype in which a step is computed."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


def product(weight: Tensor, bias: Tensor | None, rows: int) -> Map:
    """Return ``x W^T + b`` with W packed, or reduced where the stream's weights are."""
    dtype, wide = working_dtype(weight), widened(weight).dtype
    packed = PackedLinear.for_stream(weight, bias, rows=rows, dtype=dtype)
    return packed if dtype == wide else lambda x: packed(x.to(dtype)).to(wide)


def linear(layer: nn.Module, rows: int) -> Map:
    """Return a linear map, or the identity."""
    return product(layer.weight, layer.bias, rows) if isinstance(layer, nn.Linear) else layer


def least_length(norm_eps: float, width: int, like: Tensor) -> Tensor:
    """Return the c of :func:`unit_length` that makes it an RMS norm without the factor ``sqrt(width)``."""
    return widened(like).new_full((1,), (width * norm_eps) ** 0.5)


def unit_length(x: Tensor, least: Tensor) -> Tensor:
    """Return ``x / sqrt(|x|^2 + c^2)`` along the last axis."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot(least)


def normed(norm: nn.RMSNorm, weight: Tensor, bias: Tensor | None, rows: int) -> Map:
    """Return ``W norm(x) + b``."""
    scale, least = widened(norm.weight), least_length(norm.eps or 0.0, norm.weight.numel(), norm.weight)
    multiply = product((widened(weight) * scale * len(scale) ** 0.5).to(weight.dtype), bias, rows)
    return lambda x: multiply(unit_length(x, least))


def rms_norm(norm: nn.Module) -> Map:
    """Return an RMS norm, or the identity."""
    if not isinstance(norm, nn.RMSNorm):
        return norm
    scale, least = widened(norm.weight), least_length(norm.eps or 0.0, norm.weight.numel(), norm.weight)
    scale = scale * len(scale) ** 0.5
    return lambda x: unit_length(x.to(scale.dtype), least).mul_(scale)


def convolution(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a convolution over the last k steps, weight ``[d, k]``.

    It takes the newest step ``[b, d]`` and the k - 1 before it ``[b, k - 1, d]``, which it shifts in place.
    """
    factors, offset = widened(weight).t().contiguous(), None if bias is None else widened(bias)

    def convolve(x: Tensor, window: Tensor) -> Tensor:
        joined = torch.cat((window, x.unsqueeze(1)), 1)
        window.copy_(joined.narrow(1, 1, window.shape[1]))
        y = joined.mul_(factors).sum(1)
        return y if offset is None else y.add_(offset)

    return convolve


def stacked(weights: list[Tensor], biases: list[Tensor] | None, rows: int) -> Map:
    """Return n products of as many inputs, ``[n, b, i] -> [n, b, o]``: one operation where weights are not reduced."""
    like = weights[0]
    dtype, wide = working_dtype(like), widened(like).dtype
    every = [
        PackedLinear.for_stream(weight, bias, rows=rows, dtype=dtype)
        for weight, bias in zip(weights, biases or [None] * len(weights), strict=True)
    ]
    if every[0].reduced is not None:
        return lambda x: torch.stack([one(part) for one, part in zip(every, x.unbind(0), strict=True)])
    factors = torch.stack([weight.detach().t() for weight in weights]).to(dtype)
    if biases is None:
        return lambda x: torch.bmm(x.to(dtype), factors).to(wide)
    offsets = torch.stack(biases).detach().to(dtype)[:, None]
    return lambda x: torch.baddbmm(offsets, x.to(dtype), factors).to(wide)
