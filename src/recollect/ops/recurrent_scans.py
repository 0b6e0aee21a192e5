"""The recurrences of LSTM and GRU over all steps of a call, with resets, forward and backward.

Memory is an argument and a result: nothing is kept here. ``first`` is bool ``[t, b, 1]``; where it is True, a step
starts from the initial memory. The equations are in ``cores/recurrent/core.py``. With a
``stretch`` s > 0 the gates that control the memory (f and i, z) are clip((1 + 2 s) sigmoid(a) - s, 0, 1), so that they
can be exactly 0 or 1.

The input products of all steps are one product before the loop. A step of the loop is one product with U, packed
once per call, and a few fused elementwise operations. The backward pass is written by hand: one product per step
carries the gradient of h, then the gradients of weights and inputs are single products over all steps. A reset is
a selection, computed only at steps where some row resets. No sequence is padded. Where resets are few, the steps of an
LSTM between two of them are one call of oneDNN (``fused_lstm``).
"""

from functools import cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops import fused_lstm
from recollect.ops.packed_linear import PackedLinear, multiply
from recollect.ops.plain_gradients import plain_gradients
from recollect.ops.torch_internals import can_detect_transforms, find_operator, is_traced

aten = torch.ops.aten
_PRIVATE = ("aten::sigmoid_backward", "aten::tanh_backward")  # of (dy, y): dy * y * (1 - y) and dy * (1 - y * y)

Tensors = list[Tensor]

STEPS_PER_CALL = 8
"""Mean steps from one reset to the next from which on a call of oneDNN for each piece is faster than a loop."""


@cache
def is_available() -> bool:
    """Return whether this torch has the private operators that are called here."""
    return can_detect_transforms() and all(map(find_operator, _PRIVATE))


def lstm(
    x: Tensor, weights: Tensors, memory: Tensors, initial: Tensors, first: Tensor, stretch: float = 0.0
) -> tuple[Tensor, ...]:
    """Run an LSTM layer over all steps. Twin: :func:`plain_lstm`.

    Args:
        x: ``[t, b, i]``.
        weights: W ``[4 d, i]``, U ``[4 d, d]``, b and e ``[4 d]`` in the dtype of x (bfloat16 under autocast).
        memory: h and c ``[b, d]``; gates and c are computed in their dtype.
        initial: h and c ``[b, d]`` of a new episode.
        first: bool ``[t, b, 1]``.
        stretch: s of the gates i and f; 0 leaves them plain sigmoids.

    Returns:
        Outputs ``[t, b, d]``, and h and c after the last step.
    """
    if is_traced() or not is_available():
        return plain_lstm(x, weights, memory, initial, first, stretch)
    resets = _any_row(first)
    starts = [0, *(step for step in range(1, len(resets)) if resets[step])]
    if not stretch and len(starts) <= 1 + len(resets) // STEPS_PER_CALL and fused_lstm.fits(x, weights, memory):
        return _lstm_between_resets(x, weights, memory, initial, first, starts)
    settings = resets, stretch, torch.is_grad_enabled()
    outputs, c = _LSTMScan.apply(x, *weights, *memory, *initial, first, *settings)
    return outputs, outputs[-1], c


def _lstm_between_resets(
    x: Tensor, weights: Tensors, memory: Tensors, initial: Tensors, first: Tensor, starts: list[int]
) -> tuple[Tensor, ...]:
    """Run an LSTM layer in one call from each of ``starts``, where rows may begin an episode, to the next."""
    outputs = []
    for start, end in pairwise((*starts, len(x))):
        memory = [torch.where(first[start], *pair) for pair in zip(initial, memory, strict=True)]
        never = torch.zeros_like(first[start:end])

        def twin(x: Tensor, w: Tensor, u: Tensor, b: Tensor, e: Tensor, *memory: Tensor, never: Tensor = never) -> Any:
            return plain_lstm(x, [w, u, b, e], [*memory], [*memory], never)

        found, *memory = fused_lstm.fused_lstm(x[start:end], weights, memory, twin)
        outputs.append(found)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs), *memory


