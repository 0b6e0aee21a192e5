"""TimeSformer with a memory as a plain loop: row by row, step by step, place by place, head by head.

For place p of frame t, with its token x_p, the cached tokens without time z_s of the frames s = t-w ... t of the same
episode, and P_a the row of the table of times for age a, per head of width e:

    q = W_q LN(x_p)        k_sq = W_k LN(z_sq + P_{t-s})        v_sq = W_v LN(z_sq + P_{t-s})
    divided:  alpha_s  = softmax over s of      q k_sp / sqrt(e)        a = sum_s alpha_s v_sp          equation 2.35
    joint:    alpha_sq = softmax over s, q of   q k_sq / sqrt(e)        a = sum_sq alpha_sq v_sq        equation 2.34

The divided form continues with a linear map of the answer, and with attention to the places of the frame itself
(equation 2.36); both forms end with a feed-forward. Cached tokens are centered, which the norms do not see.

Source: George 2021, sections 2.9 and 3.4.
"""

import math

import torch
from torch import Tensor, nn

from recollect.cores.timesformer.core import TimeSformer, TimeSformerLayer, TimeSformerState

Frame = list[Tensor]
"""The tokens ``[d]`` of a frame, place by place."""


def reference_unroll(
    core: TimeSformer, inputs: Tensor, state: TimeSformerState, is_first: Tensor
) -> tuple[Tensor, TimeSformerState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs."""
    c, w = core.config, core.config.memory_len
    outputs, windows, counts = [], [], []
    for b in range(inputs.shape[0]):
        unused = w - int(state.count[b])
        memories = [[list(frame) for frame in state.window[b, n, unused:]] for n in range(c.num_layers)]
        for t in range(inputs.shape[1]):
            if is_first[b, t]:
                memories = [[] for _ in memories]
            size = core.places * core.channels
            tokens = [core.project(place) for place in inputs[b, t, :size].split(core.channels)]
            x = [token + core.space[p] + core.time[-1] for p, token in enumerate(tokens)]
            for n, layer in enumerate(core.layers):
                now = [x_p - core.time[-1] for x_p in x]
                past, memories[n] = memories[n], [*memories[n], [z - z.mean() for z in now]][-w:]
                x = _layer(core, layer, x, [*past, now])
            output = core.out(torch.cat([core.norm(x_p) for x_p in x]))
            outputs.append(torch.cat((output, inputs[b, t, size:])))
        empty = [state.window.new_zeros(core.places, c.token_dim)] * (w - len(memories[0]))
        frames = [torch.stack([*empty, *map(torch.stack, memory)]) for memory in memories]
        windows.append(torch.stack(frames))
        counts.append(len(memories[0]))
    new_state = TimeSformerState(torch.stack(windows), state.count.new_tensor(counts))
    return torch.stack(outputs).unflatten(0, is_first.shape), new_state


def _layer(core: TimeSformer, layer: TimeSformerLayer, x: Frame, frames: list[Frame]) -> Frame:
    """Run one layer on one frame, with the frames of its window, oldest first and itself last, all without time."""
    times = core.time[-len(frames) :]
    window = layer.window_attention
    aged = [[window.norm(z + time) for z in frame] for frame, time in zip(frames, times, strict=True)]
    y = []
    for p, x_p in enumerate(x):
        seen = [token for frame in aged for token in (frame if layer.time_out is None else [frame[p]])]
        answer = window.out(_attend(window.qkv.weight, window.num_heads, window.norm(x_p), seen))
        y.append(x_p + (answer if layer.time_out is None else layer.time_out(answer)))
    space = layer.space_attention
    if space is not None:
        seen = [space.norm(y_p) for y_p in y]
        answers = [space.out(_attend(space.qkv.weight, space.num_heads, query, seen)) for query in seen]
        y = [y_p + answer for y_p, answer in zip(y, answers, strict=True)]
    W_1, W_2 = layer.feed_forward.expand, layer.feed_forward.contract
    gelu = nn.GELU()
    return [y_p + W_2(gelu(W_1(layer.norm_forward(y_p)))) for y_p in y]


def _attend(weight: Tensor, num_heads: int, query: Tensor, seen: list[Tensor]) -> Tensor:
    """Attend with one normed query ``[d]`` to the normed tokens that it may see."""
    W_q, W_k, W_v = weight.chunk(3)
    e = len(query) // num_heads
    heads = []
    for head in range(num_heads):
        part = slice(head * e, (head + 1) * e)
        q = (W_q @ query)[part]
        scores = [q @ (W_k @ token)[part] / math.sqrt(e) for token in seen]
        weights = torch.stack(scores).softmax(0)
        heads.append(sum(a * (W_v @ token)[part] for a, token in zip(weights, seen, strict=True)))
    return torch.cat(heads)
