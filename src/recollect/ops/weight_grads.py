"""Loops that use the same weights in every turn, with one weight gradient for all turns.

    turn i:      y_i = x_i W^T + b             dx_i = dy_i W
    afterwards:  dW  = dY^T X                  db   = sum dY          X, dY: the rows of all turns

Autograd computes a weight gradient per turn and adds it to the earlier ones. With few rows per turn, writing and
adding these matrices takes more time than everything else. Here every turn only stores its pair (x_i, dy_i), and one
product per weight follows:

    with accumulate_weight_grads({first: 10, second: 10}, turns=len(steps)) as leave:
        for step in steps:
            memory = torch.tanh(first(memory) + second(step))      # 10 rows in each product
        (memory,) = leave(memory)

    graph:     weights -> _Weights -> _Use, _Use, ..., _Use -> _Leave -> loss
    backward:  _Leave drops old pairs; each _Use adds its own; _Weights, which waits for all of them, multiplies.

A pass may leave pairs behind: one that computes the gradient of the inputs alone does not reach _Weights. The next pass
drops them at _Leave, if it reaches that; one through the graph of this gradient may not. So pairs know their pass too.

W and its transpose are packed once per loop (see :mod:`recollect.ops.packed_linear`). The numbers are those of the
plain loop up to rounding. Where the graph of the gradient is requested, the same products are made by autograd.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from recollect.ops.linear import linear
from recollect.ops.packed_linear import PackedLinear, multiply
from recollect.ops.torch_internals import backward_pass, is_traced

MIN_TURNS = 4
"""Below this many turns, packing and bookkeeping cost more than they save."""
BLOCK_ROWS = 1024
"""Rows of a product for a weight gradient, if there are as many."""


class Affine:
    """``x W^T + b`` along the last axis, with weights ``[o, i]`` that a loop may share.

    The output is a stack of ``parts`` maps of equal width. Weights ``[r, o, i]`` without a bias are one map for each of
    r rows, as the keys that a row of queries meets in every turn.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int = 1) -> None:
        self.weight, self.bias, self.parts = weight, bias, parts
        self.shared: tuple[Tensor, _Pairs] | None = None  # inside accumulate_weight_grads

    def __call__(self, inputs: Tensor) -> Tensor:
        """``[..., i] -> [..., o]``."""
        inputs = inputs.to(self.weight.dtype)
        if self.weight.ndim == 3:  # r n i -> r n o
            return inputs @ self.weight.mT if self.shared is None else _Use.apply(inputs, *self.shared)
        if self.shared is None:
            return linear(inputs, self.weight, self.bias)
        return _Use.apply(inputs.reshape(-1, inputs.shape[-1]), *self.shared).unflatten(0, inputs.shape[:-1])


@contextmanager
def accumulate_weight_grads(rows: Mapping[Affine, int], turns: int) -> Iterator[Callable[..., tuple[Tensor, ...]]]:
    """Within this context, run a loop that uses the given maps in each of many turns.

    Args:
        rows: the maps, each with its number of rows per turn.
        turns: uses of each map.

    Yields:
        ``leave(*tensors)``, which returns the same tensors. Every result of the loop that is used after it must pass
        through one such call.
    """
    if turns < MIN_TURNS or is_traced():
        yield lambda *tensors: tensors
        return
    weights = [tensor for affine in rows for tensor in (affine.weight, affine.bias)]
    pairs = [_Pairs(affine, count, turns) for affine, count in rows.items()]
    anchor = _Weights.apply(pairs, *weights)
    for affine, own in zip(rows, pairs, strict=True):
        affine.shared = anchor, own
    try:
        yield lambda *tensors: _Leave.apply(pairs, weights, *tensors)
    finally:
        for affine in rows:
            affine.shared = None


@contextmanager
def plain_weight_grads(rows: Mapping[Affine, int], turns: int) -> Iterator[Callable[..., tuple[Tensor, ...]]]:
    """Plain twin of :func:`accumulate_weight_grads`: autograd adds up a weight gradient per turn."""
    yield lambda *tensors: tensors


