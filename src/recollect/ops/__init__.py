"""Hand-written kernels, each beside its plain twin. ``OPS`` is the table of contents.

Only this package uses private interfaces of torch and decides by the processor (facts about the machine are in
``recollect.machine``). A torch without such an interface runs the plain twin; ``recollect benchmark ops`` reports that,
and the gain of every kernel on this machine. Tests compare kernel and twin over the same table.
"""

import torch.nn.functional as F

from recollect.ops import (
    copying,
    diagonal_scan,
    examples,
    fused_pooling,
    linear,
    matrix_scan,
    packed_linear,
    recurrent_scans,
    short_convolution,
    short_softmax,
    table_sums,
    unshifted_attention,
    weight_grads,
    weighted_softmax,
)
from recollect.ops.operation import Operation

_ONEDNN = "oneDNN operators with their private names"
_DERIVATIVES = "aten operators for the derivatives of sigmoid and tanh"

OPS: dict[str, Operation] = {
    "linear": Operation(
        kernel=linear.linear,
        twin=F.linear,
        is_available=linear.is_available,
        needs=_ONEDNN,
        example=examples.affine,
        typical_rows=2048,
    ),
    "multiply": Operation(
        kernel=packed_linear.multiply,
        twin=F.linear,
        is_available=packed_linear.is_available,
        needs=_ONEDNN,
        example=examples.affine,
        differentiable=False,
        typical_rows=2048,
    ),
    "packed-linear": Operation(
        kernel=packed_linear.PackedLinear,
        twin=packed_linear.PlainLinear,
        is_available=packed_linear.is_available,
        needs=_ONEDNN,
        example=examples.packed,
        use=examples.use_packed,
        differentiable=False,
    ),
    "lstm": Operation(
        kernel=recurrent_scans.lstm,
        twin=recurrent_scans.plain_lstm,
        is_available=recurrent_scans.is_available,
        needs=_DERIVATIVES,
        example=examples.scan(gates=4, leaves=2),
        use=examples.use_scan,
    ),
    "gru": Operation(
        kernel=recurrent_scans.gru,
        twin=recurrent_scans.plain_gru,
        is_available=recurrent_scans.is_available,
        needs=_DERIVATIVES,
        example=examples.scan(gates=3, leaves=1),
        use=examples.use_scan,
    ),
    "diagonal-scan": Operation(
        kernel=diagonal_scan.diagonal_scan,
        twin=diagonal_scan.plain_diagonal_scan,
        example=examples.diagonal,
        typical_rows=1024,
    ),
    "short-convolution": Operation(
        kernel=short_convolution.short_convolution,
        twin=short_convolution.plain_short_convolution,
        example=examples.window,
        typical_rows=1024,
    ),
    "linear-attention": Operation(
        kernel=matrix_scan.linear_attention,
        twin=matrix_scan.plain_linear_attention,
        example=examples.matrices,
        typical_rows=1024,
    ),
    "delta-rule": Operation(
        kernel=matrix_scan.delta_rule,
        twin=matrix_scan.plain_delta_rule,
        example=examples.erased(by_rows=False),
        use=examples.use_delta_rule,
        typical_rows=1024,
    ),
    "delta-rule-rows": Operation(
        kernel=matrix_scan.delta_rule,
        twin=matrix_scan.plain_delta_rule,
        example=examples.erased(by_rows=True),
        use=examples.use_delta_rule,
        typical_rows=1024,
    ),
    "unit-triangular": Operation(
        kernel=matrix_scan.solve_unit_lower,
        twin=matrix_scan.plain_solve_unit_lower,
        example=examples.triangular,
        typical_rows=64,
    ),
    "weight-grads": Operation(
        kernel=weight_grads.accumulate_weight_grads,
        twin=weight_grads.plain_weight_grads,
        example=examples.loop,
        use=examples.use_loop,
    ),
    "fused-pooling": Operation(
        kernel=fused_pooling.fused_pooling,
        twin=fused_pooling.plain_pooling,
        is_available=fused_pooling.is_available,
        needs="aten operator for the derivative of GELU",
        example=examples.tokens,
        use=examples.use_tokens,
        typical_rows=3136,
    ),
    "softmax": Operation(
        kernel=short_softmax.softmax,
        twin=short_softmax.plain_softmax,
        example=examples.scores,
        typical_rows=512,
    ),
    "weighted-softmax": Operation(
        kernel=weighted_softmax.weighted_softmax,
        twin=weighted_softmax.plain_weighted_softmax,
        example=examples.chunk_scores,
        typical_rows=512,
    ),
    "table-sums": Operation(
        kernel=table_sums.table_sums,
        twin=table_sums.plain_table_sums,
        example=examples.cells,
        typical_rows=2048,
    ),
    "unshifted-attention": Operation(
        kernel=unshifted_attention.attention,
        twin=unshifted_attention.plain_attention,
        example=examples.heads,
        typical_rows=121,
    ),
    "copy-each": Operation(
        kernel=copying.copy_each,
        twin=copying.plain_copy_each,
        is_available=copying.is_available,
        needs="_foreach_copy_",
        example=examples.weights,
        use=examples.use_copy,
        differentiable=False,
    ),
}
