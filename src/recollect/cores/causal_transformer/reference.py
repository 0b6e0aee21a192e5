"""The causal Transformer as a plain loop: row by row, step by step, head by head.

For step t, its layer input x_t, and the steps s = t-w ... t of the same episode, with n = LayerNorm and, per head of
width e, the rotation rot_s of position s (Su et al., RoFormer, 2021, equations 14-15):

    q = W_q n(x_t)     k_s = W_k n(x_s)     v_s = W_v n(x_s)
    a_s = softmax_s( (rot_t q) . (rot_s k_s) / sqrt(e) + c_{t-s} )
    y = x_t + W_o sum_s a_s v_s
    x' = y + W_2 f(W_1 n(y) + b_1) + b_2

Without ``positions="rotary"`` rot is the identity; without ``positions="bias"`` c is 0. Each layer remembers (k_s, v_s)
of its last w steps; ``is_first`` clears them.
"""

import math

import torch
from torch import Tensor

from recollect.cores.causal_transformer.core import CausalTransformer, CausalTransformerLayer, CausalTransformerState
from recollect.cores.contract import require_no_dropout

Entry = tuple[Tensor, Tensor]
"""Key and value of one step, each ``[dim]``; the key is not rotated."""


def reference_unroll(
    core: CausalTransformer, inputs: Tensor, state: CausalTransformerState, is_first: Tensor
) -> tuple[Tensor, CausalTransformerState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs and without dropout."""
    require_no_dropout(core)
    c, w = core.config, core.config.memory_len
    outputs, keys, values, counts = [], [], [], []
    for b in range(inputs.shape[0]):
        unused = w - int(state.count[b])
        caches: list[list[Entry]] = [
            list(zip(state.keys[b, n, unused:], state.values[b, n, unused:], strict=True)) for n in range(c.num_layers)
        ]
        for t in range(inputs.shape[1]):
            if is_first[b, t]:
                caches = [[] for _ in caches]
            x = core.project(inputs[b, t])
            for n, layer in enumerate(core.layers):
                x, entry = _layer(layer, x, caches[n])
                caches[n] = [*caches[n], entry][-w:]
            outputs.append(core.norm(x))
        empty = [(state.keys.new_zeros(c.dim), state.values.new_zeros(c.dim))] * (w - len(caches[0]))
        keys.append(torch.stack([torch.stack([k for k, _ in [*empty, *cache]]) for cache in caches]))
        values.append(torch.stack([torch.stack([v for _, v in [*empty, *cache]]) for cache in caches]))
        counts.append(len(caches[0]))
    new_state = CausalTransformerState(torch.stack(keys), torch.stack(values), state.count.new_tensor(counts))
    return torch.stack(outputs).unflatten(0, is_first.shape), new_state


def _layer(layer: CausalTransformerLayer, x: Tensor, past: list[Entry]) -> tuple[Tensor, Entry]:
    """Run one layer on one step: return its output ``[dim]``, and the key and value to remember."""
    W_q, W_k, W_v = layer.qkv.weight.chunk(3)
    n = layer.norm_attention(x)
    q, new = W_q @ n, (W_k @ n, W_v @ n)
    window, t = [*past, new], len(past)  # only t - s counts, so the oldest step may be at position 0
    e = len(x) // layer.num_heads
    heads = []
    for head in range(layer.num_heads):
        part = slice(head * e, (head + 1) * e)
        scores = []
        for s, (k_s, _) in enumerate(window):
            if layer.rotary:
                score = _rotate(q[part], t) @ _rotate(k_s[part], s) / math.sqrt(e)
            else:
                score = q[part] @ k_s[part] / math.sqrt(e)
            if layer.bias is not None:
                score = score + layer.bias[head, layer.bias.shape[1] - 1 - (t - s)]
            scores.append(score)
        a = torch.stack(scores).softmax(0)
        heads.append(sum(a_s * v_s[part] for a_s, (_, v_s) in zip(a, window, strict=True)))
    y = x + layer.out.weight @ torch.cat(heads)
    W_1, W_2 = layer.feed_forward.expand, layer.feed_forward.contract
    f = layer.feed_forward.activation
    return y + W_2.weight @ f(W_1.weight @ layer.norm_forward(y) + W_1.bias) + W_2.bias, new


def _rotate(vector: Tensor, position: int) -> Tensor:
    """Turn channels j and j + e/2 of ``[e]`` by the angle position * 10000^(-2j/e)."""
    e = len(vector)
    angles = torch.tensor([position * 10000 ** (-2 * j / e) for j in range(e // 2)], dtype=torch.float64)
    cos, sin = angles.cos().to(vector), angles.sin().to(vector)
    first, second = vector.chunk(2)
    return torch.cat((first * cos - second * sin, second * cos + first * sin))