class _Pairs:
    """The packed products of one map in one loop, and the stored pairs of its weight gradient."""

    def __init__(self, affine: Affine, rows: int, uses: int) -> None:
        bias = affine.bias
        self.attached, self.weight = affine.weight, affine.weight.detach()
        self.has_bias = bias is not None
        self.learns = affine.weight.requires_grad or (bias is not None and bias.requires_grad)
        self.rows, self.uses = rows, uses
        self.by_row = self.weight.ndim == 3
        self.forward = self._product if self.by_row else PackedLinear(self.weight, bias, rows=rows, uses=uses)
        self.backward: PackedLinear | None = None
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.kept_by = -1  # the backward pass that stored these pairs

    def _product(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT

    def input_gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient by the inputs for one by the outputs."""
        if self.by_row or torch.is_grad_enabled():  # the graph of the gradient is requested
            return grad @ (self.attached if torch.is_grad_enabled() else self.weight)
        if self.backward is None:
            self.backward = PackedLinear(self.weight.t().contiguous(), rows=self.rows, uses=self.uses)
        return self.backward(grad)

    def drop_others(self) -> None:
        """Drop the pairs of other backward passes."""
        if self.kept_by != backward_pass():
            self.kept, self.kept_by = [], backward_pass()

    def weight_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return dW and db of all turns that a gradient reached (None if there are none), and drop their pairs."""
        self.drop_others()
        if not self.kept:
            return None, None
        if self.by_row or torch.is_grad_enabled():  # the graph of the gradient is requested
            x, dy = (torch.cat(rows, -2) for rows in zip(*self.kept, strict=True))
            self.kept = []
            return dy.mT @ x, dy.sum(0) if self.has_bias else None
        # Products of a thousand rows: as fast as one product of all, which would hold them all in memory twice.
        turns = max(1, BLOCK_ROWS // self.kept[0][0].shape[0])
        weight: Tensor | None = None
        bias: Tensor | None = None
        while self.kept:
            x, dy = (torch.cat(rows) for rows in zip(*self.kept[-turns:], strict=True))
            del self.kept[-turns:]
            product, summed = multiply(dy.t(), x.t()), dy.sum(0) if self.has_bias else None
            weight = product if weight is None else weight.add_(product)
            bias = summed if bias is None or summed is None else bias.add_(summed)
        return weight, bias


class _Weights(torch.autograd.Function):
    """From the weights to a number, the anchor, which is an input of every use."""

    @staticmethod
    def forward(ctx: Any, pairs: list[_Pairs], *weights: Tensor | None) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        return pairs[0].weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return None, *(grad for own in ctx.pairs for grad in own.weight_gradients())


class _Use(torch.autograd.Function):
    """One turn's product. The anchor gets no gradient, but :class:`_Weights` waits for every use of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, pairs: _Pairs) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        ctx.save_for_backward(x)
        return pairs.forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        if grads[0] is None:  # a turn that no loss depends on
            return None, None, None
        grad = grads[0].contiguous()
        if ctx.pairs.learns:
            x = ctx.saved_tensors[0]
            ctx.pairs.drop_others()
            ctx.pairs.kept.append((x if torch.is_grad_enabled() else x.detach(), grad))
        return ctx.pairs.input_gradient(grad) if ctx.needs_input_grad[0] else None, None, None


class _Leave(torch.autograd.Function):
    """The end of a loop, and so its first node in the backward pass."""

    @staticmethod
    def forward(ctx: Any, pairs: list[_Pairs], weights: list[Tensor | None], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        # Saved so that autograd detects a weight that was changed in place before the backward pass.
        ctx.save_for_backward(*(weight for weight in weights if weight is not None))
        return tuple(tensor.detach() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors
        for own in ctx.pairs:
            own.kept = []  # of a backward pass that did not reach the weights
        return None, None, *grads
