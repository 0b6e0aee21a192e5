"""The Long-Short Transformer as a plain loop: row by row, step by step, head by head.

For step t with layer input x_t, and LN_L, LN_G the two norms over the full width, per head i of width e:

    q, k, v, p = [W^Q, W^K, W^V, W^P] LN(x_t)                      p: one logit for each of r landmarks
    near:  (LN_L(k), LN_L(v)) of steps t-w ... t                    of the same episode
    far:   (LN_G(P^T K), LN_G(P^T V)) of finished segments          P = softmax over the c steps of a segment
    a = softmax over far and near of q . key / sqrt(e) + position score
    y = x_t + W^O sum a value;     x' = y + FF(LN(y))

Position scores, with s(.) the sinusoid: of a step o back, u . key + (q / sqrt(e) + v) . W_r s(o); of a landmark with n
newer ones, (q / sqrt(e)) . (W_g s(n) + b_g). A segment is c steps, counted from the start of the episode; the landmarks
of the newest ``num_segments`` finished ones are kept. ``is_first`` clears everything.

Source: Zhu et al., Long-Short Transformer (2021), equations 3, 5 and 6.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recollect.cores.contract import require_no_dropout
from recollect.cores.long_short.config import LongShortTransformerConfig
from recollect.cores.long_short.core import (
    LayerMemory,
    LongShortAttention,
    LongShortBlock,
    LongShortTransformer,
    LongShortTransformerState,
)
from recollect.cores.transformer_xl.reference import sinusoid

Pair = tuple[Tensor, Tensor]
"""Key and value, each ``[dim]``."""
Entry = tuple[Tensor, Tensor, Tensor]
"""Key, value and the logits p of all heads, ``[h*r]``."""


@dataclass
class Memory:
    """Memory of one layer of one row, oldest first; ``segment`` is the unfinished one."""

    window: list[Pair] = field(default_factory=list)
    segment: list[Entry] = field(default_factory=list)
    landmarks: list[Pair] = field(default_factory=list)


def reference_unroll(
    core: LongShortTransformer, inputs: Tensor, state: LongShortTransformerState, is_first: Tensor
) -> tuple[Tensor, LongShortTransformerState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs and without dropout; not for the two-way form.

    Raises:
        ValueError: the core is two-way, or is in training mode and has dropout.
    """
    require_no_dropout(core)
    if not core.config.causal:
        raise ValueError("causal=False: the two-way form is reference_encode")
    outputs, rows, all_steps = [], [], []
    for b in range(inputs.shape[0]):
        steps = int(state.steps[b])
        memories = [_unpack(memory, b, steps, core.config) for memory in state.layers]
        for t in range(inputs.shape[1]):
            if is_first[b, t]:
                steps, memories = 0, [Memory() for _ in memories]
            x = core.embed(inputs[b, t])
            for block, memory in zip(core.layers, memories, strict=True):
                x = _layer(block, x, memory)
            outputs.append(core.norm(x))
            steps += 1
        rows.append(memories)
        all_steps.append(steps)
    layers = [_pack([row[n] for row in rows], memory) for n, memory in enumerate(state.layers)]
    new_state = LongShortTransformerState(tuple(layers), state.steps.new_tensor(all_steps))
    return torch.stack(outputs).unflatten(0, is_first.shape), new_state


