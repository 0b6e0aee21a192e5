"""A causal convolution over the last few steps, channel by channel, with a state and resets.

    y_t = sum_j w_j * x_{t-j} + b          j = 0 ... k - 1, steps of the running episode only

The state holds the last k - 1 inputs, zeros where the episode is younger.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.torch_internals import is_transformed, learns_on_cpu


def short_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, memory: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """Convolve all steps. Twin: :func:`plain_short_convolution`.

    Args:
        x: ``[b, t, d]``.
        weight: ``[d, k]``, k at least 2, the newest step last, as in ``nn.Conv1d``.
        bias: ``[d]`` or None.
        memory: the inputs before the first step, ``[b, k - 1, d]``, oldest first.
        first: bool ``[b, t]``; where it is True, the steps before are not seen.

    Returns:
        y ``[b, t, d]`` and the new memory, in the dtype of the memory.
    """
    if is_transformed() or x.shape[1] == 1:
        return plain_short_convolution(x, weight, bias, memory, first)
    steps, size = x.shape[1], weight.shape[1]
    joined = torch.cat((memory, x.to(memory.dtype)), 1)
    weight, bias = weight.to(joined.dtype), None if bias is None else bias.to(joined.dtype)
    if learns_on_cpu(x) and not first.any():
        return _Convolution.apply(joined, weight, bias, None), joined[:, steps:].clone()
    episode = F.pad(first.long().cumsum(1), (size - 1, 0))  # 0 is the episode of the memory
    same = torch.stack([episode[:, start : start + steps] == episode[:, size - 1 :] for start in range(size)])
    kept = (episode[:, steps:] == episode[:, -1:])[..., None]
    return _Convolution.apply(joined, weight, bias, same[..., None]), torch.where(kept, joined[:, steps:], 0.0)


class _Convolution(torch.autograd.Function):
    """Values and derivatives, without a tensor of full length for every step back; those of the input are summed in
    place. Made of operations that have derivatives themselves, so that it can be differentiated again.

    ``joined [b, k - 1 + t, d]``, weight ``[d, k]``, bias ``[d]`` or None; bool ``[k, b, t, 1]``: which inputs are of
    the episode of the output, None where all are.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        joined, weight, bias, same = args
        ctx.save_for_backward(joined, weight, same)
        factors, steps = weight.t().contiguous(), joined.shape[1] - weight.shape[1] + 1
        y = joined[:, -steps:] * factors[-1]
        if bias is not None:
            y += bias
        for place, factor in enumerate(factors[:-1]):
            y.addcmul_(_seen(joined, place, steps, same), factor)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        joined, weight, same = ctx.saved_tensors
        steps, of_joined, of_weight = grad.shape[1], None, None
        if ctx.needs_input_grad[0]:
            of_joined = torch.zeros_like(joined)
            for place, factor in enumerate(weight.t().contiguous()):
                seen = grad if same is None or place == weight.shape[1] - 1 else torch.where(same[place], grad, 0.0)
                of_joined[:, place : place + steps].addcmul_(seen, factor)
        if ctx.needs_input_grad[1]:
            parts = [(grad * _seen(joined, place, steps, same)).sum((0, 1)) for place in range(weight.shape[1])]
            of_weight = torch.stack(parts, 1)
        return of_joined, of_weight, grad.sum((0, 1)) if ctx.needs_input_grad[2] else None, None


def _seen(joined: Tensor, place: int, steps: int, same: Tensor | None) -> Tensor:
    """Return the inputs of every output at one place of the window, zeros where they are of another episode."""
    part = joined[:, place : place + steps]
    return part if same is None or place == len(same) - 1 else torch.where(same[place], part, 0.0)


def plain_short_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, memory: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """Plain twin of :func:`short_convolution`: a loop over the steps."""
    outputs, kind = [], memory.dtype
    factors, offset = weight.t().to(kind), None if bias is None else bias.to(kind)
    for step in range(x.shape[1]):
        memory = torch.where(first[:, step, None, None], 0.0, memory)
        window = torch.cat((memory, x[:, step, None].to(kind)), 1)  # b k d
        y = (window * factors).sum(1)
        outputs.append(y if offset is None else y + offset)
        memory = window[:, 1:]
    return torch.stack(outputs, 1), memory
