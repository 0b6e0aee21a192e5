"""A pre-norm attention layer with its feed-forward, and the same layer with its norms folded into its products.

    y   = x + Attention(LN(x), LN(c), LN(c))        c is x itself (self-attention) or another stream (cross-attention)
    out = y + FFN(LN(y))

A norm's gain and shift can be folded into the product that follows, ``W (g * z + s) = (W diag g) z + W s``, and
products of one normalised vector can be stacked into one. Nothing changes but the number of operations, so a layer
that is run often with the same weights (once per chunk, once per step) is folded once and run in this form.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.attention import MultiHeadAttention, attend, merge_heads
from recollect.layers.config import Activation
from recollect.layers.feedforward import FeedForward, init_xavier
from recollect.ops.packed_linear import working_dtype
from recollect.ops.weight_grads import Affine


@dataclass(frozen=True, kw_only=True)
class PreNormSettings:
    """What the layers of a stack share."""

    dim: int
    """Width of the stream."""
    num_heads: int
    """Attention heads."""
    head_dim: int | None = None
    """Width of a head; ``dim / num_heads`` when None."""
    hidden_dim: int
    """Width of the feed-forwards."""
    activation: Activation = "gelu"
    """Activation of the feed-forwards."""
    value_norm: Literal["shared", "separate"] = "shared"
    """In cross layers, one norm for keys and values, or one each."""
    eps: float = 1e-5
    """Epsilon of the norms."""
    dropout: float = 0.0
    """Probability of dropping in the hidden layer and in what attention and feed-forward add, in training."""
    attention_dropout: float = 0.0
    """Probability of dropping an attention weight, in training."""


class PreNormBlock(nn.Module):
    """The weights of such a layer; :class:`FoldedBlock` runs it, the plain form is in ``reference.py``.

    Args:
        settings: shared by the layers of a stack.
        cross: whether keys and values come from another stream, which then has a norm of its own.
        feedforward: whether the layer has its second half.
    """

    def __init__(self, settings: PreNormSettings, *, cross: bool = False, feedforward: bool = True) -> None:
        super().__init__()
        dim, eps = settings.dim, settings.eps
        self.cross = cross
        self.eps = eps
        self.dropout = settings.dropout
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.norm_keys = nn.LayerNorm(dim, eps=eps) if cross else self.norm
        separate = cross and settings.value_norm == "separate"
        self.norm_values = nn.LayerNorm(dim, eps=eps) if separate else self.norm_keys
        self.attention = MultiHeadAttention(
            dim, settings.num_heads, head_dim=settings.head_dim, dropout=settings.attention_dropout
        )
        self.norm_feedforward = nn.LayerNorm(dim, eps=eps) if feedforward else None
        self.feedforward = None
        if feedforward:
            self.feedforward = FeedForward(dim, settings.hidden_dim, activation=settings.activation)
        init_xavier(self)


def fold(norm: nn.LayerNorm, linear: nn.Linear) -> Affine:
    """The map that does to a normalised vector what ``linear(norm(...))`` does to the vector itself."""
    # A sum, not a matrix product: under autocast it stays in full precision.
    bias = (linear.weight * norm.bias).sum(-1)
    return _cast(linear.weight * norm.weight, bias if linear.bias is None else bias + linear.bias)


def stack(*maps: Affine) -> Affine:
    """One map for several of the same input."""
    biases = [affine.bias for affine in maps if affine.bias is not None]
    return Affine(
        torch.cat([affine.weight for affine in maps]), torch.cat(biases), sum(affine.parts for affine in maps)
    )


def _cast(weight: Tensor, bias: Tensor | None) -> Affine:
    # Autocast casts at every use what is not itself a parameter: do it once.
    dtype = working_dtype(weight)
    return Affine(weight.to(dtype), None if bias is None else bias.to(dtype))


def normalise(inputs: Tensor, eps: float) -> Tensor:
    """A layer norm without gain and shift."""
    return F.layer_norm(inputs, inputs.shape[-1:], eps=eps)


class FoldedBlock:
    """A :class:`PreNormBlock` with folded weights, for many runs with the same weights.

    ``inward`` is the map of the layer's own normalised input: to the queries in a cross layer; to queries, keys and
    values in a layer that reads itself. ``from_context`` makes the keys and values of a cross layer.

    Args:
        block: the layer; gradients reach its parameters through the folded weights. Whether it drops out is decided
            here, by its mode.
    """

    def __init__(self, block: PreNormBlock) -> None:
        self.block = block
        attention, feedforward = block.attention, block.feedforward
        self.dropout = block.dropout if block.training else 0.0
        self.attention_dropout = attention.dropout if attention.training else 0.0
        query = fold(block.norm, attention.query)
        key_value = stack(fold(block.norm_keys, attention.key), fold(block.norm_values, attention.value))
        self.inward = query if block.cross else stack(query, key_value)
        self.from_context = key_value
        self.out = _cast(attention.out.weight, attention.out.bias)
        if feedforward is not None and block.norm_feedforward is not None:
            self.expand = fold(block.norm_feedforward, feedforward.expand)
            self.contract = _cast(feedforward.contract.weight, feedforward.contract.bias)

    @property
    def rest(self) -> list[Affine]:
        """The maps of :meth:`join`."""
        return [self.out] if self.block.feedforward is None else [self.out, self.expand, self.contract]

    def project(self, inputs: Tensor, affine: Affine) -> tuple[Tensor, ...]:
        """Norm and project ``[..., t, dim]``: one ``[..., h, t, e]`` for each part of the map."""
        projected = affine(normalise(inputs, self.block.eps))
        heads = projected.unflatten(-1, (affine.parts, self.block.attention.num_heads, -1))  # ... t p h e
        return heads.movedim(-3, 0).transpose(-2, -3).unbind(0)

    def read_itself(self, inputs: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The whole self-attention layer on ``[b, t, dim]``; ``mask`` and ``causal`` as in :meth:`join`."""
        # Nothing here holds on to queries, keys and values while the feed-forward needs room.
        return self._finish(inputs, self._read(*self.project(inputs, self.inward), mask=mask, causal=causal))

    def join(
        self,
        inputs: Tensor,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """The rest of a layer, once all is projected: read, add, feed forward, add.

        Args:
            inputs: the stream ``[b, t, dim]``.
            queries: ``[b, h, t, e]``.
            keys: ``[b, h, s, e]``.
            values: ``[b, h, s, e]``.
            mask: bool ``[b, s]``, which keys may be read.
            causal: whether query i reads keys up to i only (t = s).
        """
        return self._finish(inputs, self._read(queries, keys, values, mask, causal))

    def _finish(self, inputs: Tensor, heads: Tensor) -> Tensor:
        block = self.block
        stream = inputs + self._drop(self.out(merge_heads(heads)))
        del heads  # for the same reason
        if block.feedforward is None:
            return stream
        hidden = self._drop(block.feedforward.activation(self.expand(normalise(stream, block.eps))))
        return stream + self._drop(self.contract(hidden))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.dropout else x

    def _read(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        attention, dropout = self.block.attention, self.attention_dropout
        if causal and mask is None and not attention.tap.has_listeners:
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, dropout_p=dropout)
        mask = None if mask is None else mask[:, None, None]  # b h t s
        if causal:
            t = queries.shape[-2]
            past = torch.ones(t, t, dtype=torch.bool, device=queries.device).tril()
            mask = past if mask is None else past & mask
        return attend(queries, keys, values, mask=mask, dropout=dropout, tap=attention.tap)
