"""An LSTM layer over many steps in one call of oneDNN, forward and backward, for steps between which nothing is reset.

oneDNN, which torch brings for CPUs, runs all steps without the cost of an operator per step, which is most of the time
of a small layer. It has neither resets nor stretched gates.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from recollect.ops.plain_gradients import plain_gradients
from recollect.ops.torch_internals import find_operator

LSTM_MODE = 2
"""oneDNN's number of an LSTM among its kinds of recurrent layers."""


@cache
def is_available() -> bool:
    """Return whether this torch was built with oneDNN and has the private operators that are called here."""
    names = ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward")
    return torch.backends.mkldnn.is_available() and all(map(find_operator, names))


def fits(x: Tensor, weights: list[Tensor], memory: list[Tensor]) -> bool:
    """Return whether a layer can run by :func:`fused_lstm`: float32 on a CPU, at least one row, input and unit."""
    tensors = (x, *weights, *memory)
    alike = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return alike and is_available() and torch.backends.mkldnn.enabled and all(tensor.numel() for tensor in tensors)


def fused_lstm(
    x: Tensor, weights: list[Tensor], memory: list[Tensor], twin: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Run an LSTM layer over steps of which none is the first of an episode.

    Args:
        x: ``[t, b, i]``.
        weights: W ``[4 d, i]``, U ``[4 d, d]``, b and e ``[4 d]``.
        memory: h and c ``[b, d]``.
        twin: function of x, W, U, b, e, h and c with the same results, which gives second derivatives.

    Returns:
        Outputs ``[t, b, d]``, and h and c after the last step.
    """
    return _FusedLSTM.apply(twin, torch.is_grad_enabled(), x, *weights, *memory)


class _FusedLSTM(torch.autograd.Function):
    """``keep``: whether the caller records gradients, which a function cannot find out itself."""

    @staticmethod
    def forward(ctx: Any, twin: Any, keep: bool, *args: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, w, u, b, e, h, c = (tensor.detach() for tensor in args)
        ctx.twin, ctx.size = twin, u.shape[1]
        learns = keep and any(ctx.needs_input_grad)
        with torch.set_grad_enabled(learns):  # without gradients oneDNN keeps nothing for its backward pass
            outputs, h_n, c_n, workspace = torch.ops.aten.mkldnn_rnn_layer(
                x.contiguous(), w, u, b, e, h[None], c[None],
                reverse=False, batch_sizes=[], mode=LSTM_MODE, hidden_size=ctx.size, num_layers=1, has_biases=True,
                bidirectional=False, batch_first=False, train=learns,
            )  # fmt: skip
        if learns:
            ctx.save_for_backward(*args, outputs, h_n, c_n, workspace)
        return outputs, h_n[0], c_n[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, w, u, b, e, h, c, outputs, h_n, c_n, workspace = ctx.saved_tensors
        if torch.is_grad_enabled():  # the graph of the gradient is requested
            return None, None, *plain_gradients(ctx.twin, (x, w, u, b, e, h, c), grads)
        grad_outputs, grad_h, grad_c = grads
        found = torch.ops.aten.mkldnn_rnn_layer_backward(
            x.contiguous(), w, u, b, e, h[None], c[None], outputs, h_n, c_n,
            grad_outputs.contiguous(), grad_h[None].contiguous(), grad_c[None].contiguous(),
            reverse=False, mode=LSTM_MODE, hidden_size=ctx.size, num_layers=1, has_biases=True, train=True,
            bidirectional=False, batch_sizes=[], batch_first=False, workspace=workspace,
        )  # fmt: skip
        return None, None, *found[:5], found[5].view_as(h), found[6].view_as(c)
