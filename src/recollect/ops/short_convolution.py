"""A causal convolution over the last few steps, channel by channel, with a state and resets.

    y_t = sum_j w_j * x_{t-j} + b          j = 0 ... k - 1, steps of the running episode only

The state holds the last k - 1 inputs, zeros where the episode is younger.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.torch_internals import is_traced, learns_on_cpu


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
    if is_traced() or x.shape[1] == 1:
        return plain_short_convolution(x, weight, bias, memory, first)
    steps, size = x.shape[1], weight.shape[1]
    joined = torch.cat((memory, x.to(memory.dtype)), 1)
    if learns_on_cpu(x) and not first.any():
        return _unmasked(joined, weight, bias, steps), joined[:, steps:].clone()
    episode = F.pad(first.long().cumsum(1), (size - 1, 0))  # 0 is the episode of the memory
    weight = weight.to(joined.dtype)
    y = joined[:, size - 1 :] * weight[:, -1]
    if bias is not None:
        y = y + bias.to(joined.dtype)
    for back in range(1, size):
        start = size - 1 - back
        same = episode[:, start : start + steps] == episode[:, size - 1 :]
        y = y + torch.where(same[..., None], joined[:, start : start + steps], 0.0) * weight[:, -1 - back]
    kept = (episode[:, steps:] == episode[:, -1:])[..., None]
    return y, torch.where(kept, joined[:, steps:], 0.0)


def _unmasked(joined: Tensor, weight: Tensor, bias: Tensor | None, steps: int) -> Tensor:
    """Convolve ``[b, k - 1 + t, d]`` where no episode begins, without a copy for every step back."""
    factors = weight.t().to(joined.dtype).unbind(0)
    y = joined[:, -steps:] * factors[-1]
    if bias is not None:
        y = y + bias.to(joined.dtype)
    for start, factor in reversed(list(enumerate(factors[:-1]))):
        y = torch.addcmul(y, joined[:, start : start + steps], factor)
    return y


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
