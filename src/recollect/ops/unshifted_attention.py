"""Attention of many queries to many keys of few numbers, where no score is large.

    out_n = sum over s of exp(q_n k_s) v_s / sum over s of exp(q_n k_s)                 s that are visible

torch's fused attention subtracts each query's largest score first, so that scores of any size work, and is slowest on
CPUs with heads of 4 numbers: 7 ms for 121 queries and 12 221 keys in 4 heads, against 2 ms here. Where the sums of
exponentials stay within the range of float32, which they show themselves, no score needs to be subtracted: both sums
are one product, with a row of ones below the values, where invisible keys have zeros. Exponentials are computed as
powers of two, which is faster.

    a = [V; 1] P           P = exp(K^T Q^T)                                       forward
    dV = da P^T        dP = [V; 1]^T da        dS = dP * P      dQ = dS^T K^T       dK = Q^T dS^T       backward

Where a head has many scores and oneDNN is the faster library (``packed_linear.py``), the scores of a key are contiguous
and processed in blocks of a million: both products then take a third to half of the time. Else the scores of a query
are contiguous, in blocks that fit the cache.

Same numbers up to rounding. Large scores, NaN, devices and compilers use torch's fused attention.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.packed_linear import multiply, prefers_onednn
from recollect.ops.plain_gradients import plain_gradients
from recollect.ops.torch_internals import is_traced

MILD = (1e-15, 1e25)
"""Range of sums of exponentials that need no subtraction: within it, lost small terms carry no weight, and gradients
are normal float32 numbers."""
BLOCK = 2**18
"""Scores that are processed at once: of several heads, or of some keys of one."""
LARGE_BLOCK = 2**20
"""The same for oneDNN, and heads of more than ``BLOCK``."""


def attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """Compute softmax attention of scaled queries. Twin: :func:`plain_attention`.

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
    if compiling or keys.device.type != "cpu":
        return _shifted(queries, keys, values, visible)
    wide = torch.promote_types(queries.dtype, torch.float32)
    with torch.autocast("cpu", enabled=False):
        q, k, v = queries.to(wide), keys.to(wide), values.to(wide)
        with torch.no_grad():
            shown = _with_ones(v, visible)
            sums = _sums(q.flatten(0, 1), k.flatten(0, 1), shown)
        if _is_mild(sums):
            return _Attention.apply(q, k, v, visible, sums).to(queries.dtype)  # type: ignore[union-attr]
    return _shifted(queries, keys, values, visible)


def plain_attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
    """Plain twin of :func:`attention`."""
    scores = (queries @ keys).to(torch.promote_types(queries.dtype, torch.float32))
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None, None], -math.inf)
    return scores.softmax(-1).to(values.dtype) @ values.transpose(2, 3)


def _shifted(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    # Contiguous heads: the fused kernel takes four times as long on interleaved ones.
    keys, values = keys.transpose(2, 3).contiguous(), values.transpose(2, 3).contiguous()
    mask = None if visible is None else visible[:, None, None].expand(-1, -1, queries.shape[2], -1)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)


def _is_mild(sums: Tensor) -> bool:
    """Return whether :func:`_sums` are exact: exponentials did not overflow, and did not all vanish."""
    return sums[:, -1].amin().item() > MILD[0] and sums.abs().amax().item() < MILD[1]


class _Attention(torch.autograd.Function):
    """:func:`attention` of tensors of one dtype, given their sums."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, sums: Tensor
    ) -> Tensor:
        out = (sums[:, :-1] / sums[:, -1:]).transpose(1, 2)  # bh n e
        ctx.save_for_backward(queries, keys, values, visible, out, sums[:, -1])
        return out.unflatten(0, queries.shape[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        queries, keys, values, visible, out, total = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            if torch.is_grad_enabled():  # the gradient will be differentiated again

                def twin(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
                    return (plain_attention(q, k, v, visible),)

                return *plain_gradients(twin, (queries, keys, values), (grad,)), None, None
            grad = grad.flatten(0, 1)
            of_sums = torch.cat((grad, -(grad * out).sum(-1, keepdim=True)), -1) / total[..., None]  # bh n e+1
            shown = _with_ones(values, visible)
            q, k, v = _sums_backward(of_sums, queries.flatten(0, 1), keys.flatten(0, 1), shown)
            v = v[:, :-1].unflatten(0, queries.shape[:2])
            if visible is not None:
                v = v * visible[:, None, None]
            return q.view_as(queries), k.view_as(keys), v, None, None


def _with_ones(values: Tensor, visible: Tensor | None) -> Tensor:
    """Return the values with a row of ones, zeros where not visible: ``[b h, e + 1, s]``."""
    shown = F.pad(values, (0, 0, 0, 1), value=1.0)
    return (shown if visible is None else shown * visible[:, None, None]).flatten(0, 1)


def _blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield heads and keys of one block after the other: many whole heads, or some keys of one."""
    (count, n, _), s = queries.shape, keys.shape[2]
    heads = max(1, BLOCK // (n * s))
    block = LARGE_BLOCK if heads == 1 and prefers_onednn(queries, s) else BLOCK
    length = math.ceil(s / math.ceil(n * s / block))
    for head in range(0, count, heads):
        for key in range(0, s, length):
            yield slice(head, head + heads), slice(key, key + length)


def _scores(entries: Tensor, queries: Tensor) -> Tensor:
    """Multiply keys ``[g, j, s]`` and queries ``[g, n, j]`` to scores ``[g, s, n]``, contiguous in n where oneDNN
    multiplies.
    """
    if len(entries) == 1 and prefers_onednn(queries, entries.shape[2]):
        return multiply(entries[0].t().contiguous(), queries[0])[None]
    return torch.bmm(queries, entries).transpose(1, 2)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices ``[g, i, j], [g, j, k]`` to ``[g, i, k]``, where i is small."""
    if len(a) == 1 and prefers_onednn(b, a.shape[1]):
        return multiply(a[0].contiguous(), b[0].t())[None]
    return torch.bmm(a, b)


def _powers(queries: Tensor, keys: Tensor) -> Tensor:
    return _scores(keys, queries * math.log2(math.e)).exp2_()


def _sums(queries: Tensor, keys: Tensor, shown: Tensor) -> Tensor:
    """Sum the values and the ones, weighted by the powers of the scores: ``[g, e + 1, n]``."""
    sums = queries.new_zeros(len(queries), shown.shape[1], queries.shape[1])
    for head, key in _blocks(queries, keys):
        sums[head] += _product(shown[head, :, key], _powers(queries[head], keys[head, :, key]))
    return sums


def _sums_backward(grad: Tensor, queries: Tensor, keys: Tensor, shown: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of queries, keys and ``shown`` from that of a, transposed: ``[g, n, e + 1]``."""
    of_queries, of_keys, of_shown = torch.zeros_like(queries), torch.empty_like(keys), torch.empty_like(shown)
    for head, key in _blocks(queries, keys):
        q, k, g = queries[head], keys[head, :, key], grad[head]
        powers = _powers(q, k)
        of_shown[head, :, key] = _product(g.transpose(1, 2), powers.transpose(1, 2))
        of_scores = _scores(shown[head, :, key], g).mul_(powers)
        of_queries[head] += _product(k, of_scores).transpose(1, 2)
        of_keys[head, :, key] = _product(q.transpose(1, 2), of_scores.transpose(1, 2))
    return of_queries, of_keys, of_shown
