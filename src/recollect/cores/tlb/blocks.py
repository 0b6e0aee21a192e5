"""A pre-norm attention layer with its feed-forward, and the same layer with its norms folded into its products.

    y   = x + Attention(LN(x), LN(c), LN(c))        c is x itself (self-attention) or another stream (cross-attention)
    out = y + FFN(LN(y))

A norm's gain and shift can be folded into the following product, ``W (g * z + s) = (W diag g) z + W s``, and products
of one normalised vector can be stacked into one. A layer that runs often with the same weights (once per chunk, once
per step) is folded once.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.tlb.config import TemporalLatentBottleneckConfig
from recollect.layers.attention import MultiHeadAttention, attend, merge_heads
from recollect.layers.config import feedforward_width
from recollect.layers.feedforward import FeedForward, init_xavier
from recollect.ops.packed_linear import working_dtype
from recollect.ops.weight_grads import Affine


class PreNormBlock(nn.Module):
    """The weights of a layer, which :class:`FoldedBlock` runs.

    With ``cross``, keys and values come from another stream, which has its own norm.
    """

    def __init__(self, config: TemporalLatentBottleneckConfig, *, cross: bool) -> None:
        super().__init__()
        dim, details = config.dim, config.details
        eps = details.norm_eps
        self.cross, self.eps, self.dropout = cross, eps, config.dropout
        self.norm = nn.LayerNorm(dim, eps=eps)
        # A norm with two names would break torch.func, so that shared norms are registered once.
        self.norm_keys = nn.LayerNorm(dim, eps=eps) if cross else None
        separate = cross and details.value_norm == "separate"
        self.norm_values = nn.LayerNorm(dim, eps=eps) if separate else None
        dropped = config.dropout if details.attention_dropout is None else details.attention_dropout
        self.attention = MultiHeadAttention(dim, config.num_heads, head_dim=details.head_dim, dropout=dropped)
        has_feedforward = details.cross_feedforward or not cross
        self.norm_feedforward = nn.LayerNorm(dim, eps=eps) if has_feedforward else None
        self.feedforward = None
        if has_feedforward:
            hidden = feedforward_width(dim, config.hidden_dim)
            self.feedforward = FeedForward(dim, hidden, activation=details.activation)
        init_xavier(self)
        self.register_load_state_dict_pre_hook(_drop_shared_norms)

    @property
    def key_norm(self) -> nn.LayerNorm:
        """Norm of what the keys are made of; in self-attention that of the queries."""
        return self.norm if self.norm_keys is None else self.norm_keys

    @property
    def value_norm(self) -> nn.LayerNorm:
        """Norm of what the values are made of; that of the keys unless the config separates them."""
        return self.key_norm if self.norm_values is None else self.norm_values


def _drop_shared_norms(block: nn.Module, weights: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Drop the further names of a shared norm, which checkpoints of version 0.1.0 hold, before they are loaded."""
    for name in ("norm_keys", "norm_values"):
        if getattr(block, name) is None:
            for part in ("weight", "bias"):
                weights.pop(f"{prefix}{name}.{part}", None)


def fold(norm: nn.LayerNorm, linear: nn.Linear) -> Affine:
    """Return ``linear(norm(...))`` as a map of a normalised vector."""
    # A sum, not a matrix product, keeps its precision under autocast.
    bias = (linear.weight * norm.bias).sum(-1)
    return _cast(linear.weight * norm.weight, bias if linear.bias is None else bias + linear.bias)


def stack(*maps: Affine) -> Affine:
    """Stack maps of the same input into one."""
    biases = [affine.bias for affine in maps if affine.bias is not None]
    return Affine(
        torch.cat([affine.weight for affine in maps]), torch.cat(biases), sum(affine.parts for affine in maps)
    )


def _cast(weight: Tensor, bias: Tensor | None) -> Affine:
    # Autocast casts tensors that are not parameters at every use: cast them once.
    dtype = working_dtype(weight)
    return Affine(weight.to(dtype), None if bias is None else bias.to(dtype))


def normalise(inputs: Tensor, eps: float) -> Tensor:
    """Apply a layer norm without gain and shift."""
    return F.layer_norm(inputs, inputs.shape[-1:], eps=eps)


class FoldedBlock:
    """A :class:`PreNormBlock` with folded weights, for many runs with the same weights.

    ``inward`` maps the layer's own normalised input to the queries in a cross layer, and to queries, keys and values in
    a self layer. ``from_context`` maps to the keys and values of a cross layer. Gradients reach the parameters through
    the folded weights; dropout is as the mode of the layer when it is folded.
    """

    def __init__(self, block: PreNormBlock) -> None:
        self.block = block
        attention, feedforward = block.attention, block.feedforward
        self.dropout = block.dropout if block.training else 0.0
        self.attention_dropout = attention.dropout if attention.training else 0.0
        query = fold(block.norm, attention.query)
        key_value = stack(fold(block.key_norm, attention.key), fold(block.value_norm, attention.value))
        self.inward = query if block.cross else stack(query, key_value)
        self.from_context = key_value
        self.out = _cast(attention.out.weight, attention.out.bias)
        if feedforward is not None and block.norm_feedforward is not None:
            self.expand = fold(block.norm_feedforward, feedforward.expand)
            self.contract = _cast(feedforward.contract.weight, feedforward.contract.bias)

    @property
    def rest(self) -> list[Affine]:
        """The linear maps that :meth:`join` applies."""
        return [self.out] if self.block.feedforward is None else [self.out, self.expand, self.contract]

    def project(self, inputs: Tensor, affine: Affine) -> tuple[Tensor, ...]:
        """Normalise and project ``[..., t, dim]``: one ``[..., h, t, e]`` for each part of the map."""
        projected = affine(normalise(inputs, self.block.eps))
        heads = projected.unflatten(-1, (affine.parts, self.block.attention.num_heads, -1))  # ... t p h e
        return heads.movedim(-3, 0).transpose(-2, -3).unbind(0)

    def read_itself(self, inputs: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Run a self-attention layer on ``[b, t, dim]``; ``mask`` and ``causal`` as in :meth:`join`."""
        # Queries, keys and values are freed before the feed-forward needs memory.
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
        """Run a layer on the stream ``[b, t, dim]``, after the projections: attention and feed-forward.

        Args:
            inputs: the stream.
            queries: ``[b, h, t, e]``.
            keys: ``[b, h, s, e]``.
            values: ``[b, h, s, e]``.
            mask: bool ``[b, s]``, the visible keys.
            causal: whether query i reads keys up to i only (t = s).
        """
        return self._finish(inputs, self._read(queries, keys, values, mask, causal))

    def _finish(self, inputs: Tensor, heads: Tensor) -> Tensor:
        block = self.block
        stream = inputs + self._drop(self.out(merge_heads(heads)))
        del heads
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
