"""Token summarizers S_k, from p tokens V to k tokens Z.

    w_i = softmax over the p tokens of MLP(LN(V))_i          mlp            equation 1
    w_i = softmax over the p tokens of q_i V^T / sqrt(d)     latent_query   equation 2
    z_i = w_i V                                              both           equation 3
    Z = MHA(queries Q, keys and values V), 8 heads           mha            the released code's latent query
    z_i = mean of the i-th group of neighbors                pooling        table 4
    Z = V                                                    none           table 2, temporal Transformer and Mixer

Source: Ryoo et al. 2023, section 2.1.1, equations 1 to 3. The LN, the hidden width of 64, the 8 heads, and the values
without norm follow the released code; the equations do not give them. Nor does the paper define pooling: here the p
tokens are cut into k contiguous groups of almost equal size.

**Partial softmax.** A softmax over two sets of tokens needs only two results of the second set, for each i: the log of
the sum of its exponentials and the weighted mean under its own softmax. The whole set then counts as one more token:

    softmax over [A, B] of s, applied to V  =  softmax over [s_A, logsumexp s_B], applied to [V_A, softmax(s_B) V_B]

:meth:`Summarizer.partial` computes these two for tokens that are known early, and :meth:`Summarizer.forward` merges
them with tokens that are known late. The numbers are the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.ttm.config import HEADS, SummarizerKind
from recollect.layers.attention import MultiHeadAttention, merge_heads, split_heads
from recollect.layers.feedforward import FeedForward, init_xavier
from recollect.layers.tap import Tap
from recollect.ops.fused_pooling import FusedWeights, PoolingWeights, fuse, prefers_fused

BOTTLENECK = 64
"""Hidden width of the scoring MLP, fixed in the released code."""

EPS = 1e-6
"""Of the norm before the scoring MLP."""


class PartialSoftmax(NamedTuple):
    """Summary of a set of tokens, to be merged with other tokens."""

    logit: Tensor
    """``[..., k]``: log of the sum of exponentials of the scores (``[..., h, k]`` for mha)."""
    value: Tensor
    """``[..., k, d]``: weighted mean of the set alone (``[..., h, k, e]`` for mha)."""
    weights: Tensor | None
    """``[..., k, p]``: the weights of that mean, only for a Tap with listeners."""


def _float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _exponentials(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute shifted exponentials of scores ``[..., k, p]``, their sums ``[..., k, 1]`` and logs of true sums."""
    scores = _float32(scores)
    top = scores.detach().amax(-1, keepdim=True)
    shares = (scores - top).exp()
    mass = shares.sum(-1, keepdim=True)
    return shares, mass, (top + mass.log()).squeeze(-1)


class Summarizer(nn.Module):
    """``[..., p, d] -> [..., k, d]`` with k = ``num_out``; subclasses score the tokens."""

    def __init__(self, dim: int, num_out: int, tap_axes: str = "b k p") -> None:
        super().__init__()
        self.dim = dim
        self.num_out = num_out
        self.tap = Tap(tap_axes)

    def scores(self, tokens: Tensor) -> Tensor:
        """Compute scores ``[..., p, d] -> [..., k, p]``, before the softmax over p."""
        raise TypeError(f"{type(self).__name__} does not score tokens")

    def values(self, tokens: Tensor) -> Tensor:
        """Return the vectors to be averaged: the tokens themselves."""
        return tokens

    def finish(self, summary: Tensor) -> Tensor:
        """Compute the summary from the averages: the averages themselves."""
        return summary

    def show(self, weights: Tensor) -> None:
        """Pass weights to the Tap; those of many steps (time is axis 1) one step after the other."""
        steps = weights.unbind(1) if weights.ndim > len(self.tap.axes.split()) else [weights]
        for step in steps:
            self.tap(step)

    def partial(self, tokens: Tensor) -> PartialSoftmax:
        """Summarize ``[..., p, d]`` for a later :meth:`forward` with other tokens."""
        values = self.values(tokens)
        shares, mass, logit = _exponentials(self.scores(tokens))
        weights = shares / mass if self.tap.has_listeners else None
        return PartialSoftmax(logit, (shares.to(values.dtype) @ values) / mass, weights)

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """Summarize ``[..., p, d]`` together with others, which :meth:`partial` has summarized."""
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
        return self.finish(mean.to(torch.promote_types(values.dtype, tokens.dtype)))  # half precision is kept

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """Return the products of one row that summarizes p tokens: their scores and ``2 k p d`` for the means.

        Args:
            num_tokens: p.
            hoisted: whether some of them come from :meth:`partial`.
        """
        return num_tokens * self.flops_per_score() + 2 * self.num_out * num_tokens * self.dim

    def flops_per_score(self) -> int:
        """Return the products that score one token."""
        raise TypeError(f"{type(self).__name__} does not score tokens")


