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
exponentials. No number changes beyond rounding. It can be differentiated once. Under autocast the products are made
in its dtype and everything else in the dtype of the weights.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.ttm.summarizers import EPS, MLPSummarizer, PartialSoftmax, Summarizer
from recollect.ops.packed_linear import PackedLinear, product

MIN_SIZE = 1 << 17
"""Numbers per step (tokens times width) from which folding is faster than the plain operations."""


class FusedWeights(NamedTuple):
    """What does not depend on the tokens."""

    rows: tuple[Tensor | None, Tensor | None]
    """``[p, d]``: position rows of the first and of the last summariser."""
    score: Tensor
    """``[s * 64, d]``: the centred first layers F, one after the other."""
    bias: Tensor
    """``[s * 64]``: W1 beta + b1."""
    contract: Tensor
    """``[k, s * 64]``: the second layers, block diagonal; k counts the outputs of all s summarisers."""
    contract_bias: Tensor
    """``[k]``."""
    shift: tuple[Tensor, Tensor, Tensor, Tensor] | None
    """Where there are two summarisers and tables: delta minus its mean ``[p, d]``, the mean ``[p, 1]``, F delta
    ``[p, 64]`` and var(delta) ``[p]``. Numbers only: gradients go to ``rows``."""
    sizes: list[int]
    """Outputs of each summariser."""
    eps: float


