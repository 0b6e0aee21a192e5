"""Executed FLOPs of a call, by torch's counter, with formulas for operators that it lacks on CPU.

A multiply-add counts 2; only matrix and attention products count. Attention counts every key of the call, also
masked ones, because the kernel computes them. The backward pass of fused attention recomputes its scores, which torch
counts too.
"""

import math
from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from recollect.ops.torch_internals import find_operator

Shape = tuple[int, ...]


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


def _rnn_layer(inputs: Shape, from_input: Shape, from_hidden: Shape, *_: Any, **__: Any) -> int:
    # [t, b, i] with [gates, i] and [gates, h].
    return 2 * math.prod(inputs[:-1]) * (math.prod(from_input) + math.prod(from_hidden))


def _rnn_layer_backward(*args: Any, **kwargs: Any) -> int:
    # By inputs and by weights, each as the forward pass.
    return 2 * _rnn_layer(*args, **kwargs)


def _linear(inputs: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * math.prod(inputs) * out_shape[-1]


def _matrix_vector(matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


def _add_matrix_vector(_: Shape, matrix: Shape, *__: Any, **___: Any) -> int:
    return 2 * math.prod(matrix)


FORMULAS: dict[str, Callable[..., int]] = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::mkldnn_rnn_layer": _rnn_layer,
    "aten::mkldnn_rnn_layer_backward": _rnn_layer_backward,
    "aten::mv": _matrix_vector,
    "aten::dot": _matrix_vector,
    "aten::addmv": _add_matrix_vector,
    "mkldnn::_linear_pointwise": _linear,
    "mkl::_mkl_linear": _linear,
}
"""FLOPs of operators without a formula in torch, by the shapes of their arguments. Some builds lack some of them."""


def count(function: Callable[[], object]) -> int:
    """Return the FLOPs of one call, forward and backward passes included."""
    found = {find_operator(name): formula for name, formula in FORMULAS.items()}
    found.pop(None, None)
    with FlopCounterMode(display=False, custom_mapping=found) as counter:
        function()
    return counter.get_total_flops()
