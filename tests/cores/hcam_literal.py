"""The equations of the hierarchical chunk memory, row by row and step by step, with lists for memories."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Memory:
    """Of one layer in one row."""

    window: list[Tensor] = field(default_factory=list)
    chunks: list[list[Tensor]] = field(default_factory=list)
    progress: list[Tensor] = field(default_factory=list)
    unsaved: int = 0


def norm(x, layer):
    return (x - x.mean()) / (x.var(unbiased=False) + layer.eps).sqrt() * layer.weight + layer.bias


def phi(offset, dim):
    """All sines, then all cosines."""
    angles = [offset / 10000 ** (j / dim) for j in range(0, dim, 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)][:dim], dtype=torch.float64)


def softmax(scores):
    total = sum((s - max(scores)).exp() for s in scores)
    return [(s - max(scores)).exp() / total for s in scores]


def parts(dim, heads):
    return [slice(i * dim // heads, (i + 1) * dim // heads) for i in range(heads)]


def local_attention(attention, x, window):
    """Transformer-XL over the window and the step itself."""
    dim, heads = len(x), attention.num_heads
    W_q, W_k, W_v = attention.qkv.weight.chunk(3)
    context = [norm(h, attention.norm) for h in [*window, x]]
    read = []
    for part in parts(dim, heads):
        q = W_q[part] @ context[-1]
        scores = []
        for s, h in enumerate(context):
            r = attention.relative.weight[part] @ phi(len(window) - s, dim)
            score = (q + attention.u[part]) @ (W_k[part] @ h) + (q + attention.v[part]) @ r
            scores.append(score / math.sqrt(dim // heads))
        read.append(sum(a * (W_v[part] @ h) for a, h in zip(softmax(scores), context, strict=True)))
    return attention.out.weight @ torch.cat(read)


def chunk_attention(memory, x, chunks):
    """Equations of the paper's section 2, in the form of the released code; 0 without chunks."""
    reading, k, dim = memory.reading, memory.top_k, len(x)
    if not chunks:
        return torch.zeros_like(x)
    query = memory.chunk_query.weight @ x
    scores = []
    for chunk in chunks:
        key = sum(chunk).detach() / len(chunk)
        key = memory.chunk_key.weight @ key if reading.key_projection else key
        scores.append(query @ key / math.sqrt(dim))
    best = sorted(range(len(chunks)), key=lambda i: -scores[i].item())[:k]
    if reading.relevance == "topk_softmax":
        relevance = dict(zip(best, softmax([scores[i] for i in best]), strict=True))
    else:
        relevance = {i: r for i, r in enumerate(softmax(scores)) if i in best}
    return sum(relevance[i] * inside(memory, x, chunks[i]) for i in best)


def inside(memory, x, chunk):
    """Multi-head attention in one chunk."""
    dim, heads = len(x), memory.num_heads
    rows = [row.detach() for row in chunk]
    if memory.reading.chunk_positions:
        rows = [row + phi(len(rows) - 1 - c, dim) for c, row in enumerate(rows)]
    read = []
    for part in parts(dim, heads):
        q = memory.query.weight[part] @ x + memory.query.bias[part]
        a = softmax([q @ (memory.key.weight[part] @ row) / math.sqrt(dim // heads) for row in rows])
        read.append(
            sum(w * (memory.value.weight[part] @ row + memory.value.bias[part]) for w, row in zip(a, rows, strict=True))
        )
    return memory.out.weight @ torch.cat(read) + memory.out.bias


def layer_step(layer, x, memory):
    """One step of one layer; then the step is remembered."""
    c = layer.config
    y = x + local_attention(layer.local, x, memory.window)
    z = y + chunk_attention(layer.memory, norm(y, layer.norm_memory), memory.chunks)
    ff = layer.feed_forward
    hidden = (ff.expand.weight @ norm(z, layer.norm_forward) + ff.expand.bias).relu()
    memory.window = [*memory.window, x][-c.memory_len :]
    memory.progress.append(x.detach())
    memory.unsaved += 1
    if len(memory.progress) == c.chunk_len:
        memory.chunks = [*memory.chunks, memory.progress][-c.num_chunks :]
        memory.progress = memory.progress[c.chunk_len - c.chunk_overlap :]
        memory.unsaved = 0
    return z + ff.contract.weight @ hidden + ff.contract.bias


def new_episode(memory, config):
    """What is_first does."""
    chunks = []
    if config.carry_across_episodes:
        chunks = memory.chunks
        if memory.unsaved:
            chunks = [*chunks, memory.progress][-config.num_chunks :]
    return Memory(chunks=chunks)


def run(core, inputs, is_first):
    """Outputs ``[b, t, dim]`` from a fresh memory, and the memories ``[row][layer]`` at the end."""
    outputs, memories = [], []
    for row, firsts in zip(inputs, is_first, strict=True):
        memory = [Memory() for _ in core.layers]
        for x, first in zip(row, firsts, strict=True):
            if first:
                memory = [new_episode(m, core.config) for m in memory]
            x = core.project(x)
            for layer, m in zip(core.layers, memory, strict=True):
                x = layer_step(layer, x, m)
            outputs.append(x)
        memories.append(memory)
    return torch.stack(outputs).unflatten(0, inputs.shape[:2]), memories


def right(entries, length, like):
    """A list of equal tensors as one tensor, right-aligned in ``length`` places, zeros before."""
    empty = [torch.zeros_like(like)] * (length - len(entries))
    return torch.stack([*empty, *entries])
