"""Token summarisers S_k: p tokens V in, k tokens Z out.

    w_i = softmax over the p tokens of MLP(LN(V))_i          mlp            equation 1
    w_i = softmax over the p tokens of q_i V^T / sqrt(d)     latent_query   equation 2
    z_i = w_i V                                              both           equation 3
    Z = MHA(queries Q, keys and values V), 8 heads           mha            the released code's latent query
    z_i = mean of the i-th group of neighbours               pooling        table 4
    Z = V                                                    none           table 2, temporal Transformer and Mixer

Source: Ryoo et al. 2023, section 2.1.1, equations 1 to 3. The LN, the hidden width of 64, the 8 heads, and that the
values are not normalised follow the released code; the equations are silent about them. Pooling is described in one
word there: here the p tokens are cut into k contiguous groups of almost equal size.

**Partial softmax.** A softmax over two sets of tokens needs only two things of the second set, for each i: the log of
the sum of its exponentials and the weighted mean under its own softmax. The whole set then counts as one more token:

    softmax over [A, B] of s, applied to V  =  softmax over [s_A, logsumexp s_B], applied to [V_A, softmax(s_B) V_B]

:meth:`Summarizer.partial` computes these two for tokens that are known early, and :meth:`Summarizer.forward` takes
them beside tokens that are known late. The numbers are the same.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from recollect.layers.attention import MultiHeadAttention, merge_heads, split_heads
from recollect.layers.feedforward import FeedForward, init_xavier
from recollect.layers.tap import Tap
from recollect.ops.fused_pooling import FusedWeights, PoolingWeights, fuse, prefers_fused

SummarizerKind = Literal["mlp", "latent_query", "mha", "pooling", "none"]

BOTTLENECK = 64
"""Hidden width of the scoring MLP, fixed in the released code."""

HEADS = 8
"""Heads of the ``mha`` summariser, fixed in the released code."""

EPS = 1e-6
"""Of the norm before the scoring MLP."""


class PartialSoftmax(NamedTuple):
    """What a summariser needs to know of a set of tokens to merge it with others."""

    logit: Tensor
    """``[..., k]``: log of the sum of exponentials of the scores (``[..., h, k]`` for mha)."""
    value: Tensor
    """``[..., k, d]``: weighted mean of the set alone (``[..., h, k, e]`` for mha)."""
    weights: Tensor | None
    """``[..., k, p]``: the weights of that mean; kept only for a listening tap."""


def _float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _exponentials(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores ``[..., k, p]`` to exponentials, their sums ``[..., k, 1]`` and the logs of the true sums ``[..., k]``."""
    scores = _float32(scores)
    top = scores.detach().amax(-1, keepdim=True)
    shares = (scores - top).exp()
    mass = shares.sum(-1, keepdim=True)
    return shares, mass, (top + mass.log()).squeeze(-1)


class Summarizer(nn.Module):
    """``[..., p, d] -> [..., k, d]``. Subclasses say how tokens are scored.

    Args:
        dim: width d of a token.
        num_out: k.
        tap_axes: the axes of the weights.
    """

    def __init__(self, dim: int, num_out: int, tap_axes: str = "b k p") -> None:
        super().__init__()
        self.dim = dim
        self.num_out = num_out
        self.tap = Tap(tap_axes)

    def scores(self, tokens: Tensor) -> Tensor:
        """``[..., p, d] -> [..., k, p]``, before the softmax over p."""
        raise TypeError(f"{type(self).__name__} does not score tokens")

    def values(self, tokens: Tensor) -> Tensor:
        """What is averaged: the tokens themselves."""
        return tokens

    def finish(self, summary: Tensor) -> Tensor:
        """What is made of the averages: nothing more."""
        return summary

    def show(self, weights: Tensor) -> None:
        """Let the tap hear weights; those of many steps (time is axis 1) one step after the other."""
        steps = weights.unbind(1) if weights.ndim > len(self.tap.axes.split()) else [weights]
        for step in steps:
            self.tap(step)

    def partial(self, tokens: Tensor) -> PartialSoftmax:
        """Summarise ``[..., p, d]`` for a later :meth:`forward` with other tokens."""
        values = self.values(tokens)
        shares, mass, logit = _exponentials(self.scores(tokens))
        return PartialSoftmax(
            logit, (shares.to(values.dtype) @ values) / mass, shares / mass if self.tap.has_listeners else None
        )

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """Summarise ``[..., p, d]`` with others, known by :meth:`partial`; the tap hears all weights in order."""
        scores, values = _float32(self.scores(tokens)), self.values(tokens)
        if others is None:
            weights = scores.softmax(-1)
            if self.tap.has_listeners:
                self.show(weights)
            return self.finish(weights.to(values.dtype) @ values)
        weights = torch.cat((scores, others.logit.unsqueeze(-1)), -1).softmax(-1)
        own, share = weights.split([scores.shape[-1], 1], -1)
        if self.tap.has_listeners and others.weights is not None:
            self.show(torch.cat((own, share * others.weights), -1))
        mean = own.to(values.dtype) @ values + share * others.value
        return self.finish(
            mean.to(torch.promote_types(values.dtype, tokens.dtype))
        )  # a core in half precision stays so

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """Matrix products of one row that summarises p tokens: their scores and ``2 k p d`` for the means.

        Args:
            num_tokens: p.
            hoisted: whether some of them come by :meth:`partial`. That changes where products are made, not how many.
        """
        return num_tokens * self.flops_per_score() + 2 * self.num_out * num_tokens * self.dim

    def flops_per_score(self) -> int:
        """Products that score one token."""
        raise TypeError(f"{type(self).__name__} does not score tokens")


