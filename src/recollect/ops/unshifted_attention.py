"""Attention of many queries to many keys of few numbers, where no score is large.

    out_n = sum over s of exp(q_n k_s) v_s / sum over s of exp(q_n k_s)                 s that are visible

torch's fused attention subtracts each query's largest score first, so that any score will do, and on processors is at
its worst with heads of 4 numbers: 7 ms for 121 queries and 12 221 keys. Where |q| |k| is known to be small, no
score need be subtracted: both sums are one product, with a row of ones below the values, and what is not visible is
zero there. Exponentials are powers of two, which come cheaper. The scores of a block of keys stay in the cache.

    a = [V; 1] P^T          P = exp(Q K)                                          forward
    dV = da P        dP = da^T [V; 1]        dS = dP P        dQ = dS K^T       dK = Q^T dS            backward

Same numbers up to rounding. Large scores, NaN, devices and compilers take torch's fused attention.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.tracing import can_tell, is_traced

MILD = 40.0
"""Scores whose exponentials may be summed as they are: e^40 a hundred million times is far below what float32 holds."""
BLOCK = 2**18
"""Scores that are dealt with at once."""


def is_available() -> bool:
    """Whether this torch says if it is tracing, which is when the plain form is needed."""
    return can_tell()


def attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """Softmax attention; the scale is in the queries.

    Args:
        queries: ``[b, h, n, e]``.
        keys: ``[b, h, e, s]``.
        values: ``[b, h, e, s]``.
        visible: bool ``[b, s]``, True at least once in a row; None sees everything.

    Returns:
        ``[b, h, n, e]``.
    """
    compiling = torch.compiler.is_compiling()
    if is_traced() and not compiling:
        return plain_attention(queries, keys, values, visible)
    if compiling or keys.device.type != "cpu" or not _is_mild(queries, keys):
        return _shifted(queries, keys, values, visible)
    wide = torch.promote_types(queries.dtype, torch.float32)
    with torch.autocast("cpu", enabled=False):
        parts = queries.to(wide), keys.to(wide), values.to(wide)
        return _Attention.apply(*parts, visible).to(queries.dtype)  # type: ignore[union-attr]


def plain_attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """The same as it is written."""
    scores = (queries @ keys).to(torch.promote_types(queries.dtype, torch.float32))
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None, None], -math.inf)
    return scores.softmax(-1).to(values.dtype) @ values.transpose(2, 3)


def _shifted(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    # Heads lie one behind the other in memory: on interleaved ones the fused kernel takes four times as long.
    keys, values = keys.transpose(2, 3).contiguous(), values.transpose(2, 3).contiguous()
    mask = None if visible is None else visible[:, None, None].expand(-1, -1, queries.shape[2], -1)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)


def _is_mild(queries: Tensor, keys: Tensor) -> bool:
    """Whether no score can come near what an exponential of float32 bears."""
    queries, keys = queries.detach().float(), keys.detach().float()
    largest = queries.square().sum(-1).amax() * keys.square().sum(2).amax()
    return largest.item() < MILD**2


class _Attention(torch.autograd.Function):
    """:func:`attention` of tensors of one dtype."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        sums = _sums(queries.flatten(0, 1), keys.flatten(0, 1), _with_ones(values, visible))
        out = (sums[:, :-1] / sums[:, -1:]).transpose(1, 2)  # bh n e
        ctx.save_for_backward(queries, keys, values, visible, out, sums[:, -1])
        return out.unflatten(0, queries.shape[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        queries, keys, values, visible, out, total = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            if torch.is_grad_enabled():  # asked for something to be differentiated again
                sources = (queries, keys, values)
                found = torch.autograd.grad(plain_attention(*sources, visible), sources, grad, create_graph=True)
                return *found, None
            grad = grad.flatten(0, 1)
            of_sums = torch.cat((grad, -(grad * out).sum(-1, keepdim=True)), -1) / total[..., None]  # bh n e+1
            shown = _with_ones(values, visible)
            q, k, v = _sums_backward(of_sums, queries.flatten(0, 1), keys.flatten(0, 1), shown)
            v = v[:, :-1].unflatten(0, queries.shape[:2])
            if visible is not None:
                v = v * visible[:, None, None]
            return q.view_as(queries), k.view_as(keys), v, None


def _with_ones(values: Tensor, visible: Tensor | None) -> Tensor:
    """``[b h, e + 1, s]``: the values and a row of ones, 0 where not visible."""
    shown = F.pad(values, (0, 0, 0, 1), value=1.0)
    return (shown if visible is None else shown * visible[:, None, None]).flatten(0, 1)


def _blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Heads and keys of one block after the other: many whole heads, or some keys of one."""
    (count, n, _), s = queries.shape, keys.shape[2]
    heads = max(1, BLOCK // (n * s))
    length = s if n * s <= BLOCK else max(1, BLOCK // n)
    for head in range(0, count, heads):
        for key in range(0, s, length):
            yield slice(head, head + heads), slice(key, key + length)


def _powers(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.bmm(queries * math.log2(math.e), keys).exp2_()


def _sums(queries: Tensor, keys: Tensor, shown: Tensor) -> Tensor:
    """``[g, n, e], [g, e, s], [g, e + 1, s]`` to a, ``[g, e + 1, n]``."""
    sums = queries.new_zeros(len(queries), shown.shape[1], queries.shape[1])
    for head, key in _blocks(queries, keys):
        powers = _powers(queries[head], keys[head, :, key])
        sums[head] += torch.bmm(shown[head, :, key], powers.transpose(1, 2))
    return sums


def _sums_backward(grad: Tensor, queries: Tensor, keys: Tensor, shown: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and ``shown`` from that of a, transposed: ``[g, n, e + 1]``."""
    of_queries, of_keys, of_shown = torch.zeros_like(queries), torch.empty_like(keys), torch.empty_like(shown)
    for head, key in _blocks(queries, keys):
        q, k, g = queries[head], keys[head, :, key], grad[head]
        powers = _powers(q, k)
        of_shown[head, :, key] = torch.bmm(g.transpose(1, 2), powers)
        of_scores = torch.bmm(g, shown[head, :, key]).mul_(powers)
        of_queries[head] += torch.bmm(of_scores, k.transpose(1, 2))
        of_keys[head, :, key] = torch.bmm(q.transpose(1, 2), of_scores)
    return of_queries, of_keys, of_shown
