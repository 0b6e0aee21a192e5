"""Hierarchical attention over chunks: choose the k most relevant chunks, then attend to the steps inside each.

For a query x and chunks i = 1 ... n, each with one key S_i and c steps C_i:

    s_i = (W_q x) . (W_k S_i) / sqrt(f)                       one head over all f features
    R   = softmax over the k largest s_i, 0 elsewhere         relevance="topk_softmax"
    R   = softmax over all s_i, 0 outside the k largest       relevance="full_softmax"
    y   = sum_i R_i MHA(x, C_i + P)                           P: sinusoid of a step's age in its chunk, newest 0

With ``relevance_heads`` (ours) each head has its own s and R, over its e = f / h features and divided by sqrt(e), and
chooses its own k chunks; the output bias is scaled by the mean of the heads' sums of R.

MHA has h heads, one softmax per chunk and biases; its output projection comes before the sum over chunks. No
gradient enters the keys and the contents, unless ``chunk_gradients="call"``. The result for a query without a visible
chunk is exactly 0.

Paper: Lampinen et al. 2021, section 2. Released code: deepmind-research, hierarchical_transformer_memory,
HierarchicalMemoryAttention.

Differs:

- Where paper and code differ, the code is the default: softmax over the chosen k only, learned W_k, the scale, and P.
  ``ChunkAttentionVariant`` has the paper's forms; ``full_softmax`` gives the same result times the sum of the chosen R.
- In the code a query without a visible chunk reads the first k with equal weights.
- The code's key bias of the MHA is omitted: it shifts all scores of a chunk equally, which a softmax ignores.
- Fewer chunks than k are allowed; then all are chosen.

The code projects the steps of k chunks for every query. Everything between the softmaxes is linear, so there are three
forms with equal results, chosen by shape (with d the width of the contents):

    project   keys and values of all n c steps once, dense scores, softmax per chunk, times R, one sum
    absorb    (W_k^T W_q' x) meets the raw contents, W_v is applied after the sum: for few queries (t h < d + t)
    gather    absorb on the k chosen chunks only: when a copy of those is small beside the memory

:class:`LocalAttention` is the other attention of a layer, to a sliding window.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.hcam.config import ChunkAttentionVariant, Relevance
from recollect.layers.positions import sinusoid
from recollect.layers.tap import Tap
from recollect.layers.window_attention import sliding_attention, softmax_visible
from recollect.ops.linear import Linear, linear
from recollect.ops.short_softmax import softmax
from recollect.ops.torch_internals import learns_on_cpu
from recollect.ops.weighted_softmax import prefers_chunks_last, weighted_softmax

Form = Literal["project", "absorb", "gather"]

TRUNCATION = 0.87962566103423978
"""Standard deviation of a standard normal distribution that is truncated at two."""
CALL_GATHER_SHARE = 4
"""A call copies the chosen chunks of all its steps if they are at most this fraction (1 / 4) of the memory."""


class HierarchicalAttention(nn.Module):
    """Both levels of attention over chunks that the caller gives.

    Args:
        dim: width of queries.
        num_heads: h, of the attention inside chunks.
        top_k: chunks that a query reads.
        memory_dim: width d of keys and contents; ``dim`` when None.
        feature_dim: f, width of both levels and of the output; ``dim`` when None.
        reading: where paper and released code differ; as the code when None.

    Raises:
        ValueError: heads that do not divide the features; widths that must be equal without a key projection, or for a
            tied or copying start; ``top_k`` below 1.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        top_k: int,
        *,
        memory_dim: int | None = None,
        feature_dim: int | None = None,
        reading: ChunkAttentionVariant | None = None,
    ) -> None:
        super().__init__()
        features = dim if feature_dim is None else feature_dim
        width = dim if memory_dim is None else memory_dim
        reading = ChunkAttentionVariant() if reading is None else reading
        if features % num_heads:
            raise ValueError(f"num_heads={num_heads!r}: must divide the {features} features")
        if not reading.key_projection and features != width:
            raise ValueError(
                f"key_projection=False: {features} features cannot meet keys of width {width}: give equal widths"
            )
        if reading.tied_start and dim != width:
            raise ValueError(f"tied_start=True: queries of width {dim} and keys of width {width}: give equal widths")
        if reading.copying_start and features != width:
            raise ValueError(f"copying_start=True: {features} features, contents of width {width}: give equal widths")
        if top_k < 1:
            raise ValueError(f"top_k={top_k!r}: give at least 1")
        self.num_heads, self.top_k, self.reading = num_heads, top_k, reading
        self.chunk_query = Linear(dim, features, bias=False)
        self.chunk_key = Linear(width, features, bias=False) if reading.key_projection else None
        self.query = Linear(dim, features)
        self.key = Linear(width, features, bias=False)
        self.value = Linear(width, features)
        self.out = Linear(features, features)
        by_chunk = "b h t n" if reading.relevance_heads else "b t n"
        self.choice_tap = Tap(by_chunk)
        """Records the softmax over all visible chunks, before k are chosen; in calls only."""
        self.relevance_tap = Tap(by_chunk)
        self.tap = Tap("b h t n c")
        for child in self.children():
            if isinstance(child, Linear):
                fan_in_normal(child, 2.0 * reading.initial_scale**2)
        if reading.tied_start:
            with torch.no_grad():
                self.key.weight.copy_(self.query.weight)
                if self.chunk_key is not None:
                    self.chunk_key.weight.copy_(self.chunk_query.weight)
        if reading.copying_start:
            start_copying(self.value.weight, self.out.weight)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        contents: Tensor,
        mask: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        form: Form | None = None,
    ) -> Tensor:
        """Attend to the most relevant chunks, and to the steps in them.

        Args:
            queries: ``[b, t, dim]``, normed by the caller.
            keys: ``[b, n, d]``.
            contents: ``[b, n, c, d]``, oldest step first; finite everywhere.
            mask: bool ``[b, t, n]``, True for visible chunks; None for all.
            valid: bool ``[b, n, c]``, which steps of a chunk exist, at least one in each; None: all.
            form: of the computation; chosen by shape when None.

        Returns:
            ``[b, t, f]``.
        """
        n = keys.shape[1]
        part = self._readable(mask, n)
        keys, contents = self.reading.stored(keys[:, part]), self.reading.stored(contents[:, part])
        mask = None if mask is None else mask[..., part]
        valid = None if valid is None else valid[:, None, None, part]  # b 1 1 n c
        index, weights = self.choose(queries, keys, mask, around=(part.start, n - part.stop))
        shown = self.tap.has_listeners or self.relevance_tap.has_listeners
        if form is None:
            form = self.form(queries.shape[1], contents.shape)
        if form == "gather" and (shown or index is None or self.reading.relevance_heads):
            form = "absorb"  # with one choice per head, gather would copy h times as much
        heads = self.query(queries).unflatten(-1, (self.num_heads, -1))
        heads = heads * heads.shape[-1] ** -0.5
        if form == "gather" and index is not None:
            mixed = self._gather(heads, contents, index, weights, valid)
        else:
            dense = weights if index is None else scatter_topk(index, weights, keys.shape[1])
            if self.relevance_tap.has_listeners:
                self.relevance_tap(dense)
            read = self._project if form == "project" else self._absorb
            mixed = read(heads, contents, self._by_head(dense), valid)
        return self._out(mixed, self._by_head(weights.sum(-1)))

    def _by_head(self, relevance: Tensor) -> Tensor:
        """Add a head axis to relevances that all heads share: ``[b, 1 or h, t, ...]``."""
        return relevance if self.reading.relevance_heads else relevance.unsqueeze(1)

    def _out(self, mixed: Tensor, total: Tensor) -> Tensor:
        """Add biases to the heads' sums ``[b, t, f]`` and project; ``total`` ``[b, 1 or h, t]`` is the sum of R.

        sum_i R_i (W_o (v_i + b_v) + b_o) = W_o (sum_i R_i v_i + (sum_i R_i) b_v) + (sum_i R_i) b_o
        """
        total = total.transpose(1, 2).unsqueeze(-1).to(mixed.dtype)  # b t (1 or h) 1
        read, bias = (of.unflatten(-1, (self.num_heads, -1)) for of in (mixed, self.value.bias.to(mixed.dtype)))
        out = linear(torch.addcmul(read, total, bias).flatten(2), self.out.weight)
        return torch.addcmul(out, total.mean(2).to(out.dtype), self.out.bias.to(out.dtype))

    def form(self, steps: int, memory: torch.Size) -> Form:
        """Return the cheapest form for ``steps`` queries and contents of shape ``memory``."""
        _, n, _, d = memory
        if CALL_GATHER_SHARE * steps * self.top_k <= n:
            return "gather"
        return "absorb" if steps * (self.num_heads - 1) < d else "project"

    def _readable(self, mask: Tensor | None, n: int) -> slice:
        """Return the places of all visible chunks in a training call on a CPU; elsewhere all places.

        Memories have room for the longest episode, and are mostly empty. Taps inside chunks record all places.
        """
        shown = self.tap.has_listeners or self.relevance_tap.has_listeners
        if mask is None or shown or not learns_on_cpu(mask):
            return slice(0, n)
        places = mask.flatten(0, -2).any(0).nonzero()
        return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)

    def choose(
        self, queries: Tensor, keys: Tensor, mask: Tensor | None, around: tuple[int, int] = (0, 0)
    ) -> tuple[Tensor | None, Tensor]:
        """Choose the chunks that each query reads, and their relevances R.

        Args:
            queries: ``[b, t, dim]``.
            keys: ``[b, n, d]``.
            mask: bool ``[b, t, n]``, or None.
            around: numbers of chunks before and after these n, which the Tap records as zeros.

        Returns:
            Places, long ``[b, t, k]``, and R there, float32 ``[b, t, k]``; None and R of all, ``[b, t, n]``, where all
            n are read. With ``relevance_heads`` for every head, ``[b, h, t, k]``.
        """
        keys = keys if self.chunk_key is None else self.chunk_key(keys)
        features = self.chunk_query(queries)
        if self.reading.relevance_heads:
            features, keys = (of.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for of in (features, keys))
            mask = None if mask is None else mask.unsqueeze(1)
        scores = (features * features.shape[-1] ** -0.5) @ keys.to(features.dtype).mT
        index, weights = choose_chunks(scores, mask, self.top_k, self.reading.relevance)
        if self.choice_tap.has_listeners:
            among = choose_chunks(scores, mask, scores.shape[-1], "full_softmax")[1]
            self.choice_tap(F.pad(among, around) if any(around) else among)
        return index, weights

    def positions(self, chunk_len: int) -> Tensor | None:
        """Return P ``[c, d]``, or None where the variant has none."""
        if not self.reading.chunk_positions:
            return None
        weight = self.key.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        ages = torch.arange(chunk_len - 1, -1, -1, device=weight.device, dtype=dtype)
        return sinusoid(ages, weight.shape[1], "concatenated").to(weight.dtype)

    def _project(self, heads: Tensor, contents: Tensor, relevance: Tensor, valid: Tensor | None) -> Tensor:
        """Read contents ``[b, n, c, d]`` by heads ``[b, t, h, e]``, relevance ``[b, 1 or h, t, n]``: ``[b, t, f]``."""
        n, c = contents.shape[1:3]
        positions = self.positions(c)
        rows = contents if positions is None else contents + positions
        chunks_last = prefers_chunks_last(contents) and not self.tap.has_listeners
        rows = rows.transpose(1, 2) if chunks_last else rows
        # Two products: the gradients of one for both would first have to be joined, which copies them.
        flat, layers = rows.flatten(1, 2), (self.key, self.value)
        keys, values = (linear(flat, to.weight).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for to in layers)
        scores = heads.transpose(1, 2) @ keys.mT  # b h t n*c
        if chunks_last:
            scores = scores.unflatten(-1, (c, n))
            weights = weighted_softmax(_hide(scores, None if valid is None else valid.mT), relevance)
        else:
            scores = scores.unflatten(-1, (n, c))
            weights = self._weights(scores, relevance, valid)
        return (weights.flatten(-2).to(values.dtype) @ values).transpose(1, 2).flatten(2)

    def _absorb(self, heads: Tensor, contents: Tensor, relevance: Tensor, valid: Tensor | None) -> Tensor:
        """Return the same as :meth:`_project`."""
        n, c = contents.shape[1:3]
        heads = self._absorbed(heads).transpose(1, 2)  # b h t d
        positions = self.positions(c)
        # A copy of the memory with positions, where that is no more than an addition to every score.
        added = positions if positions is not None and heads.shape[1:3].numel() >= heads.shape[-1] // 2 else None
        rows = (contents if added is None else contents + added).flatten(1, 2).to(heads.dtype)
        scores = (heads.flatten(1, 2) @ rows.mT).unflatten(1, heads.shape[1:3]).unflatten(-1, (n, c))  # b h t n c
        apart = positions.to(heads.dtype) if positions is not None and added is None else None
        if apart is not None:
            scores = scores + (heads @ apart.mT).unsqueeze(-2)
        mixed = self._weights(scores, relevance, valid).to(heads.dtype)
        read = (mixed.flatten(-2).flatten(1, 2) @ rows).unflatten(1, heads.shape[1:3])
        if apart is not None:
            read = read + mixed.sum(-2) @ apart
        return self._values(read.transpose(1, 2))

    def _gather(
        self, heads: Tensor, contents: Tensor, index: Tensor, relevance: Tensor, valid: Tensor | None
    ) -> Tensor:
        """Attend to the steps of k chosen chunks ``index [b, t, k]``, weighted by their relevance ``[b, t, k]``."""
        heads = self._absorbed(heads)  # b t h d
        batch = torch.arange(contents.shape[0], device=contents.device)[:, None, None]
        chosen = contents[batch, index]  # b t k c d
        positions = self.positions(contents.shape[2])
        rows = (chosen if positions is None else chosen + positions).to(heads.dtype)
        scores = heads.unsqueeze(2) @ rows.mT  # b t k h c
        weights = softmax(_hide(scores, None if valid is None else valid[:, 0, 0][batch, index].unsqueeze(-2)))
        mixed = (weights * relevance[..., None, None]).to(heads.dtype)
        read = mixed.transpose(2, 3).flatten(-2) @ rows.flatten(2, 3)
        return self._values(read)

    def _weights(self, scores: Tensor, relevance: Tensor, valid: Tensor | None) -> Tensor:
        """Return the softmax of scores ``[b, h, t, n, c]`` inside every chunk, times the relevance of the chunk."""
        scores = _hide(scores, valid)
        if self.tap.has_listeners:
            return self.tap(softmax(scores)) * relevance.unsqueeze(-1)
        return weighted_softmax(scores, relevance, -1)

    def _absorbed(self, heads: Tensor) -> Tensor:
        """Multiply heads by W_k^T, to compare them with raw contents: ``[b, t, h, e] -> [b, t, h, d]``."""
        return torch.einsum("bthe,hed->bthd", heads, self.key.weight.unflatten(0, (self.num_heads, -1)))

    def _values(self, read: Tensor) -> Tensor:
        """Apply W_v to sums of raw contents, ``[b, t, h, d] -> [b, t, f]``."""
        weight = self.value.weight.unflatten(0, (self.num_heads, -1))
        return torch.einsum("bthd,hed->bthe", read, weight).flatten(2)