def foldable(summarizers: Sequence[Summarizer], tokens: Tensor) -> bool:
    """Whether :func:`fold` applies to these summarisers and pays for these tokens."""
    return (
        tokens.shape[-2] * tokens.shape[-1] >= MIN_SIZE
        and all(isinstance(summarizer, MLPSummarizer) and not summarizer.tap.listening for summarizer in summarizers)
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def fold(summarizers: Sequence[Summarizer], rows: Sequence[Tensor | None]) -> FusedWeights:
    """Prepare one or two summarisers, each with its position rows ``[p, d]`` (None: no tables)."""
    score, bias, nets = [], [], []
    for summarizer in summarizers:
        assert isinstance(summarizer, MLPSummarizer)  # see foldable
        nets.append(summarizer.net)
        layer, norm = summarizer.net.expand, summarizer.norm
        weight = layer.weight * norm.weight
        score.append(weight - weight.mean(-1, keepdim=True))
        bias.append(F.linear(norm.bias, layer.weight, layer.bias))
    shift = None
    if len(summarizers) == 2 and rows[0] is not None and rows[1] is not None:
        shift = _shift(rows[0].detach(), rows[1].detach(), score[0].detach())
    return FusedWeights(
        (rows[0], rows[-1]),
        torch.cat(score),
        torch.cat(bias),
        torch.block_diag(*(net.contract.weight for net in nets)),
        torch.cat([net.contract.bias for net in nets]),
        shift,
        [summarizer.num_out for summarizer in summarizers],
        EPS,
    )


def fused_pooling(folded: FusedWeights, tokens: Tensor) -> list[PartialSoftmax]:
    """The digests of ``[..., p, d]`` (without position rows) for every folded summariser."""
    flat = tokens.reshape(-1, *tokens.shape[-2:])
    device = tokens.device.type
    work = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else folded.score.dtype
    with torch.autocast(device, enabled=False):
        logit, value = _FusedPooling.apply(flat, folded, *folded.rows, *folded[1:4], work, torch.is_grad_enabled())
    logit = (logit + folded.contract_bias).unflatten(0, tokens.shape[:-2])
    value = value.unflatten(0, tokens.shape[:-2])
    parts = zip(logit.split(folded.sizes, -1), value.split(folded.sizes, -2), strict=True)
    return [PartialSoftmax(*part, None) for part in parts]


def _shift(first: Tensor, last: Tensor, score: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :class:`FusedWeights` keeps of the difference of two tables ``[p, d]``."""
    shift = first - last
    mean = shift.mean(-1, keepdim=True)
    shift.sub_(mean)
    spread = torch.linalg.vector_norm(shift, dim=-1).square_().div_(shift.shape[-1])
    return shift, mean, F.linear(shift, score), spread


def extra_flops(folded: FusedWeights, num_tokens: int) -> int:
    """Products of a step beyond those of the plain way: the zeros of the block diagonal and the shift's means."""
    k, hidden = folded.contract.shape
    zeros = 2 * num_tokens * k * (hidden - hidden // len(folded.sizes))
    return zeros + (0 if folded.shift is None else 2 * num_tokens * folded.sizes[0] * (folded.shift[0].shape[-1] + 1))


def _times(a: Tensor, b: Tensor, work: torch.dtype) -> Tensor:
    """``a b`` for two matrices, multiplied in the dtype ``work``, at the speed of the faster library."""
    return product(a.to(work), b.t().to(work)).to(a.dtype)


class _Map:
    """``x W^T`` for many blocks x, multiplied in the dtype ``work``."""

    def __init__(self, weight: Tensor, blocks: list[range], uses: int, work: torch.dtype) -> None:
        self.product = PackedLinear(weight.to(work), rows=len(blocks[0]), uses=uses * len(blocks))
        self.work = work

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x.to(self.work)).to(x.dtype)


class _FusedPooling(torch.autograd.Function):
    """Tokens ``[r, p, d]`` to logits ``[r, k]`` and means ``[r, k, d]``, one row and one block of tokens at a time.

    Letters as in the module's docstring; z is the input of the GELU, e the exponentials, a row is one step of one
    stream. Everything of width d lives in blocks that fit a cache; fresh memory costs more than the arithmetic here.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        tokens, folded, _, rows, score, bias, contract, work, keep = args
        delta = cast(Any, folded.shift or (None, None, None, None))
        shift, middle, offset, spread = delta
        sizes, eps = folded.sizes, folded.eps
        r, p, d = tokens.shape
        k, hidden = contract.shape
        s, first = len(sizes), sizes[0]
        blocks = _blocks(tokens)
        expand, narrow = (_Map(weight, blocks, r, work) for weight in (score, contract))
        # Without a gradient to come one place serves all rows.
        kept = r if keep else 1
        mean, inverse = (score.new_empty(kept, p, width).expand(r, -1, -1) for width in (1, s))
        z, e = (score.new_empty(kept, p, width).expand(r, -1, -1) for width in (hidden, k))
        logit, mass, value = score.new_empty(r, k), score.new_empty(r, k), score.new_zeros(r, k, d)
        buffer = score.new_empty(len(blocks[0]), d)
        # The first summariser's exponentials: the shift is the same for all rows, and takes one product.
        heads = None if shift is None else score.new_empty(r, first, p)
        for row in range(r):
            for block in blocks:
                cut = slice(block.start, block.stop)
                centred = _place(tokens[row, cut], rows, cut, buffer)
                torch.mean(centred, -1, keepdim=True, out=mean[row, cut])
                centred.sub_(mean[row, cut])
                scores = expand(centred)
                scale = inverse[row, cut]
                scale[:] = torch.linalg.vector_norm(centred, dim=-1, keepdim=True).square_().div_(d)
                if shift is not None:
                    scale[:, 0] += spread[cut] + centred.mul_(shift[cut]).sum(-1).mul_(2.0 / d)
                    scores[:, : hidden // s] += offset[cut]
                scale.clamp_(min=0.0).add_(eps).rsqrt_()
                scores = scores.view(-1, s, hidden // s).mul_(scale.unsqueeze(-1)).view(-1, hidden)
                torch.add(scores, bias, out=z[row, cut])
                e[row, cut] = narrow(F.gelu(z[row, cut], approximate="tanh"))
            top = e[row].amax(0)
            e[row].sub_(top).exp_()
            torch.sum(e[row], 0, out=mass[row])
            logit[row] = mass[row].log() + top
            for block in blocks:
                cut = slice(block.start, block.stop)
                shares = e[row, cut].t()
                value[row] += _times(shares, _place(tokens[row, cut], rows, cut, buffer), work)
            if heads is not None:
                heads[row] = e[row, :, :first].t()
        if heads is not None and shift is not None:
            shifted = _times(heads.flatten(0, 1), shift, work).add_(heads.flatten(0, 1) @ middle)
            value[:, :first] += shifted.view(r, first, d)
        value /= mass.unsqueeze(-1)
        ctx.save_for_backward(tokens, rows, score, bias, contract, shift, middle, mean, inverse, z, e, mass, value)
        ctx.first, ctx.work = first, work
        return logit, value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        tokens, rows, score, bias, contract, shift, middle, mean, inverse, z, e, mass, value = ctx.saved_tensors
        (r, p, d), hidden, s, first = tokens.shape, contract.shape[1], inverse.shape[-1], ctx.first
        work = ctx.work
        d_tokens = torch.empty_like(tokens) if ctx.needs_input_grad[0] else None
        d_rows = None if rows is None else torch.zeros_like(rows)
        d_score, d_bias, d_contract = torch.zeros_like(score), torch.zeros_like(bias), torch.zeros_like(contract)
        d_sums = grads[1] / mass.unsqueeze(-1)
        d_mass = (grads[0] - (grads[1] * value).sum(-1)) / mass
        d_pre_sum, slope_sum = score.new_zeros(p, hidden), score.new_zeros(p, s)
        d_shift: Any = None
        from_shift: Any = None
        if shift is not None:
            few = d_sums[:, :first].reshape(r * first, d)
            d_shift = _times(e[..., :first].permute(1, 0, 2).reshape(p, r * first), few, work)
            from_shift = (
                _times(shift, few.t(), work).view(p, r, first).add_(middle.unsqueeze(-1) * few.sum(-1).view(r, first))
            )
        blocks = _blocks(tokens)
        buffer = score.new_empty(len(blocks[0]), d)
        for row in range(r):
            into_e = _Map(d_sums[row], blocks, 1, work)
            # The table's gradient sums over rows: what comes through the scores is added up before its product.
            back = d_sums[row] if d_tokens is None else torch.cat((score, d_sums[row]))
            into_tokens = _Map(back.t(), blocks, 1, work)
            level = d_sums[row].sum(-1)[None]
            for block in blocks:
                cut = slice(block.start, block.stop)
                centred = _place(tokens[row, cut], rows, cut, buffer).sub_(mean[row, cut])
                shares, scale = e[row, cut], inverse[row, cut]
                d_e = into_e(centred).addmm_(mean[row, cut], level).add_(d_mass[row])  # p k
                if from_shift is not None:
                    d_e[:, :first] += from_shift[cut, row]
                d_scores = d_e.mul_(shares)
                d_contract += _times(d_scores.t(), F.gelu(z[row, cut], approximate="tanh"), work)
                d_z = torch.ops.aten.gelu_backward(_times(d_scores, contract, work), z[row, cut], approximate="tanh")
                d_bias += d_z.sum(0)
                # z - bias = pre / sqrt(var + eps), so that d var = -1/2 sum(d_z (z - bias)) / (var + eps)
                slope = (z[row, cut] - bias).mul_(d_z).view(-1, s, hidden // s).sum(-1)
                slope = slope.mul_(scale.square()).mul_(-1.0 / d)  # times 2 u / d
                d_pre = d_z.view(-1, s, hidden // s).mul_(scale.unsqueeze(-1)).view(-1, hidden)
                d_score += _times(d_pre.t(), centred, work)
                d_pre_sum[cut] += d_pre
                slope_sum[cut] += slope
                if d_shift is not None:
                    d_shift[cut].addcmul_(centred, slope[:, :1])
                if d_tokens is not None:
                    d_block = into_tokens(torch.cat((d_pre, shares), -1))
                    d_block.addcmul_(centred, slope.sum(-1, keepdim=True))
                    if shift is not None:
                        d_block.addcmul_(shift[cut], slope[:, :1])
                    d_tokens[row, cut] = d_block
                    if d_rows is not None:
                        d_rows[cut] += d_block
                elif d_rows is not None:
                    d_rows[cut] += into_tokens(shares)
                    d_rows[cut].addcmul_(centred, slope.sum(-1, keepdim=True))
        if d_rows is not None and d_tokens is None:
            d_rows += _times(d_pre_sum, score, work)
            if shift is not None:
                d_rows.addcmul_(shift, slope_sum[:, :1])
        if shift is not None and d_shift is not None and d_rows is not None:
            # F delta, and var(delta) = |delta - mean|^2 / d, whose factor 2 / d the slope has already
            d_pre_first, own = d_pre_sum[:, : hidden // s], score[: hidden // s]
            d_shift.addmm_(d_pre_first, own).addcmul_(shift, slope_sum[:, :1])
            d_score[: hidden // s] += _times(d_pre_first.t(), shift, work)
            d_rows -= d_shift
        return d_tokens, None, d_shift, d_rows, d_score, d_bias, d_contract, None, None


def _place(tokens: Tensor, rows: Tensor | None, cut: slice, buffer: Tensor) -> Tensor:
    """Write ``y = tokens + rows[cut]`` to the buffer (fresh memory would cost more than the sum)."""
    out = buffer[: tokens.shape[0]]
    return out.copy_(tokens) if rows is None else torch.add(tokens, rows[cut], out=out)


def _blocks(tokens: Tensor) -> list[range]:
    """Places of tokens ``[r, p, d]`` in blocks: of about 2 MB on CPU, whole rows elsewhere."""
    p, d = tokens.shape[1:]
    size = max(1, (1 << 19) // d) if tokens.device.type == "cpu" else p
    return [range(start, min(start + size, p)) for start in range(0, p, size)]
