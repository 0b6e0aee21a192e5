"""Multi-head attention over given queries, keys, values and masks.

    A = softmax(Q K^T * scale + bias)      masked entries get weight exactly 0
    out = A V                              a query that sees nothing gets exactly 0

Source: Vaswani et al. (2017), with defined results for empty rows, which streams need: the plain masked softmax over
nothing is NaN or uniform over garbage.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.tap import Tap
from recollect.ops.linear import Linear
from recollect.ops.short_softmax import softmax


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis in float32 or better; masked entries and empty rows are exactly 0.

    Args:
        scores: any shape.
        mask: bool, broadcastable to ``scores``; True is visible. None masks nothing.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(dtype)
    if mask is None:
        return softmax(scores)
    # The smallest finite number keeps an empty row finite, in value and in gradient, where -inf would give NaN; the
    # second mask then empties it.
    return softmax(scores.masked_fill(~mask, torch.finfo(dtype).min)).masked_fill(~mask, 0.0)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    tap: Tap | None = None,
) -> Tensor:
    """Compute attention of projected heads.

    Args:
        queries: ``[..., h, t, e]``.
        keys: ``[..., h, s, e]``.
        values: ``[..., h, s, v]``.
        mask: bool, broadcastable to ``[..., h, t, s]``; True is visible.
        bias: float, broadcastable to ``[..., h, t, s]``, added to the scaled scores.
        scale: factor of the scores; ``e ** -0.5`` when None.
        dropout: probability of dropping a weight (pass 0 outside training).
        tap: receives the weights while it has listeners.

    Returns:
        ``[..., h, t, v]`` in the dtype of ``values``.
    """
    factor = queries.shape[-1] ** -0.5 if scale is None else scale
    is_recorded = tap is not None and tap.has_listeners
    if is_recorded or bias is not None:
        scores = (queries * factor) @ keys.transpose(-1, -2)
        scores = scores if bias is None else scores + bias
        weights = masked_softmax(scores, mask)
        if tap is not None and is_recorded:
            tap(weights, scores)
        if dropout:
            weights = F.dropout(weights, dropout)
        return weights.to(values.dtype) @ values
    out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=factor)
    if mask is None:
        return out
    # The fused kernels disagree about rows without any key: NaN, the mean, or 0.
    return out.masked_fill(~mask.any(-1, keepdim=True), 0.0)


def split_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """Cut vectors into heads: ``[..., t, h*e] -> [..., h, t, e]``."""
    return tensor.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def merge_heads(tensor: Tensor) -> Tensor:
    """Join the heads: ``[..., h, t, e] -> [..., t, h*e]``."""
    return tensor.transpose(-2, -3).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with projections of queries, keys, values and output.

    Args:
        dim: width of queries and of the output.
        num_heads: h.
        kv_dim: width of the context; ``dim`` when None.
        head_dim: width e of a head; ``dim / num_heads`` when None.
        bias: whether the four projections have biases.
        dropout: of the attention weights, in training.

    Raises:
        ValueError: heads that do not divide ``dim``, without ``head_dim``.

    Source: Vaswani et al. (2017), equation 1 and section 3.2.2.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kv_dim: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if head_dim is None and dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}: change one, or give head_dim")
        kv_dim = dim if kv_dim is None else kv_dim
        width = num_heads * (dim // num_heads if head_dim is None else head_dim)
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = Linear(dim, width, bias=bias)
        self.key = Linear(kv_dim, width, bias=bias)
        self.value = Linear(kv_dim, width, bias=bias)
        self.out = Linear(width, dim, bias=bias)
        self.tap = Tap("b h t s")

    def project(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Compute keys and values ``[..., h, s, e]`` of a context ``[..., s, kv_dim]``."""
        return split_heads(self.key(context), self.num_heads), split_heads(self.value(context), self.num_heads)

    def forward(
        self,
        queries: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Let every query attend to the context.

        Args:
            queries: ``[..., t, dim]``.
            context: ``[..., s, kv_dim]``, or its keys and values from :meth:`project`.
            mask: bool, broadcastable to ``[..., t, s]``; True is visible.
            bias: float, broadcastable to ``[..., h, t, s]``.

        Returns:
            ``[..., t, dim]``; for a query that sees nothing the output's bias, or 0 without one.
        """
        keys, values = context if isinstance(context, tuple) else self.project(context)
        heads = attend(
            split_heads(self.query(queries), self.num_heads),
            keys,
            values,
            mask=None if mask is None else mask.unsqueeze(-3),
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            tap=self.tap,
        )
        return self.out(merge_heads(heads))