class MLPSummarizer(Summarizer):
    """Equation 1: importance weights from a small net (``2 * 64 (d + k)`` per token)."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.net = FeedForward(dim, BOTTLENECK, activation="gelu_tanh", out_dim=num_out)
        init_xavier(self)

    def scores(self, tokens: Tensor) -> Tensor:
        """MLP(LN(V))."""
        return self.net(self.norm(tokens)).mT

    def pooling_weights(self, rows: Tensor | None) -> PoolingWeights:
        """The weights as the fused kernel takes them, with position rows ``[p, d]`` that it adds to the tokens."""
        expand, contract = self.net.expand, self.net.contract
        return PoolingWeights(
            self.norm.weight, self.norm.bias, expand.weight, expand.bias, contract.weight, contract.bias, rows, EPS
        )

    def flops_per_score(self) -> int:
        """``2 * 64 (d + k)``."""
        return 2 * BOTTLENECK * (self.dim + self.num_out)


class QuerySummarizer(Summarizer):
    """Equation 2: importance weights from learned queries, without projections (``2 k d`` per token)."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out)
        self.queries = nn.Parameter(torch.randn(num_out, dim) * 0.02)

    def scores(self, tokens: Tensor) -> Tensor:
        """Q V^T / sqrt(d)."""
        return (self.queries * self.dim**-0.5) @ tokens.mT

    def flops_per_score(self) -> int:
        """``2 k d``."""
        return 2 * self.num_out * self.dim