def gru(
    x: Tensor, weights: Tensors, memory: Tensors, initial: Tensors, first: Tensor, stretch: float = 0.0
) -> tuple[Tensor, ...]:
    """Run a GRU layer over all steps: as :func:`lstm`, with 3 d rows in the weights, h alone in the memory, s for z."""
    if is_traced() or not is_available():
        return plain_gru(x, weights, memory, initial, first, stretch)
    return _GRUScan.apply(x, *weights, *memory, *initial, first, _any_row(first), stretch, torch.is_grad_enabled())


def stretched(gate: Tensor, stretch: float) -> Tensor:
    """Stretch a sigmoid's value to [-s, 1 + s] and clip it to [0, 1], in place: it can be exactly 0 or 1."""
    return gate.mul_(1 + 2 * stretch).sub_(stretch).clamp_(0, 1) if stretch else gate


def plain_lstm(
    x: Tensor, weights: Tensors, memory: Tensors, initial: Tensors, first: Tensor, stretch: float = 0.0
) -> tuple[Tensor, ...]:
    """Plain twin of :func:`lstm`: no branch on values, no hand-written gradient."""
    w, u, b, e = weights
    h, c = memory
    outputs = []
    for step, drive in enumerate(F.linear(x, w, b + e).unbind(0)):
        h = torch.where(first[step], initial[0], h).to(x.dtype)
        i, f, g, o = (drive + F.linear(h, u)).to(c.dtype).chunk(4, -1)
        i, f = _stretched_sigmoid(i, stretch), _stretched_sigmoid(f, stretch)
        c = f * torch.where(first[step], initial[1], c) + i * g.tanh()
        h = (o.sigmoid() * c.tanh()).to(x.dtype)
        outputs.append(h)
    return torch.stack(outputs), h, c


def plain_gru(
    x: Tensor, weights: Tensors, memory: Tensors, initial: Tensors, first: Tensor, stretch: float = 0.0
) -> tuple[Tensor, ...]:
    """Plain twin of :func:`gru`."""
    w, u, b, e = weights
    (h,) = memory
    outputs = []
    for step, drive in enumerate(F.linear(x, w, b).unbind(0)):
        h = torch.where(first[step], initial[0], h)
        x_r, x_z, x_n = drive.to(h.dtype).chunk(3, -1)
        h_r, h_z, h_n = F.linear(h.to(x.dtype), u, e).to(h.dtype).chunk(3, -1)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = torch.lerp(n, h, _stretched_sigmoid(x_z + h_z, stretch))
        outputs.append(h.to(x.dtype))
    return torch.stack(outputs), h


def _stretched_sigmoid(x: Tensor, stretch: float) -> Tensor:
    gate = x.sigmoid()
    return (gate * (1 + 2 * stretch) - stretch).clamp(0, 1) if stretch else gate


def _gate_grad(grad: Tensor, gate: Tensor, stretch: float, out: Tensor) -> None:
    """Write the gradient before a gate's sigmoid into ``out``; it is zero where a stretched gate is clipped."""
    if not stretch:
        aten.sigmoid_backward.grad_input(grad, gate, grad_input=out)
        return
    slope = (gate + stretch) * (1 + stretch - gate) / (1 + 2 * stretch)
    torch.mul(grad, slope.masked_fill_((gate <= 0) | (gate >= 1), 0.0), out=out)


def _any_row(first: Tensor) -> list[bool]:
    return first.flatten(1).any(1).tolist()


