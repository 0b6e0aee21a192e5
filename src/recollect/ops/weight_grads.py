"""Loops that use the same weights at every turn, with one weight gradient for all turns.

    turn i:      y_i = x_i W^T + b             dx_i = dy_i W
    afterwards:  dW  = dY^T X                  db   = sum dY          X, dY: the rows of all turns

Left to itself, autograd computes a weight gradient per turn and adds it to those before. With few rows a turn,
writing and adding these matrices takes more time than everything else. Here the backward pass of a loop carries
the gradients of activations only, keeps the pairs (x_i, dy_i), and ends with one product per weight. Both W and
its transpose are packed once per call (see :mod:`recollect.ops.packed_linear`). The numbers are the same up to
rounding; second derivatives do not exist.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.ops.linear import linear
from recollect.ops.packed_linear import PackedLinear, product

MIN_TURNS = 4
"""Below this many turns, packing and bookkeeping cost more than they save."""


class Affine:
    """``x W^T + b`` along the last axis, with weights that a loop may share.

    Args:
        weight: ``[o, i]``.
        bias: ``[o]`` or None.
        parts: into how many maps of equal width the output falls (for stacks of several maps).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, parts: int = 1) -> None:
        self.weight, self.bias, self.parts = weight, bias, parts
        self.shared: _Shared | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """``[..., i] -> [..., o]``."""
        if self.shared is None:
            return linear(inputs.to(self.weight.dtype), self.weight, self.bias)
        return self.shared(inputs)


def accumulate_weight_grads(
    run: Callable[..., tuple[Tensor, ...]], rows: Mapping[Affine, int], turns: int, inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """``run(*inputs)``, in which the given maps are used at each of many turns.

    Args:
        run: pure function of tensors, apart from the weights of the maps.
        rows: the maps that it uses (no other weights may learn in it), each with its number of rows per turn.
        turns: how often each is used.
        inputs: for ``run``; gradients reach them and the weights of the maps.
    """
    if turns < MIN_TURNS or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return run(*inputs)
    weights = [tensor for affine in rows for tensor in (affine.weight, affine.bias)]
    learning = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (*inputs, *weights))
    anchor = torch.zeros((), requires_grad=learning)
    for affine, count in rows.items():
        affine.shared = _Shared(affine, anchor, count, turns)
    try:
        if learning:
            return _Loop.apply(run, list(rows), len(inputs), *inputs, *weights)
        with torch.no_grad():
            return run(*inputs)
    finally:
        for affine in rows:
            affine.shared = None


class _Shared:
    """The products of one Affine in one run of a loop, and what its weight gradient will be made of."""

    def __init__(self, affine: Affine, anchor: Tensor, rows: int, uses: int) -> None:
        bias = affine.bias
        self.weight = affine.weight.detach()
        self.has_bias = bias is not None
        self.learns = affine.weight.requires_grad or (bias is not None and bias.requires_grad)
        self.anchor, self.rows, self.uses = anchor, rows, uses
        self.forward = PackedLinear(self.weight, None if bias is None else bias.detach(), rows=rows, uses=uses)
        self.backward: PackedLinear | None = None
        self.pairs: list[tuple[Tensor, Tensor]] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, inputs.shape[-1]).to(self.weight.dtype)
        out = _Use.apply(flat, self.anchor, self) if torch.is_grad_enabled() else self.forward(flat)
        return out.unflatten(0, inputs.shape[:-1])

    def input_gradient(self, grad: Tensor) -> Tensor:
        """Dx for dy, both two-dimensional."""
        if self.backward is None:
            self.backward = PackedLinear(self.weight.t().contiguous(), rows=self.rows, uses=self.uses)
        return self.backward(grad)

    def weight_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """DW and db of all turns that a gradient reached (None if there are none); forgets them."""
        if not self.pairs:
            return None, None
        x, dy = (torch.cat(rows) for rows in zip(*self.pairs, strict=True))
        self.pairs = []
        return product(dy.t(), x.t()), dy.sum(0) if self.has_bias else None


class _Use(torch.autograd.Function):
    """One turn's product. The anchor needs a gradient, and so brings every turn into the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, shared: _Shared) -> Tensor:
        ctx.shared = shared
        ctx.save_for_backward(x)
        return shared.forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        grad = grads[0].contiguous()
        if ctx.shared.learns:
            ctx.shared.pairs.append((ctx.saved_tensors[0], grad))
        return ctx.shared.input_gradient(grad) if ctx.needs_input_grad[0] else None, None, None


class _Loop(torch.autograd.Function):
    """A loop as one node of the graph, with a graph of its own inside."""

    @staticmethod
    def forward(
        ctx: Any, run: Callable[..., tuple[Tensor, ...]], affines: list[Affine], count: int, *tensors: Any
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad[3 : 3 + count]
        ctx.inner = [x.detach().requires_grad_(need) for x, need in zip(tensors[:count], needs, strict=True)]
        ctx.shared = [affine.shared for affine in affines]
        with torch.enable_grad():
            ctx.outputs = run(*ctx.inner)
        # Kept so that autograd notices a weight that was changed in place before the backward pass.
        ctx.save_for_backward(*(weight for weight in tensors[count:] if weight is not None))
        return tuple(out.detach() for out in ctx.outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors
        reached = [(o, g) for o, g in zip(ctx.outputs, grads, strict=True) if g is not None and o.requires_grad]
        wanted = [x for x in ctx.inner if x.requires_grad]
        found: Iterator[Tensor | None] = iter([None] * len(wanted))
        for shared in ctx.shared:
            shared.pairs = []
        if reached:
            outputs, given = zip(*reached, strict=True)
            sources = [*wanted, ctx.shared[0].anchor]
            found = iter(torch.autograd.grad(outputs, sources, given, retain_graph=True, allow_unused=True))
        inputs = [next(found) if x.requires_grad else None for x in ctx.inner]
        weights = [grad for shared in ctx.shared for grad in shared.weight_gradients()]
        return None, None, None, *inputs, *weights
