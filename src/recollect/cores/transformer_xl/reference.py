"""Transformer-XL and GTrXL as a plain loop: row by row, step by step, head by head.

For step t, its layer input h_t, and the layer inputs h_s of the steps s = t-w ... t of the same episode, with
n = LayerNorm and, per head of width e, the sinusoid phi(o) of the offset o = t - s:

    q = W_q n(h_t)     k_s = W_k n(h_s)     v_s = W_v n(h_s)     r_o = W_r phi(o)
    a_s = softmax_s( ((q + u) . k_s + (q + v) . r_{t-s}) / sqrt(e) )
    x = g(h_t, act(W_o sum_s a_s v_s))
    x' = g(x, act(W_2 f(W_1 n(x) + b_1) + b_2))

``positions="learned"`` has a table P instead: q = W_q (n(h_t) + P_0), k_s = W_k (n(h_s) + P_{t-s}). With ``top_k`` the
softmax runs over the k largest scores. ``g`` is a sum or GTrXL's gate (Parisotto et al., 2020, section 3.2). Each layer
remembers its last w inputs h_s; ``is_first`` clears them.

Source: Dai et al., Transformer-XL (2019), section 3.3.
"""

import math

import torch
from torch import Tensor, nn

from recollect.cores.contract import require_no_dropout
from recollect.cores.transformer_xl.core import TransformerXL, TransformerXLLayer, TransformerXLState
from recollect.layers.gates import GRUGate


def reference_unroll(
    core: TransformerXL, inputs: Tensor, state: TransformerXLState, is_first: Tensor
) -> tuple[Tensor, TransformerXLState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs and without dropout."""
    c, w = core.config, core.config.memory_len
    require_no_dropout(core)
    outputs, windows, counts = [], [], []
    for b in range(inputs.shape[0]):
        unused = w - int(state.count[b])
        memories = [list(state.window[b, n, unused:]) for n in range(c.num_layers)]
        for t in range(inputs.shape[1]):
            if is_first[b, t]:
                memories = [[] for _ in memories]
            x = core.project(inputs[b, t])
            for n, layer in enumerate(core.layers):
                past, memories[n] = memories[n], [*memories[n], x][-w:]
                x = _layer(core, layer, x, past)
            outputs.append(core.norm(x))
        empty = [state.window.new_zeros(c.dim)] * (w - len(memories[0]))
        windows.append(torch.stack([torch.stack([*empty, *memory]) for memory in memories]))
        counts.append(len(memories[0]))
    new_state = TransformerXLState(torch.stack(windows), state.count.new_tensor(counts))
    return torch.stack(outputs).unflatten(0, is_first.shape), new_state


def _layer(core: TransformerXL, layer: TransformerXLLayer, h: Tensor, past: list[Tensor]) -> Tensor:
    """Run one layer on one step, ``[dim]`` to ``[dim]``, with the inputs ``[dim]`` of at most w steps before it."""
    c, t = core.config, len(past)
    e = c.dim // c.num_heads
    W_q, W_k, W_v = layer.qkv.weight.chunk(3)
    n = [layer.norm_attention(h_s) for h_s in [*past, h]]
    table = core.table  # row w is offset 0
    q = W_q @ (n[t] if table is None else n[t] + table[c.memory_len])
    k = [W_k @ (n_s if table is None else n_s + table[c.memory_len - (t - s)]) for s, n_s in enumerate(n)]
    v = [W_v @ n_s for n_s in n]
    r = [] if layer.relative is None else [layer.relative.weight @ sinusoid(t - s, h) for s in range(t + 1)]
    heads = []
    for head in range(c.num_heads):
        part = slice(head * e, (head + 1) * e)
        scores = []
        for s in range(t + 1):
            if core.u is None or core.v is None:
                score = q[part] @ k[s][part]
            else:
                score = (q + core.u)[part] @ k[s][part] + (q + core.v)[part] @ r[s][part]
            scores.append(score / math.sqrt(e))
        kept = range(t + 1) if c.top_k is None else torch.stack(scores).topk(min(c.top_k, t + 1)).indices.tolist()
        a = torch.stack([scores[s] for s in kept]).softmax(0)
        heads.append(sum(a_s * v[s][part] for a_s, s in zip(a, kept, strict=True)))
    y = layer.out.weight @ torch.cat(heads)
    x = _gate(layer.gate_attention, h, y.relu() if c.relu_outputs else y)
    W_1, W_2, f = layer.feed_forward.expand, layer.feed_forward.contract, layer.feed_forward.activation
    z = W_2.weight @ f(W_1.weight @ layer.norm_forward(x) + W_1.bias) + W_2.bias
    return _gate(layer.gate_forward, x, z.relu() if c.relu_outputs else z)


def sinusoid(offset: int, like: Tensor) -> Tensor:
    """Compute the sinusoid ``[dim]`` of an offset, all sines before all cosines."""
    dim = len(like)
    angles = [offset / 10000 ** (j / dim) for j in range(0, dim, 2)]
    return like.new_tensor([*map(math.sin, angles), *map(math.cos, angles)][:dim])


def _gate(gate: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Add the output y of a sub-layer to the stream x: a sum, or the gate g(x, y)."""
    if not isinstance(gate, GRUGate):
        return x + y
    W_r, W_z, W_h = gate.from_update.weight.chunk(3)
    U_r, U_z = gate.from_stream.weight.chunk(2)
    U_h = gate.from_reset.weight
    r = torch.sigmoid(W_r @ y + U_r @ x)
    z = torch.sigmoid(W_z @ y + U_z @ x - gate.bias)
    h = torch.tanh(W_h @ y + U_h @ (r * x))
    return (1 - z) * x + z * h