class _LSTMScan(torch.autograd.Function):
    """One layer over all steps: values and derivatives, of which those after the first are computed by the twin.

    x ``[t, b, i]`` and the weights share one dtype (bfloat16 under autocast); gates and c have the dtype of c.
    ``resets[t]``: whether any row of ``first`` ``[t, b, 1]`` resets at t. ``keep``: whether the caller records
    gradients, which a function cannot find out itself.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        x, w, u, b, e, h, c, initial_h, initial_c, first, resets, stretch, keep = args
        t, rows, _ = x.shape
        d, wide = u.shape[1], c.dtype
        drive = multiply(x.flatten(0, 1), w, b + e).view(t, rows, 4 * d)
        recur = PackedLinear(u, rows=rows, uses=t)
        outputs = x.new_empty(t, rows, d)
        keep = keep and any(ctx.needs_input_grad)
        kept: list[list[Tensor]] = []
        before, h = h, h.to(x.dtype)
        for step in range(t):
            if resets[step]:
                h = torch.where(first[step], initial_h.to(x.dtype), h)
                c = torch.where(first[step], initial_c, c)
            gates = recur.plus(h, drive[step]).to(wide)
            stretched(gates[:, : 2 * d].sigmoid_(), stretch)
            i, f, g, o = gates.chunk(4, 1)
            g.tanh_()
            o.sigmoid_()
            found, c = c, torch.addcmul(f * c, i, g)
            tanh = c.tanh()
            h = torch.mul(o, tanh, out=outputs[step])
            if keep:
                kept.append([gates, found, tanh])
        saved = x, w, u, b, e, before, args[6], initial_h, initial_c, first, outputs
        ctx.save_for_backward(*((*saved, *(k for step in kept for k in step)) if keep else ()))
        ctx.resets, ctx.stretch = resets, stretch
        return outputs, c

    @staticmethod
    def backward(ctx: Any, *grad_results: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_outputs, grad_c = grad_results
        x, w, u, b, e, before, found_c, initial_h, initial_c, first, outputs, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the graph of the gradient is requested

            def twin(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
                outputs, _, c = plain_lstm(x, [*rest[:4]], [*rest[4:6]], [*rest[6:]], first, ctx.stretch)
                return outputs, c

            inputs = (x, w, u, b, e, before, found_c, initial_h, initial_c)
            return *plain_gradients(twin, inputs, grad_results), *[None] * 4
        t, rows, _ = x.shape
        d, wide = u.shape[1], grad_c.dtype
        back = PackedLinear(u.t(), rows=rows, uses=t)
        grads = x.new_empty(t, rows, 4 * d)  # by W x + b + U h + e
        grad_initial = [torch.zeros_like(grad_c) for _ in "hc"] if any(ctx.needs_input_grad[7:9]) else []
        grad_outputs = grad_outputs.contiguous()
        grad_h = grad_outputs[-1].to(wide)
        for step in range(t - 1, -1, -1):
            gates, found, tanh = kept[3 * step : 3 * step + 3]
            i, f, g, o = gates.chunk(4, 1)
            grad_c = torch.addcmul(grad_c, grad_h, aten.tanh_backward(o, tanh))
            # The derivative of c by i, f and g, and of h by o, times the gradient of c or h.
            grad = grads[step] if wide == grads.dtype else torch.empty_like(gates)
            _gate_grad(g, i, ctx.stretch, grad[:, :d])
            _gate_grad(found, f, ctx.stretch, grad[:, d : 2 * d])
            aten.tanh_backward.grad_input(i, g, grad_input=grad[:, 2 * d : 3 * d])
            aten.sigmoid_backward.grad_input(tanh, o, grad_input=grad[:, 3 * d :])
            grad[:, : 3 * d].unflatten(1, (3, d)).mul_(grad_c[:, None])
            grad[:, 3 * d :].mul_(grad_h)
            if wide != grads.dtype:
                grads[step] = grad
            grad_c = grad_c * f
            if step and not ctx.resets[step]:
                grad_h = back.plus(grads[step], grad_outputs[step - 1]).to(wide)
                continue
            grad_h = back(grads[step]).to(wide)
            if ctx.resets[step]:
                mask_reset_grad(first[step], grad_initial, grad_h, grad_c)
            if step:
                grad_h = grad_h + grad_outputs[step - 1]
        flat = grads.flatten(0, 1)
        seen = torch.cat((before[None].to(x.dtype), outputs[:-1]))
        seen = torch.where(first, initial_h.to(x.dtype), seen)
        grad_x = multiply(flat, w.t()).view_as(x) if ctx.needs_input_grad[0] else None
        grad_w, grad_u = multiply(flat.t(), x.flatten(0, 1).t()), multiply(flat.t(), seen.flatten(0, 1).t())
        grad_b = flat.sum(0)
        return grad_x, grad_w, grad_u, grad_b, grad_b, grad_h, grad_c, *(grad_initial or (None, None)), *[None] * 4


def mask_reset_grad(first: Tensor, totals: list[Tensor], *grads: Tensor) -> None:
    """Move the gradient of rows that reset from the past to the initial state, in place."""
    for total, grad in zip(totals, grads, strict=False):  # no totals: the initial state needs no gradient
        total += grad.masked_fill(~first, 0.0)
    for grad in grads:
        grad.masked_fill_(first, 0.0)


class _GRUScan(torch.autograd.Function):
    """One layer over all steps; dtypes and ``keep`` as in :class:`_LSTMScan`."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        x, w, u, b, e, h, initial_h, first, resets, stretch, keep = args
        t, rows, _ = x.shape
        d, wide = u.shape[1], h.dtype
        drive = multiply(x.flatten(0, 1), w, b).view(t, rows, 3 * d)
        recur = PackedLinear(u, e, rows=rows, uses=t)
        outputs = x.new_empty(t, rows, d)
        keep = keep and any(ctx.needs_input_grad)
        kept: list[list[Tensor]] = []
        for step in range(t):
            if resets[step]:
                h = torch.where(first[step], initial_h, h)
            gates = recur(h.to(x.dtype)).to(wide)
            gates[:, : 2 * d].add_(drive[step, :, : 2 * d]).sigmoid_()
            r, z, h_n = gates.chunk(3, 1)
            stretched(z, stretch)
            n = torch.addcmul(drive[step, :, 2 * d :], r, h_n).tanh_()
            found, h = h, torch.lerp(n, h, z)
            outputs[step] = h
            if keep:
                kept.append([gates, found, n])
        saved = x, w, u, b, e, args[5], initial_h, first
        ctx.save_for_backward(*((*saved, *(k for step in kept for k in step)) if keep else ()))
        ctx.resets, ctx.stretch = resets, stretch
        return outputs, h

    @staticmethod
    def backward(ctx: Any, *grad_results: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_outputs, grad_h = grad_results
        x, w, u, b, e, before, initial_h, first, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the graph of the gradient is requested

            def twin(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
                return plain_gru(x, [*rest[:4]], [rest[4]], [rest[5]], first, ctx.stretch)

            return *plain_gradients(twin, (x, w, u, b, e, before, initial_h), grad_results), *[None] * 4
        t, rows, _ = x.shape
        d = u.shape[1]
        back = PackedLinear(u.t(), rows=rows, uses=t)
        by_x = x.new_empty(t, rows, 3 * d)  # by W x + b
        by_h = x.new_empty(t, rows, 3 * d)  # by U h + e
        grad_initial = [torch.zeros_like(grad_h)] if ctx.needs_input_grad[6] else []
        for step in range(t - 1, -1, -1):
            gates, found, n = kept[3 * step : 3 * step + 3]
            r, z, h_n = gates.chunk(3, 1)
            grad_h = grad_h + grad_outputs[step]
            kept_h = grad_h * z
            grad_n = aten.tanh_backward(grad_h - kept_h, n)
            grad = torch.empty_like(gates)
            aten.sigmoid_backward.grad_input(grad_n * h_n, r, grad_input=grad[:, :d])
            _gate_grad(grad_h * (found - n), z, ctx.stretch, grad[:, d : 2 * d])
            torch.mul(grad_n, r, out=grad[:, 2 * d :])
            by_h[step] = grad
            by_x[step, :, : 2 * d] = grad[:, : 2 * d]
            by_x[step, :, 2 * d :] = grad_n
            grad_h = kept_h + back(by_h[step])
            if ctx.resets[step]:
                mask_reset_grad(first[step], grad_initial, grad_h)
        seen = torch.stack(kept[1::3]).to(x.dtype).flatten(0, 1)
        by_x, by_h = by_x.flatten(0, 1), by_h.flatten(0, 1)
        grad_x = multiply(by_x, w.t()).view_as(x) if ctx.needs_input_grad[0] else None
        grad_w, grad_u = multiply(by_x.t(), x.flatten(0, 1).t()), multiply(by_h.t(), seen.t())
        return grad_x, grad_w, grad_u, by_x.sum(0), by_h.sum(0), grad_h, *(grad_initial or (None,)), *[None] * 4
