"""The diagonal linear recurrence over all steps of a call, with resets, forward and backward.

    h_t = a_t * h_{t-1} + x_t          h_{t-1} = 0 where an episode begins

The steps are split into about sqrt(t) chunks of sqrt(t) steps. One loop runs over the places inside a chunk, for all
chunks at once, and also multiplies the decays; a second loop carries h from chunk to chunk; one product adds it to
every step. Nothing is divided and nothing leaves the range of the plain loop, so decays of exactly 0 or 1 are exact.
The gradient of h is the same recurrence backwards in time. A reset is a selection, computed only at places where some
row resets, so that not even infinity passes it.

Source: the blocked prefix sum of Blelloch (1990), Prefix sums and their applications, section 1.4.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.torch_internals import is_traced, is_transformed


def diagonal_scan(decay: Tensor, update: Tensor, memory: Tensor, first: Tensor) -> Tensor:
    """Return h_t of all steps. Twin: :func:`plain_diagonal_scan`.

    Args:
        decay: a, ``[b, t, d]``.
        update: x, ``[b, t, d]``.
        memory: h before the first step, ``[b, d]``.
        first: bool ``[b, t]``; where it is True, a step starts from zeros.

    Returns:
        h ``[b, t, d]``, in the dtype of the memory; its last step is the new memory.
    """
    if is_transformed() or update.shape[1] < 8:  # below, the loop over steps is as short as the two loops
        return plain_diagonal_scan(decay, update, memory, first)
    return _DiagonalScan.apply(decay.to(memory.dtype), update.to(memory.dtype), memory, first)


def plain_diagonal_scan(decay: Tensor, update: Tensor, memory: Tensor, first: Tensor) -> Tensor:
    """Plain twin of :func:`diagonal_scan`: a loop over the steps."""
    h, states = memory, []
    for a, x, begins in zip(decay.unbind(1), update.unbind(1), first.unbind(1), strict=True):
        h = a.to(h.dtype) * torch.where(begins[:, None], 0.0, h) + x.to(h.dtype)
        states.append(h)
    return torch.stack(states, 1)


def gradient_scan(decay: Tensor, grad: Tensor, first: Tensor) -> Tensor:
    """Return the gradient of every state of ``h_t = a_t h_{t-1} + x_t``, that of later states included.

    The gradient of h_t gets a_{t+1} times that of h_{t+1}, unless an episode begins at t + 1.

    Args:
        decay: a, ``[b, t, d]``.
        grad: of the states themselves, ``[b, t, d]``.
        first: bool ``[b, t]``, where an episode begins.
    """
    following = F.pad(decay[:, 1:], (0, 0, 0, 1)).flip(1)
    ends = F.pad(first[:, 1:], (0, 1)).flip(1)
    return diagonal_scan(following, grad.flip(1), torch.zeros_like(grad[:, 0]), ends).flip(1)


class _DiagonalScan(torch.autograd.Function):
    """Values and derivatives of :func:`diagonal_scan`; the backward pass is made of itself and has a gradient too."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        decay, update, memory, first = args
        states = _scan(decay, update, memory, first)
        ctx.save_for_backward(decay, memory, first, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        decay, memory, first, states = ctx.saved_tensors
        grad = gradient_scan(decay, grads[0], first)
        before = torch.cat((memory[:, None], states[:, :-1]), 1).masked_fill(first[..., None], 0.0)
        grad_memory = torch.where(first[:, :1], 0.0, grad[:, 0] * decay[:, 0])
        return grad * before, grad, grad_memory, None


def _scan(decay: Tensor, update: Tensor, memory: Tensor, first: Tensor) -> Tensor:
    rows, steps, width = update.shape
    size = next(n for n in range(1, steps + 1) if n * n >= steps)  # by products, which a compiler can take
    chunks = -(-steps // size)
    lack = chunks * size - steps
    decay, update = (F.pad(tensor, (0, 0, 0, lack)).unflatten(1, (chunks, size)) for tensor in (decay, update))
    first = F.pad(first, (0, lack)).unflatten(1, (chunks, size))[..., None]  # b n c 1
    resets = [True] * size if is_traced() else first.flatten(3).any(3).any(1).any(0).tolist()
    found: list[tuple[Tensor, Tensor]] = []
    h, p = torch.zeros_like(update[:, :, 0]), torch.ones_like(update[:, :, 0])
    for place, some in enumerate(resets):
        a, x, begins = decay[:, :, place], update[:, :, place], first[:, :, place]
        h, p = torch.addcmul(x, a, h), a * p
        if some:
            h, p = torch.where(begins, x, h), p.masked_fill(begins, 0.0)
        found.append((h, p))
    states, product = (torch.stack(parts, 2) for parts in zip(*found, strict=True))
    seen = first.cumsum(2) > 0 if any(resets) else None
    carried, ended = [memory], seen[:, :, -1] if seen is not None else None
    for chunk in range(chunks - 1):
        after = torch.addcmul(states[:, chunk, -1], product[:, chunk, -1], carried[-1])
        carried.append(after if ended is None else torch.where(ended[:, chunk], states[:, chunk, -1], after))
    before = torch.stack(carried, 1)[:, :, None]  # b n 1 d
    whole = torch.addcmul(states, product, before)
    if seen is not None:
        whole = torch.where(seen, states, whole)
    return whole.view(rows, chunks * size, width)[:, :steps]
