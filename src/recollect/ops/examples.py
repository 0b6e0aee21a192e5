"""Random inputs of every operation, and calls with them, for tests and the benchmark.

Every example has three arguments: a number of rows, a width and the dtype of its floats.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.ops.fused_pooling import PoolingWeights, fuse
from recollect.ops.matrix_scan import Write
from recollect.ops.weight_grads import Affine

Tensors = tuple[Tensor, ...]

STEPS = 16


def affine(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make rows x ``[r, d]``, W ``[2 d, d]``, b ``[2 d]``."""
    x, weight, bias = torch.randn(rows, width), torch.randn(2 * width, width) * width**-0.5, torch.randn(2 * width)
    return x.to(dtype), weight.to(dtype), bias.to(dtype)


def scores(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make scores of chunks of 8 steps ``[r, d / 8, 8]``, the first step of all hidden where there are several."""
    drawn = 4 * torch.randn(rows, max(1, width // 8), min(8, width)).to(dtype)
    drawn[..., 0] = torch.finfo(dtype).min
    return (drawn,)


def chunk_scores(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make scores of chunks of 4 steps ``[2, r, 4, d / 4]``, the first of all hidden, and weights shared by rows."""
    drawn = 4 * torch.randn(2, rows, 4, max(1, width // 4)).to(dtype)
    drawn[:, :, 0] = torch.finfo(dtype).min
    return drawn, torch.randn(2, 1, drawn.shape[-1]).softmax(-1).to(dtype)


def cells(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make symbols of two channels ``[r, 2]``, and a table with a row of d numbers for each of their 20 symbols."""
    return torch.randint(10, (rows, 2)) + torch.tensor([0, 10]), torch.randn(20, width).to(dtype)


def packed(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make the tensors of :func:`affine`, and z ``[r, 2 d]``."""
    return *affine(rows, width, dtype), torch.randn(rows, 2 * width).to(dtype)


def use_packed(linear: Callable[..., Any], x: Tensor, weight: Tensor, bias: Tensor, z: Tensor) -> Tensors:
    """Multiply many times by one W, as loops do."""
    product = linear(weight, bias, rows=len(x), uses=2 * STEPS)
    return tuple(result for _ in range(STEPS) for result in (product(x), product.plus(x, z)))


def scan(gates: int, leaves: int) -> Callable[[int, int, torch.dtype], Tensors]:
    """Return the example of a recurrence with a number of gates and of memory vectors.

    Inputs x ``[t, b, 2 d]``, resets ``[t, b, 1]``, then W, U, b, e, then memory and initial state ``[b, d]`` each.
    Where x and the weights are bfloat16, the memory is float32, as under autocast.
    """

    def example(rows: int, width: int, dtype: torch.dtype) -> Tensors:
        x, first = torch.randn(STEPS, rows, 2 * width), torch.rand(STEPS, rows, 1) < 0.1
        shapes = ((2 * width,), (width,), (), ())
        weights = (torch.randn(gates * width, *shape) * width**-0.5 for shape in shapes)
        wide = torch.promote_types(dtype, torch.float32)
        memory = (torch.randn(rows, width).to(wide) for _ in range(2 * leaves))
        return x.to(dtype), first, *(weight.to(dtype) for weight in weights), *memory

    return example


def use_scan(recurrence: Callable[..., Tensors], x: Tensor, first: Tensor, *others: Tensor) -> Tensors:
    """Run one layer over all steps."""
    weights, states = list(others[:4]), list(others[4:])
    half = len(states) // 2
    return recurrence(x, weights, states[:half], states[half:], first)


def weights(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make many small tensors and some large ones, like the weights of an agent."""
    return tuple(torch.randn(shape).to(dtype) for shape in [(width,), (rows, width)] * STEPS)


def use_copy(copy: Callable[[list[Tensor], list[Tensor]], None], *sources: Tensor) -> Tensors:
    """Copy the tensors and return the copies."""
    targets = [torch.zeros_like(source) for source in sources]
    copy(targets, list(sources))
    return tuple(targets)


def loop(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make inputs x ``[t, r, d]``, a memory ``[r, d]``, and the weights ``[d, d]`` and biases ``[d]`` of two maps."""
    shapes = [(STEPS, rows, width), (rows, width), (width, width), (width,), (width, width), (width,)]
    return tuple((torch.randn(shape) * shape[-1] ** -0.5).to(dtype) for shape in shapes)


def use_loop(sharing: Callable[..., Any], x: Tensor, memory: Tensor, *parameters: Tensor) -> Tensors:
    """Run a loop that uses both maps in every turn."""
    w1, b1, w2, b2 = parameters
    first, second = Affine(w1, b1), Affine(w2, b2)
    outputs = []
    with sharing({first: len(memory), second: len(memory)}, len(x)) as leave:
        for step in x.unbind(0):
            memory = torch.tanh(first(memory) + second(step))
            outputs.append(memory)
        return leave(torch.stack(outputs), memory)


def tokens(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make r tokens ``[2, r, d]`` for two rows, and the weights of two poolings, to 4 and to 12 means.

    They are float32 at least: only products have less precision, under autocast.
    """
    hidden, wide = 64, torch.promote_types(dtype, torch.float32)
    drawn = [torch.randn(2, rows, width)]
    for k in (4, 12):
        shapes = [(width,), (width,), (hidden, width), (hidden,), (k, hidden), (k,), (rows, width)]
        drawn += [torch.randn(shape) * (shape[-1] ** -0.5 if len(shape) == 2 else 1.0) for shape in shapes]
    return tuple(tensor.to(wide) for tensor in drawn)


def use_tokens(pool: Callable[..., Any], x: Tensor, *weights: Tensor) -> Tensors:
    """Pool tokens by both poolings and return logits and means."""
    fused = fuse([PoolingWeights(*weights[:7], eps=1e-6), PoolingWeights(*weights[7:], eps=1e-6)])
    return tuple(tensor for pooled in pool(x, fused) for tensor in pooled)


def heads(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make queries ``[2, 4, r, e]`` and ten times as many keys and values, some of them visible; e is 4 at most.

    Their scores are small, as after a norm.
    """
    e, scale = min(width, 4), 0.3
    drawn = torch.randn(2, 4, rows, e) * scale, torch.randn(2, 4, e, 10 * rows), torch.randn(2, 4, e, 10 * rows)
    visible = torch.rand(2, 10 * rows) < 0.8
    visible[:, 0] = True
    return *(tensor.to(dtype) for tensor in drawn), visible


def diagonal(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make decays and updates ``[2, r + 16, d]``, a memory ``[2, d]`` and resets; some decays are 0 or 1."""
    steps, wide = rows + STEPS, torch.promote_types(dtype, torch.float32)
    decay = (3 * torch.randn(2, steps, width)).clamp(0, 1)
    return decay.to(dtype), torch.randn(2, steps, width).to(dtype), torch.randn(2, width).to(wide), _resets(steps)


def window(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make steps ``[2, r + 16, d]``, weights and biases of four steps, a memory ``[2, 3, d]`` and resets."""
    steps, wide = rows + STEPS, torch.promote_types(dtype, torch.float32)
    drawn = torch.randn(2, steps, width), torch.randn(width, 4), torch.randn(width)
    return *(tensor.to(dtype) for tensor in drawn), torch.randn(2, 3, width).to(wide), _resets(steps)


def matrices(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make queries and keys of two groups, values and log decays of four heads, a memory and resets."""
    steps, e, wide = rows + STEPS, min(width, 8), torch.promote_types(dtype, torch.float32)
    drawn = [torch.randn(2, steps, heads, e) * e**-0.5 for heads in (2, 2, 4)]
    decay, memory = -torch.rand(2, steps, 4), torch.randn(2, 4, e, e)
    return *(tensor.to(dtype) for tensor in drawn), decay.to(wide), memory.to(wide), _resets(steps)


def erased(by_rows: bool) -> Callable[[int, int, torch.dtype], Tensors]:
    """Return the example of a delta rule with a decay for every head, or for every row and with a second write."""

    def example(rows: int, width: int, dtype: torch.dtype) -> Tensors:
        steps, e, wide = rows + STEPS, min(width, 8), torch.promote_types(dtype, torch.float32)
        queries, keys, values, *write = (torch.randn(2, steps, 2, e) * e**-0.5 for _ in range(5 if by_rows else 3))
        keys = torch.nn.functional.normalize(keys, dim=-1)
        decay = -torch.rand(2, steps, 2, e) if by_rows else -torch.rand(2, steps, 2)
        drawn = [tensor.to(dtype) for tensor in (queries, keys, values, -0.7 * keys)]
        memory = torch.randn(2, 2, e, e).to(wide)
        return *drawn, decay.to(wide), memory, _resets(steps), *(tensor.to(dtype) for tensor in write)

    return example


def use_delta_rule(rule: Callable[..., Tensors], *tensors: Tensor) -> Tensors:
    """Run a delta rule over all steps, with a second write where its tensors are given."""
    return rule(*tensors[:7], Write(*tensors[7:]) if tensors[7:] else None)


def triangular(rows: int, width: int, dtype: torch.dtype) -> Tensors:
    """Make the entries of unit triangular matrices ``[2, c, c]`` and right sides ``[2, c, d]``."""
    size, wide = min(rows, 64), torch.promote_types(dtype, torch.float32)
    return torch.randn(2, size, size).to(wide) / size, torch.randn(2, size, width).to(wide)


def _resets(steps: int) -> Tensor:
    return torch.rand(2, steps) < 0.05