def reference_encode(core: LongShortTransformer, inputs: Tensor, padding: Tensor) -> Tensor:
    """Compute ``core.encode(inputs, padding)``, the two-way form, query by query; every row has at least one step.

    Every query reads its home segment of w steps, w/2 steps on both sides of it, and r landmarks of the whole sequence.
    """
    require_no_dropout(core)
    c, outputs = core.config, []
    width, margin = c.memory_len, max(c.memory_len // 2, 1)
    for b in range(inputs.shape[0]):
        there = [t for t in range(inputs.shape[1]) if not padding[b, t]]
        xs = {t: core.embed(inputs[b, t]) for t in there}
        for block in core.layers:
            projected = {t: _project(block.attention, block.attention_norm(xs[t])) for t in there}
            far = _landmarks(block.attention, [entry for *_, entry in projected.values()])
            for t in there:
                home = t // width * width
                near = [projected[s][1] for s in there if home - margin <= s < home + width + margin]
                xs[t] = _after_attention(block, xs[t], _attend(block.attention, projected[t][0], far, near))
        outputs += [core.norm(xs[t]) if t in xs else inputs.new_zeros(c.dim) for t in range(inputs.shape[1])]
    return torch.stack(outputs).unflatten(0, padding.shape)


def _layer(block: LongShortBlock, x: Tensor, memory: Memory) -> Tensor:
    """Run one layer on one step, ``[dim]`` to ``[dim]``, and add the step to the layer's memory."""
    attention, c = block.attention, block.attention.config
    q, pair, entry = _project(attention, block.attention_norm(x))
    near = [*memory.window, pair]
    y = _after_attention(block, x, _attend(attention, q, memory.landmarks, near))
    memory.window = near[max(len(near) - c.memory_len, 0) :]
    memory.segment = [*memory.segment, entry]
    if len(memory.segment) == c.chunk_len:
        newest = c.num_segments * c.num_landmarks
        memory.landmarks = [*memory.landmarks, *_landmarks(attention, memory.segment)][-newest:]
        memory.segment = []
    return y


def _project(attention: LongShortAttention, n: Tensor) -> tuple[Tensor, Pair, Entry]:
    """Compute the query, the key and value of the window, and the entry of the segment."""
    c = attention.config
    q, k, v, p = (attention.project.weight @ n).split([c.dim] * 3 + [c.num_heads * c.num_landmarks])
    near = attention.local_norm(k), attention.local_norm(v)
    return q, near, (*near, p) if c.normalise_first else (k, v, p)


def _landmarks(attention: LongShortAttention, segment: list[Entry]) -> list[Pair]:
    """Compute equation 3, with LN_G as in equation 6: the steps of a segment become r pairs."""
    c, keys, values = attention.config, [], []
    K, V, logits = (torch.stack(part) for part in zip(*segment, strict=True))
    e, r = c.dim // c.num_heads, c.num_landmarks
    for head in range(c.num_heads):
        P = logits[:, head * r : (head + 1) * r].softmax(0)  # c r
        part = slice(head * e, (head + 1) * e)
        keys.append(P.T @ K[:, part])
        values.append(P.T @ V[:, part])
    k, v = attention.landmark_norm(torch.cat(keys, 1)), attention.landmark_norm(torch.cat(values, 1))
    return list(zip(k, v, strict=True))


def _attend(attention: LongShortAttention, q: Tensor, far: list[Pair], near: list[Pair]) -> Tensor:
    """Answer ``[dim]`` to a query ``[dim]`` from landmarks and steps, both oldest first."""
    c = attention.config
    e, heads = c.dim // c.num_heads, []
    for head in range(c.num_heads):
        part = slice(head * e, (head + 1) * e)
        q_i = q[part] / math.sqrt(e)
        scores = []
        for place, (k, _) in enumerate(far):
            score = q_i @ k[part]
            if attention.relative:
                newer, W_g = sinusoid(len(far) - 1 - place, q), attention.landmark_position
                score = score + q_i @ (W_g.weight[part] @ newer + W_g.bias[part])
            scores.append(score)
        for place, (k, _) in enumerate(near):
            score = q_i @ k[part]
            if attention.relative:
                age, W_r = sinusoid(len(near) - 1 - place, q), attention.window_position
                u, v = attention.content_bias[head], attention.position_bias[head]
                score = score + u @ k[part] + (q_i + v) @ (W_r.weight[part] @ age)
            scores.append(score)
        a = torch.stack(scores).softmax(0)
        heads.append(sum(a_s * value[part] for a_s, (_, value) in zip(a, [*far, *near], strict=True)))
    return torch.cat(heads)


def _after_attention(block: LongShortBlock, x: Tensor, read: Tensor) -> Tensor:
    """Apply the output projection and the feed-forward block."""
    y = x + block.attention.out.weight @ read
    W_1, W_2, f = block.feed_forward.expand, block.feed_forward.contract, block.feed_forward.activation
    return y + W_2.weight @ f(W_1.weight @ block.feed_forward_norm(y) + W_1.bias) + W_2.bias


def _unpack(memory: LayerMemory, row: int, steps: int, c: LongShortTransformerConfig) -> Memory:
    """Return the lists of one row; the newest entry of a tensor is its last, and unused ones come first."""
    finished = min(steps // c.chunk_len, c.num_segments) * c.num_landmarks
    window = memory.window[row, c.memory_len - min(steps, c.memory_len) :]
    segment = memory.segment[row, c.chunk_len - 1 - steps % c.chunk_len :]
    landmarks = memory.landmarks[row, c.num_segments * c.num_landmarks - finished :]
    widths = [c.dim, c.dim, c.num_heads * c.num_landmarks]
    return Memory(
        window=[(k, v) for k, v in (entry.chunk(2) for entry in window)],
        segment=[(k, v, p) for k, v, p in (entry.split(widths) for entry in segment)],
        landmarks=[(k, v) for k, v in (entry.chunk(2) for entry in landmarks)],
    )


def _pack(memories: list[Memory], like: LayerMemory) -> LayerMemory:
    """Return the tensors of all rows of one layer, with zeros in front."""

    def stack(lists: list[list[Any]], leaf: Tensor) -> Tensor:
        rows = []
        for entries in lists:
            empty = [leaf.new_zeros(leaf.shape[2])] * (leaf.shape[1] - len(entries))
            rows += [*empty, *(torch.cat(entry) for entry in entries)]
        return torch.stack(rows).unflatten(0, leaf.shape[:2]) if rows else torch.zeros_like(leaf)

    return LayerMemory(
        stack([memory.window for memory in memories], like.window),
        stack([memory.segment for memory in memories], like.segment),
        stack([memory.landmarks for memory in memories], like.landmarks),
    )
