"""Digests of many tokens for one or two ``mlp`` summarisers at once, without a normalised or shifted copy of them.

One step of Token Turing Machines may bring n = 3136 tokens, of which read and write keep 16 + 96 weighted means. The
plain way stores, for each of the two, x + t (t rows of a position table), LN(x + t) and the gradients of both. With

    y = x + t_last,  u = y - mean(y),  delta = t_first - t_last,  F = W1 diag(gamma) (I - 11^T / d)

everything follows from u, which is made again whenever it is needed, in one scratch buffer:

    var(y)         = |u|^2 / d
    var(y + delta) = var(y) + var(delta) + 2 u.delta / d
    W1 LN(v) + b1  = (F v) / sqrt(var(v) + eps) + (W1 beta + b1)         for v = y and v = y + delta
    F y            = F u,  F (y + delta) = F u + F delta                 one product with both F's
    sum_p e_p y_p  = E u + E mean(y)                                     one product with both E's

The gradient is written by hand and saves only the hidden layer (64 numbers per token and summariser) and the
exponentials. No number changes beyond rounding. It can be differentiated once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.layers.products import Product, product
from recollect.layers.summarize import Digest, MLPSummarizer, Summarizer

MIN_SIZE = 1 << 17
"""Numbers per step (tokens times width) from which folding is faster than the plain operations."""


class Folded(NamedTuple):
    """What does not depend on the tokens."""

    rows: Tensor | None
    """``[p, d]``: position rows of the last summariser."""
    score: Tensor
    """``[s * 64, d]``: the centred first layers F, one after the other."""
    bias: Tensor
    """``[s * 64]``: W1 beta + b1."""
    contract: Tensor
    """``[k, s * 64]``: the second layers, block diagonal; k counts the outputs of all s summarisers."""
    contract_bias: Tensor
    """``[k]``."""
    shift: Tensor | None
    """``[p, d]``: delta, where there are two summarisers and tables."""
    offset: Tensor | None
    """``[p, 64]``: F delta."""
    spread: Tensor | None
    """``[p]``: var(delta)."""
    sizes: list[int]
    """Outputs of each summariser."""
    eps: float


def foldable(summarizers: Sequence[Summarizer], tokens: Tensor) -> bool:
    """Whether :func:`fold` applies to these summarisers and pays for these tokens."""
    return (
        tokens.shape[-2] * tokens.shape[-1] >= MIN_SIZE
        and all(isinstance(summarizer, MLPSummarizer) and not summarizer.tap.listening for summarizer in summarizers)
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled(tokens.device.type)
        and not torch._C._are_functorch_transforms_active()
    )


def fold(summarizers: Sequence[MLPSummarizer], rows: Sequence[Tensor | None]) -> Folded:
    """Prepare one or two summarisers, each with its position rows ``[p, d]`` (None: no tables)."""
    score, bias = [], []
    for summarizer in summarizers:
        layer, norm = summarizer.net.expand, summarizer.norm
        weight = layer.weight * norm.weight
        score.append(weight - weight.mean(-1, keepdim=True))
        bias.append(F.linear(norm.bias, layer.weight, layer.bias))
    shift = offset = spread = None
    if len(summarizers) == 2 and rows[0] is not None and rows[1] is not None:
        shift = rows[0] - rows[1]
        offset = F.linear(shift, score[0])
        spread = (shift - shift.mean(-1, keepdim=True)).square().mean(-1)
    return Folded(
        rows[-1],
        torch.cat(score),
        torch.cat(bias),
        torch.block_diag(*(summarizer.net.contract.weight for summarizer in summarizers)),
        torch.cat([summarizer.net.contract.bias for summarizer in summarizers]),
        shift,
        offset,
        spread,
        [summarizer.num_out for summarizer in summarizers],
        summarizers[0].norm.eps,
    )


def digest_folded(folded: Folded, tokens: Tensor) -> list[Digest]:
    """The digests of ``[..., p, d]`` (without position rows) for every folded summariser."""
    flat = tokens.reshape(-1, *tokens.shape[-2:])
    logit, value = _Digest.apply(flat, *folded[:4], *folded[5:8], folded.sizes, folded.eps, torch.is_grad_enabled())
    logit = (logit + folded.contract_bias).unflatten(0, tokens.shape[:-2])
    value = value.unflatten(0, tokens.shape[:-2])
    parts = zip(logit.split(folded.sizes, -1), value.split(folded.sizes, -2), strict=True)
    return [Digest(*part, None) for part in parts]


def _times(a: Tensor, b: Tensor) -> Tensor:
    """``a b`` for two matrices, at the speed of the faster library."""
    return product(a, b.t())


class _Digest(torch.autograd.Function):
    """Tokens ``[r, p, d]`` to logits ``[r, k]`` and means ``[r, k, d]``, one row at a time.

    Letters as in the module's docstring; z is the input of the GELU, e the exponentials, a row is one step of one
    stream. Everything of size ``[p, d]`` lives in scratch buffers.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        tokens, rows, score, bias, contract, shift, offset, spread, sizes, eps, keep = args
        r, p, d = tokens.shape
        k, hidden = contract.shape
        s, first = len(sizes), sizes[0]
        expand = Product(score, rows=p, uses=r)
        narrow = Product(contract, rows=p, uses=r)
        centred, scratch = tokens.new_empty(p, d), tokens.new_empty(p, d)
        # Without a gradient to come one place serves all rows.
        kept = r if keep else 1
        mean, inverse = (tokens.new_empty(kept, p, width).expand(r, -1, -1) for width in (1, s))
        z, e = (tokens.new_empty(kept, p, width).expand(r, -1, -1) for width in (hidden, k))
        logit, mass, value = tokens.new_empty(r, k), tokens.new_empty(r, k), tokens.new_empty(r, k, d)
        for row in range(r):
            _centre(tokens[row], rows, mean[row], centred)
            scores = expand(centred)
            variance = torch.linalg.vector_norm(centred, dim=-1).square_().div_(d)
            inverse[row] = variance.unsqueeze(-1)
            if shift is not None:
                inverse[row, :, 0] += spread + torch.mul(centred, shift, out=scratch).sum(-1).mul_(2.0 / d)
                scores[:, : hidden // s] += offset
            inverse[row].clamp_(min=0.0).add_(eps).rsqrt_()
            torch.mul(scores.view(p, s, -1), inverse[row].unsqueeze(-1), out=z[row].view(p, s, -1))
            z[row] += bias
            scores = narrow(F.gelu(z[row], approximate="tanh"))
            top = scores.amax(0)
            torch.exp(scores.sub_(top), out=e[row])
            torch.sum(e[row], 0, out=mass[row])
            logit[row] = mass[row].log() + top
            sums = _times(e[row].t(), centred).add_(e[row].t() @ mean[row])
            if shift is not None:
                sums[:first] += _times(e[row, :, :first].t(), shift)
            torch.div(sums, mass[row].unsqueeze(-1), out=value[row])
        ctx.save_for_backward(tokens, rows, score, bias, contract, shift, mean, inverse, z, e, mass, value)
        ctx.first = first
        return logit, value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tokens, rows, score, bias, contract, shift, mean, inverse, z, e, mass, value = ctx.saved_tensors
        (r, p, d), (k, hidden), s, first = tokens.shape, contract.shape, inverse.shape[-1], ctx.first
        shifted = shift is not None
        d_tokens = torch.empty_like(tokens) if ctx.needs_input_grad[0] else None
        d_rows = None if rows is None else torch.zeros_like(rows)
        d_score, d_bias, d_contract = torch.zeros_like(score), torch.zeros_like(bias), torch.zeros_like(contract)
        d_shift = torch.zeros_like(shift) if shifted else None
        d_offset = tokens.new_zeros(p, hidden // s) if shifted else None
        d_spread = tokens.new_zeros(p) if shifted else None
        level = shift - shift.mean(-1, keepdim=True) if shifted else None
        d_sums = grads[1] / mass.unsqueeze(-1)
        d_mass = (grads[0] - (grads[1] * value).sum(-1)) / mass
        centred = tokens.new_empty(p, d)
        both = tokens.new_empty(p, hidden + k)
        for row in range(r):
            _centre(tokens[row], rows, None, centred, mean[row])
            d_e = _times(centred, d_sums[row].t())  # p k
            d_e.addmm_(mean[row], d_sums[row].sum(-1)[None]).add_(d_mass[row])
            if shifted:
                d_e[:, :first] += _times(shift, d_sums[row, :first].t())
            d_scores = d_e.mul_(e[row])
            d_contract += d_scores.t() @ F.gelu(z[row], approximate="tanh")
            d_z = torch.ops.aten.gelu_backward(_times(d_scores, contract), z[row], approximate="tanh")
            d_bias += d_z.sum(0)
            # z - bias = pre / sqrt(var + eps), so that d var = -1/2 sum(d_z (z - bias)) / (var + eps)
            d_variance = (d_z * (z[row] - bias)).view(p, s, -1).sum(-1).mul_(inverse[row].square()).mul_(-0.5)
            d_pre = d_z.view(p, s, -1).mul_(inverse[row].unsqueeze(-1)).view(p, hidden)
            d_score += _times(d_pre.t(), centred)
            slope = d_variance.mul_(2.0 / d)
            both[:, :hidden], both[:, hidden:] = d_pre, e[row]
            if shifted:
                d_offset += d_pre[:, : hidden // s]
                d_spread += slope[:, 0] * (d / 2)
                d_shift.addmm_(e[row, :, :first], d_sums[row, :first])
                d_shift.addcmul_(centred, slope[:, :1])
            if d_tokens is None and d_rows is None:
                continue
            d_row = _times(both, torch.cat((score, d_sums[row])))
            d_row.addcmul_(centred, slope.sum(-1, keepdim=True))
            if shifted:
                d_row.addcmul_(level, slope[:, :1])
            if d_rows is not None:
                d_rows += d_row
            if d_tokens is not None:
                d_tokens[row] = d_row
        return d_tokens, d_rows, d_score, d_bias, d_contract, d_shift, d_offset, d_spread, None, None, None


def _centre(tokens: Tensor, rows: Tensor | None, mean: Tensor | None, out: Tensor, known: Tensor | None = None) -> None:
    """Write ``u = y - mean(y)`` of ``y = tokens + rows`` to ``out``, and the mean ``[p, 1]`` where it is asked for."""
    if rows is None:
        out.copy_(tokens)
    else:
        torch.add(tokens, rows, out=out)
    if mean is not None:
        torch.mean(out, -1, keepdim=True, out=mean)
        known = mean
    out.sub_(known)