def choose_chunks(
    scores: Tensor, mask: Tensor | None, top_k: int, relevance: Relevance
) -> tuple[Tensor | None, Tensor]:
    """Return places and relevances of the chunks with the highest scores ``[..., n]``.

    ``mask`` and the result are as in :meth:`HierarchicalAttention.choose`; relevances of a query without a visible
    chunk are exactly 0.
    """
    n = scores.shape[-1]
    k = min(top_k, n)
    scores, index = _hide(scores, mask), None
    if relevance == "topk_softmax" and k < n:
        scores, index = scores.topk(k, -1)
        mask = None if mask is None else mask.expand(*index.shape[:-1], n).gather(-1, index)
    weights = softmax(scores)
    weights = weights if mask is None else weights.masked_fill(~mask, 0.0)
    if relevance == "full_softmax" and k < n:
        weights, index = weights.topk(k, -1)
    return index, weights


def _hide(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Return scores in float32 at least, with the lowest finite number where not ``seen``.

    A softmax makes these exactly 0 beside any seen score; gradients stay finite even where none is seen.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores if seen is None else scores.masked_fill(~seen, torch.finfo(scores.dtype).min)


def scatter_topk(index: Tensor, weights: Tensor, n: int) -> Tensor:
    """Scatter weights ``[..., k]`` to their places in zeros ``[..., n]``."""
    return weights.new_zeros(*weights.shape[:-1], n).scatter(-1, index, weights)


def fan_in_normal(layer: nn.Linear, scale: float = 2.0) -> None:
    """Draw weights from a truncated normal of variance ``scale / fan_in``, as the released code does; zero biases."""
    std = (scale / layer.in_features) ** 0.5 / TRUNCATION
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def start_copying(values: Tensor, outputs: Tensor) -> None:
    """Draw values ``[d, d]`` as a random orthogonal matrix, and set outputs to its inverse."""
    outputs.copy_(nn.init.orthogonal_(values).T)


class FoldedAttention(NamedTuple):
    """Weights of a :class:`LocalAttention` that act on standardized inputs."""

    weights: tuple[Tensor, Tensor, Tensor]
    """``[dim, dim]`` each, of (q + u) / sqrt(e), k and v."""
    biases: tuple[Tensor, Tensor, Tensor]
    """``[dim]`` each."""
    delta: Tensor
    """(v - u) / sqrt(e), ``[h, e]``."""
    offset_keys: Tensor
    """``[h, w + 1, e]``."""


class LocalAttention(nn.Module):
    """Causal attention over a sliding window, with the relative positions of Transformer-XL.

        a_ts = softmax_s( ((q_t + u) k_s + (q_t + v) W_r phi(t - s)) / sqrt(e) )        s = t-w ... t

    Source: Dai et al., Transformer-XL (2019), section 3.3.
    """

    def __init__(self, dim: int, num_heads: int, *, copying_start: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = Linear(dim, 3 * dim, bias=False)
        self.relative = Linear(dim, dim, bias=False)
        self.u = nn.Parameter(torch.randn(dim) * 0.02)
        self.v = nn.Parameter(torch.randn(dim) * 0.02)
        self.out = Linear(dim, dim, bias=False)
        self.tap = Tap("b h t s")
        if copying_start:
            start_copying(self.qkv.weight[2 * dim :], self.out.weight)

    def folded(self, features: Tensor) -> FoldedAttention:
        """Fold the norm, u and the scale into weights for standardized inputs.

        Args:
            features: of the offsets, ``[w + 1, dim]``.
        """
        heads = self.num_heads
        scale = (self.qkv.in_features // heads) ** -0.5
        query, key, value = (self.qkv.weight * self.norm.weight).chunk(3)
        # A sum keeps its precision under autocast.
        of_query, of_key, of_value = (self.qkv.weight * self.norm.bias).sum(-1).chunk(3)
        return FoldedAttention(
            weights=(query * scale, key, value),
            biases=((of_query + self.u) * scale, of_key, of_value),
            delta=((self.v - self.u) * scale).unflatten(0, (heads, -1)),
            offset_keys=linear(features, self.relative.weight).unflatten(-1, (heads, -1)).transpose(0, 1),
        )

    def forward(self, x: Tensor, window: Tensor | None, visible: Tensor, features: Tensor) -> Tensor:
        """Map ``[b, t, dim]`` to ``[b, t, dim]``, after a window ``[b, w, dim]`` with ``visible [b, t, w + 1]``.

        None is an empty window, of which ``visible`` must show nothing.
        """
        d, heads = x.shape[-1], self.num_heads
        if window is not None and x.shape[1] == 1 and not self.tap.has_listeners:
            return self._one_step(x, window, visible, features)
        folded = self.folded(features)
        # In parts, as their gradients come; those of one product would first have to be joined, which copies them.
        maps = list(zip(folded.weights, folded.biases, strict=True))

        def project(steps: Tensor, maps: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
            steps = F.layer_norm(steps, (d,))
            return [linear(steps, *one).unflatten(-1, (heads, -1)).permute(2, 0, 1, 3) for one in maps]  # h b s e

        queries, keys, values = project(x, maps)
        if window is None:
            keys, values = (F.pad(of, (0, 0, visible.shape[-1] - 1, 0)) for of in (keys, values))
        else:
            old_keys, old_values = project(window, maps[1:])
            keys, values = torch.cat((old_keys, keys), 2), torch.cat((old_values, values), 2)
        queries = queries.contiguous()
        read = sliding_attention(
            queries,
            keys,
            values,
            visible,
            offset_queries=queries + folded.delta[:, None, None].to(queries.dtype),
            offset_keys=folded.offset_keys,
            tap=self.tap,
        )
        return self.out(read.permute(1, 2, 0, 3).flatten(2))

    def _one_step(self, x: Tensor, window: Tensor, visible: Tensor, features: Tensor) -> Tensor:
        """Return the same for a single query: W_k meets the query and W_v the sum, instead of every step in the window.

        q (W_k n_s + b_k) = (q W_k) n_s + const        sum_s a_s (W_v n_s + b_v) = W_v sum_s a_s n_s + b_v
        """
        d, heads = x.shape[-1], self.num_heads
        weights, biases, delta, offset_keys = self.folded(features)
        steps = F.layer_norm(torch.cat((window, x), 1), (d,))  # b w+1 d
        query = linear(steps[:, -1:], weights[0], biases[0]).unflatten(-1, (heads, 1, -1)).flatten(0, 1)  # b h 1 e
        keys, values = (weight.to(query.dtype).unflatten(0, (heads, -1)) for weight in weights[1:])  # each h e d
        offset_scores = (query + delta[:, None].to(query.dtype)) @ offset_keys.to(query.dtype).mT  # b h 1 w+1
        steps = steps.to(query.dtype)[:, None]
        scores = (query @ keys) @ steps.mT + offset_scores
        mixed = softmax_visible(scores, visible[:, None]).to(steps.dtype) @ steps  # b h 1 d
        read = (mixed @ values.mT).flatten(1)  # b f
        return self.out((read + biases[2].to(read.dtype))[:, None])
