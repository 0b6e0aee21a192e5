"""The linear recurrences as a plain loop: row by row, layer by layer, step by step, head by head.

The equations are at the top of each core's file; below, a name without index is that of the running step.
"""

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.contract import StateT
from recollect.cores.linear.gated_deltanet import GatedDeltaNetLayer
from recollect.cores.linear.mamba2 import Mamba2Layer
from recollect.cores.linear.min_gru import MinGRULayer
from recollect.cores.linear.mlstm import MLSTMLayer
from recollect.cores.linear.rg_lru import RGLRULayer
from recollect.cores.linear.rwkv7 import SLOWEST, LowRank, RWKV7Layer
from recollect.cores.linear.stack import GatedFeedForward, LinearRecurrence, Refine, ShortConvolution

Leaves = list[Tensor]
"""The memory of one layer of one row."""


def reference_unroll(
    core: LinearRecurrence[StateT], inputs: Tensor, state: Any, is_first: Tensor
) -> tuple[Tensor, StateT]:
    """Compute ``core(inputs, state, is_first)`` step by step, from the equations."""
    all_outputs, all_memories = [], []
    for row, row_inputs in enumerate(inputs):
        memories = [[leaf[row, layer] for leaf in state] for layer in range(len(core.layers))]
        outputs = []
        for step, first in zip(row_inputs, is_first[row], strict=True):
            if first:
                memories = [[torch.zeros_like(leaf) for leaf in memory] for memory in memories]
            x, shared = core.project(step), {}
            for index, layer in enumerate(core.layers):
                x, memories[index] = take_step(layer, x, memories[index], shared)
            outputs.append(core.norm(x))
        all_outputs.append(torch.stack(outputs))
        all_memories.append([torch.stack(leaf) for leaf in zip(*memories, strict=True)])
    leaves = [torch.stack(leaf) for leaf in zip(*all_memories, strict=True)]
    return torch.stack(all_outputs), core.state_type._make(leaves)