class AttentionSummarizer(Summarizer):
    """Learned queries that read the tokens by multi-head attention with biases, without norm and residual."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out, "b h k p")
        self.queries = nn.Parameter(torch.randn(num_out, dim) * 0.02)
        self.attention = MultiHeadAttention(dim, HEADS, bias=True)
        init_xavier(self)

    def scores(self, tokens: Tensor) -> Tensor:
        """Of every head: ``[..., h, k, p]``."""
        queries = split_heads(self.attention.query(self.queries), HEADS) * (self.dim // HEADS) ** -0.5
        return queries @ split_heads(self.attention.key(tokens), HEADS).mT

    def values(self, tokens: Tensor) -> Tensor:
        """Of every head: ``[..., h, p, e]``."""
        return split_heads(self.attention.value(tokens), HEADS)

    def finish(self, summary: Tensor) -> Tensor:
        """The heads side by side, and the output map."""
        return self.attention.out(merge_heads(summary))

    def flops_per_score(self) -> int:
        """Key, value and scores: ``4 d^2 + 2 k d``."""
        return 4 * self.dim * self.dim + 2 * self.num_out * self.dim

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """The tokens, and the maps of queries and result."""
        maps = 3 if hoisted else 2  # of the queries, which the partial softmax needs too, and of the result
        return super().flops(num_tokens) + 2 * maps * self.num_out * self.dim * self.dim


class PoolingSummarizer(Summarizer):
    """Means over k contiguous groups of the p tokens: nothing is learned, not even the choice.

    Args:
        dim: width of a token.
        num_out: k, at most p.
        order: where the tokens that are given stand in the pooled row of p tokens, as a permutation; those that
            come by :meth:`partial` are the last ones given.
    """

    def __init__(self, dim: int, num_out: int, order: Sequence[int]) -> None:
        super().__init__(dim, num_out)
        place = torch.as_tensor(order)
        group = (place * num_out).div(len(order), rounding_mode="floor")
        members = (group == torch.arange(num_out)[:, None]).to(torch.get_default_dtype())
        # Kept apart, because both are exact in every dtype and their quotient is not.
        self.members: Tensor
        self.sizes: Tensor
        self.register_buffer("members", members, persistent=False)  # k p, ones and zeros
        self.register_buffer("sizes", members.sum(1, keepdim=True), persistent=False)  # k 1

    def partial(self, tokens: Tensor) -> PartialSoftmax:
        """The tokens' share of the means, in ``value``; there is nothing to weigh."""
        value = (self.members[:, -tokens.shape[-2] :] @ tokens) / self.sizes
        return PartialSoftmax(torch.zeros_like(value[..., 0]), value, None)

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """Means over the groups."""
        if self.tap.has_listeners:
            self.show((self.members / self.sizes).expand(*tokens.shape[:-2], -1, -1))
        means = (self.members[:, : tokens.shape[-2]] @ tokens) / self.sizes
        return means if others is None else means + others.value

    def flops_per_score(self) -> int:
        """No scores."""
        return 0


class NoSummarizer(Summarizer):
    """All tokens as they are."""

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """The tokens; nothing is weighed, so that a tap hears nothing."""
        return tokens

    def flops_per_score(self) -> int:
        """No scores."""
        return 0

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """No products."""
        return 0


def make_summarizer(kind: SummarizerKind, dim: int, num_out: int, order: Sequence[int]) -> Summarizer:
    """The summariser named in a config; ``order`` is for pooling, see there."""
    if kind == "mlp":
        return MLPSummarizer(dim, num_out)
    if kind == "latent_query":
        return QuerySummarizer(dim, num_out)
    if kind == "mha":
        return AttentionSummarizer(dim, num_out)
    if kind == "none":
        return NoSummarizer(dim, num_out)
    return PoolingSummarizer(dim, num_out, order)


def fuse_summarizers(
    summarizers: Sequence[Summarizer], rows: Sequence[Tensor | None], tokens: Tensor
) -> FusedWeights | None:
    """One or two summarisers of the same tokens ``[..., p, d]`` as one kernel; None where that is impossible or slower.

    Args:
        summarizers: what is fused, if all are of the kind mlp.
        rows: position rows ``[p, d]`` of each, or None for each.
        tokens: what the kernel will be used on, or tokens of that size.
    """
    mlps = [one for one in summarizers if isinstance(one, MLPSummarizer)]
    if len(mlps) < len(summarizers) or not prefers_fused(tokens):
        return None
    return fuse([one.pooling_weights(own) for one, own in zip(mlps, rows, strict=True)])


def unbind_steps(partial: PartialSoftmax | None, steps: int) -> list[PartialSoftmax | None]:
    """A partial softmax with a time axis 1 to one per step; None to as many of them."""
    if partial is None:
        return [None] * steps
    weights = [None] * steps if partial.weights is None else partial.weights.unbind(1)
    return [
        PartialSoftmax(*parts) for parts in zip(partial.logit.unbind(1), partial.value.unbind(1), weights, strict=True)
    ]


def check_summarizer(kind: str, dim: int, num_out: int, num_in: int) -> None:
    """Raise ``ValueError``, in a config's words, unless such a summariser can be made."""
    if kind not in get_args(SummarizerKind):
        raise ValueError(f"summarizer={kind!r}: choose one of {', '.join(get_args(SummarizerKind))}")
    if kind == "mha" and dim % HEADS:
        raise ValueError(f"dim={dim!r}: the summarizer 'mha' has {HEADS} heads: give a multiple of {HEADS}")
    if kind == "pooling" and num_out > num_in:
        raise ValueError(f"num_reads={num_out!r}: pooling cannot make more tokens than it sees: give at most {num_in}")