class MLPSummarizer(Summarizer):
    """Equation 1: importance weights from a small net (``2 * 64 (d + k)`` per token)."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.net = FeedForward(dim, BOTTLENECK, activation="gelu_tanh", out_dim=num_out)
        init_xavier(self)

    def scores(self, tokens: Tensor) -> Tensor:
        """Score every token for every summary, by a small net of the normalised token."""
        return self.net(self.norm(tokens)).mT

    def pooling_weights(self, rows: Tensor | None) -> PoolingWeights:
        """Return norm, MLP and position embeddings ``[p, d]`` of the tokens as the weights of the fused kernel."""
        expand, contract = self.net.expand, self.net.contract
        return PoolingWeights(
            self.norm.weight, self.norm.bias, expand.weight, expand.bias, contract.weight, contract.bias, rows, EPS
        )

    def flops_per_score(self) -> int:
        """Count the operations of a token's scores: ``2 * 64 (d + k)``."""
        return 2 * BOTTLENECK * (self.dim + self.num_out)


class QuerySummarizer(Summarizer):
    """Equation 2: importance weights from learned queries, without projections (``2 k d`` per token)."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out)
        self.queries = nn.Parameter(torch.randn(num_out, dim) * 0.02)

    def scores(self, tokens: Tensor) -> Tensor:
        """Compute Q V^T / sqrt(d)."""
        return (self.queries * self.dim**-0.5) @ tokens.mT

    def flops_per_score(self) -> int:
        """Count the operations of a token's scores: ``2 k d``."""
        return 2 * self.num_out * self.dim