@singledispatch
def take_step(layer: Any, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    """Take one step of one row through a layer: residual ``[d]`` and memory; later layers read ``shared`` too."""
    raise NotImplementedError(f"{type(layer).__name__} has no plain form")


@take_step.register
def _(layer: MinGRULayer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    (h,) = memory
    gate, candidate = (layer.gates.weight @ layer.norm(x) + layer.gates.bias).chunk(2)
    z = sigmoid(gate)
    c = torch.where(candidate >= 0, candidate + 0.5, sigmoid(candidate))
    h = (1 - z) * h + z * c
    return refined(layer.refine, x + layer.out.weight @ h), [h]


@take_step.register
def _(layer: RGLRULayer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    h, window = memory
    gate, u = (layer.expand.weight @ layer.norm(x) + layer.expand.bias).chunk(2)
    u, window = convolved(layer.convolution, u, window)
    blocks = [u_block @ w + b for u_block, w, b in zip(
        u.chunk(len(layer.gates.weight)), layer.gates.weight, layer.gates.bias, strict=True
    )]  # fmt: skip
    r = sigmoid(torch.cat([block.chunk(2)[0] for block in blocks]))
    i = sigmoid(torch.cat([block.chunk(2)[1] for block in blocks]))
    log_a = -8 * r * F.softplus(layer.decay)
    h = torch.exp(log_a) * h + torch.sqrt(-torch.expm1(2 * log_a)) * (i * u)  # 1 - a * a rounds to 0 where a is near 1
    g = F.gelu(gate, approximate="tanh")
    return refined(layer.refine, x + layer.out.weight @ (g * h) + layer.out.bias), [h, window]


@take_step.register
def _(layer: GatedDeltaNetLayer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    matrix, window = memory
    heads, (e, v) = layer.num_heads, layer.sizes
    mixed, gate, b, step = (layer.expand.weight @ layer.norm(x)).split(layer.split)
    mixed, window = convolved(layer.convolution, mixed, window)
    q, k, values = F.silu(mixed).split([heads * e, heads * e, heads * v])
    new, outputs = [], []
    for h in range(heads):
        q_h, k_h, v_h = unit(q[h * e : h * e + e]) / math.sqrt(e), unit(k[h * e : h * e + e]), values[h * v : h * v + v]
        a = torch.exp(-torch.exp(layer.log_rate[h]) * F.softplus(step[h] + layer.step_bias[h]))
        S = a * matrix[h]
        S = S + torch.outer(k_h, sigmoid(b[h]) * (v_h - S.T @ k_h))
        new.append(S)
        outputs.append(layer.norm_heads(S.T @ q_h) * F.silu(gate[h * v : h * v + v]))
    x = x + layer.out.weight @ torch.cat(outputs)
    return refined(layer.refine, x), [torch.stack(new), window]


@take_step.register
def _(layer: Mamba2Layer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    matrix, window = memory
    gate, mixed, step = (layer.expand.weight @ layer.norm(x)).split(layer.split)
    mixed, window = convolved(layer.convolution, mixed, window)
    u, rows, readers = F.silu(mixed).split(layer.parts)
    n, p = layer.sizes
    new, outputs = [], []
    for h in range(layer.num_heads):
        group = slice((g := h * layer.num_groups // layer.num_heads) * n, g * n + n)
        u_h = u[h * p : h * p + p]
        d = F.softplus(step[h] + layer.step_bias[h])
        S = torch.exp(-torch.exp(layer.log_rate[h]) * d) * matrix[h] + torch.outer(rows[group], d * u_h)
        new.append(S)
        outputs.append(S.T @ readers[group] + layer.skip[h] * u_h)
    read = torch.cat(outputs) * F.silu(gate)
    read = torch.cat([part * torch.rsqrt((part * part).mean() + 1e-6) for part in read.chunk(layer.num_groups)])
    return refined(layer.refine, x + layer.out.weight @ (read * layer.norm_groups)), [torch.stack(new), window]


@take_step.register
def _(layer: MLSTMLayer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    matrix, total, stabilizer = memory
    heads, (e, v) = layer.num_heads, layer.sizes
    n = layer.norm(x)
    q, k, values, gate = (layer.expand.weight @ n).split(layer.split)
    i, f = (layer.cap * torch.tanh((layer.gates.weight @ n + layer.gates.bias) / layer.cap)).chunk(2)
    matrices, totals, peaks, outputs = [], [], [], []
    for h in range(heads):
        q_h, k_h, v_h = q[h * e : h * e + e] / math.sqrt(e), k[h * e : h * e + e], values[h * v : h * v + v]
        log_f = F.logsigmoid(f[h])
        m = torch.maximum(log_f + stabilizer[h], i[h])
        forget, write = torch.exp(log_f + stabilizer[h] - m), torch.exp(i[h] - m)
        C = forget * matrix[h] + write * torch.outer(k_h, v_h)
        s = forget * total[h] + write * k_h
        read = C.T @ q_h / (torch.maximum((s @ q_h).abs(), torch.exp(-m)) + 1e-6)
        outputs.append((read - read.mean()) * torch.rsqrt(read.var(unbiased=False) + 1e-6))
        for kept, one in zip((matrices, totals, peaks), (C, s, m), strict=True):
            kept.append(one)
    read = torch.cat(outputs) * layer.norm_heads
    x = x + layer.out.weight @ (sigmoid(gate) * read)
    return refined(layer.refine, x), [torch.stack(matrices), torch.stack(totals), torch.stack(peaks)]


@take_step.register
def _(layer: RWKV7Layer, x: Tensor, memory: Leaves, shared: dict[str, Tensor]) -> tuple[Tensor, Leaves]:
    matrix, previous, forward_previous = memory
    n = layer.norm(x)
    x_r, x_w, x_k, x_v, x_a, x_g = (n + mu * (previous - n) for mu in layer.shift)
    r, k, v = layer.r.weight @ x_r, layer.k.weight @ x_k, layer.v.weight @ x_v
    w = torch.exp(-SLOWEST * sigmoid(lora(layer.decay, x_w, torch.tanh)))
    a = sigmoid(lora(layer.rate, x_a))
    lowest = shared.setdefault("values", v)
    if layer.value_mix is not None:
        v = v + (lowest - v) * sigmoid(lora(layer.value_mix, x_v))
    g = lora(layer.gate, x_g, sigmoid)
    erase, k = k * layer.erase_scale, k * (1 + layer.rate_share * (a - 1))
    e, new, outputs = len(x) // layer.num_heads, [], []
    for h in range(layer.num_heads):
        part = slice(h * e, h * e + e)
        c = unit(erase[part])
        S = w[part, None] * matrix[h] - torch.outer(a[part] * c, c @ matrix[h]) + torch.outer(k[part], v[part])
        new.append(S)
        o = S.T @ r[part]
        o = (o - o.mean()) * torch.rsqrt(o.var(unbiased=False) + 1e-5 * e)
        o = o * layer.norm_scale[h] + layer.norm_shift[h]
        outputs.append(o + (r[part] * layer.bonus[h] * k[part]).sum() * v[part])
    x = x + layer.out.weight @ (g * torch.cat(outputs))
    forward = layer.feedforward
    if forward is None:
        return x, [torch.stack(new), n, forward_previous]
    p = forward.norm(x)
    seen = p + forward.shift * (forward_previous - p)
    x = x + forward.contract.weight @ torch.relu(forward.expand.weight @ seen) ** 2
    return x, [torch.stack(new), n, p]


def sigmoid(x: Tensor) -> Tensor:
    """Return the logistic function."""
    return torch.sigmoid(x)


def unit(x: Tensor) -> Tensor:
    """Scale a vector to length 1."""
    return x / torch.sqrt(x @ x + 1e-6)


def lora(maps: LowRank, x: Tensor, activation: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    """Return bias + f(x M_1) M_2."""
    mapped = maps.up.weight @ activation(maps.down.weight @ x)
    return mapped if maps.up.bias is None else mapped + maps.up.bias


def convolved(convolution: ShortConvolution, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
    """Convolve one step ``[d]`` with those in the window ``[k - 1, d]``; also return the next window."""
    window = torch.cat((window, x[None]))
    y = torch.stack([w * step for w, step in zip(convolution.weight.T, window, strict=True)]).sum(0)
    return (y if convolution.bias is None else y + convolution.bias), window[1:]


def refined(refine: Refine, y: Tensor) -> Tensor:
    """Add the feed-forward to ``[d]``."""
    feed_forward: Any = refine.feed_forward
    if feed_forward is None or refine.norm is None:
        return y
    n = refine.norm(y)
    if not isinstance(feed_forward, GatedFeedForward):
        hidden = F.gelu(feed_forward.expand.weight @ n + feed_forward.expand.bias)
        return y + feed_forward.contract.weight @ hidden + feed_forward.contract.bias
    gate, value = (feed_forward.expand.weight @ n).chunk(2)
    gate = F.gelu(gate, approximate="tanh") if feed_forward.gelu else F.silu(gate)
    return y + feed_forward.contract.weight @ (gate * value)