class AttentionSummarizer(Summarizer):
    """Learned queries with multi-head attention to the tokens; biases, no norm, no residual."""

    def __init__(self, dim: int, num_out: int) -> None:
        super().__init__(dim, num_out, "b h k p")
        self.queries = nn.Parameter(torch.randn(num_out, dim) * 0.02)
        self.attention = MultiHeadAttention(dim, HEADS, bias=True)
        init_xavier(self)

    def scores(self, tokens: Tensor) -> Tensor:
        """Compute scores of every head: ``[..., h, k, p]``."""
        queries = split_heads(self.attention.query(self.queries), HEADS) * (self.dim // HEADS) ** -0.5
        return queries @ split_heads(self.attention.key(tokens), HEADS).mT

    def values(self, tokens: Tensor) -> Tensor:
        """Compute values of every head: ``[..., h, p, e]``."""
        return split_heads(self.attention.value(tokens), HEADS)

    def finish(self, summary: Tensor) -> Tensor:
        """Join the heads and apply the output map."""
        return self.attention.out(merge_heads(summary))

    def flops_per_score(self) -> int:
        """Count the operations of a token's key, value and scores: ``4 d^2 + 2 k d``."""
        return 4 * self.dim * self.dim + 2 * self.num_out * self.dim

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """Count the operations of a summary: those of its tokens, and of the linear maps of queries and result."""
        maps = 3 if hoisted else 2  # of the queries, which the partial softmax needs too, and of the result
        return super().flops(num_tokens) + 2 * maps * self.num_out * self.dim * self.dim


class PoolingSummarizer(Summarizer):
    """Means over k contiguous groups of the p tokens, without parameters.

    ``order`` has the place of each token in the pooled row, a permutation; tokens of :meth:`partial` are the last ones.
    """

    def __init__(self, dim: int, num_out: int, order: Sequence[int]) -> None:
        super().__init__(dim, num_out)
        place = torch.as_tensor(order)
        group = (place * num_out).div(len(order), rounding_mode="floor")
        members = (group == torch.arange(num_out)[:, None]).to(torch.get_default_dtype())
        # Two buffers, because both are exact in every dtype and their quotient is not.
        self.members: Tensor
        self.sizes: Tensor
        self.register_buffer("members", members, persistent=False)  # k p, ones and zeros
        self.register_buffer("sizes", members.sum(1, keepdim=True), persistent=False)  # k 1

    def partial(self, tokens: Tensor) -> PartialSoftmax:
        """Return the tokens' share of the means in ``value``; there are no weights."""
        value = (self.members[:, -tokens.shape[-2] :] @ tokens) / self.sizes
        return PartialSoftmax(torch.zeros_like(value[..., 0]), value, None)

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """Compute means over the groups."""
        if self.tap.has_listeners:
            self.show((self.members / self.sizes).expand(*tokens.shape[:-2], -1, -1))
        means = (self.members[:, : tokens.shape[-2]] @ tokens) / self.sizes
        return means if others is None else means + others.value

    def flops_per_score(self) -> int:
        """Return 0: there are no scores."""
        return 0


class NoSummarizer(Summarizer):
    """All tokens as they are."""

    def forward(self, tokens: Tensor, others: PartialSoftmax | None = None) -> Tensor:
        """Return the tokens; there are no weights for a Tap."""
        return tokens

    def flops_per_score(self) -> int:
        """Return 0: there are no scores."""
        return 0

    def flops(self, num_tokens: int, hoisted: bool = False) -> int:
        """Return 0: there are no products."""
        return 0


def make_summarizer(kind: SummarizerKind, dim: int, num_out: int, order: Sequence[int]) -> Summarizer:
    """Make the summarizer that a config names; ``order`` is for :class:`PoolingSummarizer`."""
    if kind == "mlp":
        return MLPSummarizer(dim, num_out)
    if kind == "latent_query":
        return QuerySummarizer(dim, num_out)
    if kind == "mha":
        return AttentionSummarizer(dim, num_out)
    if kind == "none":
        return NoSummarizer(dim, num_out)
    return PoolingSummarizer(dim, num_out, order)


def fuse_summarizers(pairs: Sequence[tuple[Summarizer, Tensor | None]], tokens: Tensor) -> FusedWeights | None:
    """Fuse one or two mlp summarizers of the same tokens into one kernel; None where that is impossible or slower.

    Each summarizer has its position rows ``[p, d]`` or None; ``tokens [..., p, d]`` are like those of later calls.
    """
    mlps = [(one, rows) for one, rows in pairs if isinstance(one, MLPSummarizer)]
    if len(mlps) < len(pairs) or not prefers_fused(tokens):
        return None
    return fuse([one.pooling_weights(rows) for one, rows in mlps])


def unbind_steps(partial: PartialSoftmax | None, steps: int) -> list[PartialSoftmax | None]:
    """Split a partial softmax with time axis 1 into one per step; None into as many Nones."""
    if partial is None:
        return [None] * steps
    weights = [None] * steps if partial.weights is None else partial.weights.unbind(1)
    return [
        PartialSoftmax(*parts) for parts in zip(partial.logit.unbind(1), partial.value.unbind(1), weights, strict=True)
    ]
