"""The hierarchical chunk memory as a plain loop over rows, steps, layers and heads.

A layer maps its input x to x'. n is LayerNorm, W_1 and W_2 are those of the feed-forward:

    y  = x + LocalAttention(n(x); window)                     Transformer-XL, Dai et al. 2019, section 3.3
    z  = y + sum_{i in the k largest} R_i MHA(n(y), C_i + P)  Lampinen et al. 2021, section 2
    x' = z + W_2 relu(W_1 n(z) + b_1) + b_2

    R  = softmax(W_q n(y) . W_k S / sqrt(d))                  relevance of the chunks C_i with summaries S_i

``ChunkAttentionVariant`` sets whether every ``+`` is a gate (:func:`join`), whether the softmax is over the chosen
chunks or over all, and whether there are W_k and P. Then x is added to the window; the last step of a chunk also adds
the chunk to the memory, with the mean of its steps as summary, detached unless ``chunk_gradients="call"``.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import require_no_dropout
from recollect.cores.hcam.attention import HierarchicalAttention, LocalAttention
from recollect.cores.hcam.core import (
    HierarchicalChunkLayer,
    HierarchicalChunkMemory,
    HierarchicalChunkMemoryConfig,
    HierarchicalChunkMemoryState,
    LayerMemory,
)
from recollect.layers.gates import GRUGate


class Chunk(NamedTuple):
    """Consecutive steps of an episode that are stored together."""

    steps: Tensor
    """C_i ``[c, d]``: layer inputs, the oldest first; fewer than c where an episode ended early."""
    summary: Tensor
    """S_i ``[d]``: their mean."""


class Memory(NamedTuple):
    """State of one layer and row."""

    window: list[Tensor]
    """The last ``memory_len`` inputs ``[d]`` of the episode, the oldest first."""
    chunks: list[Chunk]
    """The last ``num_chunks`` chunks, the oldest first."""


def reference_unroll(
    core: HierarchicalChunkMemory, inputs: Tensor, state: HierarchicalChunkMemoryState, is_first: Tensor
) -> tuple[Tensor, HierarchicalChunkMemoryState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs and without dropout.

    Raises:
        ValueError: the core is in training mode and has dropout.
    """
    require_no_dropout(core)
    config = core.config
    outputs, memories, counts = [], [], []
    for row in range(inputs.shape[0]):
        steps = int(state.steps[row])  # of the running episode
        memory = [unpacked(config, layer, state.lengths, row, steps) for layer in state.layers]
        for t in range(inputs.shape[1]):
            if is_first[row, t]:
                memory = [new_episode(config, layer_memory, steps) for layer_memory in memory]
                steps = 0
            x, steps = core.project(inputs[row, t]), steps + 1
            for i, layer in enumerate(core.layers):
                before, x = x, layer_output(layer, x, memory[i])
                memory[i] = remember(config, before, memory[i], steps)
            outputs.append(x)
        memories.append(memory)
        counts.append(steps)
    return torch.stack(outputs).unflatten(0, is_first.shape), packed(memories, counts, state)


def layer_output(layer: HierarchicalChunkLayer, x: Tensor, memory: Memory) -> Tensor:
    """Compute one layer at one step, ``[d] -> [d]``."""
    y = join(layer.gate_local, x, local_attention(layer.local, x, memory.window))
    z = join(layer.gate_memory, y, chunk_attention(layer.memory, layer.norm_memory(y), memory.chunks))
    first, second = layer.feed_forward.expand, layer.feed_forward.contract
    hidden = F.relu(F.linear(layer.norm_forward(z), first.weight, first.bias))
    return join(layer.gate_forward, z, F.linear(hidden, second.weight, second.bias))


def join(gate: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return x + y, or the gate of GTrXL: (1 - z) x + z tanh(W_h y + U_h (r x))."""
    if not isinstance(gate, GRUGate):
        return x + y
    to_r, to_z, to_h = gate.from_update.weight.chunk(3)
    from_r, from_z = gate.from_stream.weight.chunk(2)
    r = torch.sigmoid(to_r @ y + from_r @ x)
    z = torch.sigmoid(to_z @ y + from_z @ x - gate.bias)
    return (1 - z) * x + z * torch.tanh(to_h @ y + gate.from_reset.weight @ (r * x))


def local_attention(attention: LocalAttention, x: Tensor, window: list[Tensor]) -> Tensor:
    """Attend to the window and x: a_s = softmax_s( ((q + u) k_s + (q + v) W_r phi(t - s)) / sqrt(e) )."""
    context = attention.norm(torch.stack([*window, x]))  # s d
    offsets = phi(len(context), x)  # s d
    to_q, to_k, to_v = attention.qkv.weight.chunk(3)
    read = []
    for head in slices(len(x), attention.num_heads):
        q = to_q[head] @ context[-1]  # e
        k, v, r = context @ to_k[head].T, context @ to_v[head].T, offsets @ attention.relative.weight[head].T  # s e
        scores = (k @ (q + attention.u[head]) + r @ (q + attention.v[head])) / math.sqrt(len(q))
        read.append(scores.softmax(0) @ v)
    return attention.out.weight @ torch.cat(read)


def chunk_attention(attention: HierarchicalAttention, x: Tensor, chunks: list[Chunk]) -> Tensor:
    """Return sum_i R_i MHA(x, C_i + P) over the k most relevant chunks; 0 without chunks."""
    total = torch.zeros_like(x)
    if not chunks:
        return total
    keys = torch.stack([chunk.summary for chunk in chunks])  # n d
    if attention.chunk_key is not None:
        keys = keys @ attention.chunk_key.weight.T
    queries, heads = attention.chunk_query.weight @ x, slices(len(x), attention.num_heads)
    if not attention.reading.relevance_heads:
        for i, share in relevances(attention, queries, keys):
            read = [head_inside(attention, head, x, chunks[i].steps) for head in heads]
            total = total + share * (attention.out.weight @ torch.cat(read) + attention.out.bias)
        return total
    # Each head has its own relevances, whose mean over heads scales the bias.
    for head in heads:
        for i, share in relevances(attention, queries[head], keys[:, head]):
            read = attention.out.weight[:, head] @ head_inside(attention, head, x, chunks[i].steps)
            total = total + share * (read + attention.out.bias / len(heads))
    return total


def relevances(attention: HierarchicalAttention, query: Tensor, keys: Tensor) -> list[tuple[int, Tensor]]:
    """Return the k most relevant of n chunks and their R, for a query ``[f]`` and keys ``[n, f]``."""
    scores = keys @ query / math.sqrt(len(query))  # n
    best = scores.topk(min(attention.top_k, len(keys))).indices  # k
    over_chosen = attention.reading.relevance == "topk_softmax"
    shares = scores[best].softmax(0) if over_chosen else scores.softmax(0)[best]
    return list(zip(best.tolist(), shares, strict=True))


def head_inside(attention: HierarchicalAttention, head: slice, x: Tensor, chunk: Tensor) -> Tensor:
    """Return one head ``[e]`` of MHA(x, C + P) for a chunk C ``[c, d]``, before the output weights."""
    if attention.reading.chunk_positions:
        chunk = chunk + phi(len(chunk), x)
    q = attention.query.weight[head] @ x + attention.query.bias[head]  # e
    k = chunk @ attention.key.weight[head].T  # c e
    v = chunk @ attention.value.weight[head].T + attention.value.bias[head]
    return (k @ q / math.sqrt(len(q))).softmax(0) @ v


def phi(length: int, like: Tensor) -> Tensor:
    """Return sinusoids of the ages length - 1 ... 0, ``[length, d]``: all sines, then all cosines."""
    d = len(like)
    frequencies = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(length - 1, -1, -1)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)[:, :d].to(like)


def slices(dim: int, heads: int) -> list[slice]:
    """Return the features of each head."""
    return [slice(i * dim // heads, (i + 1) * dim // heads) for i in range(heads)]


def remember(config: HierarchicalChunkMemoryConfig, x: Tensor, memory: Memory, steps: int) -> Memory:
    """Return the memory after the layer input x ``[d]`` of step ``steps`` (from 1), which may complete a chunk."""
    episode, chunks = [*memory.window, x], memory.chunks
    if config.completes(steps):
        chunks = with_chunk(config, chunks, episode[-config.chunk_len :])
    return Memory(episode[-config.memory_len :], chunks)


def new_episode(config: HierarchicalChunkMemoryConfig, memory: Memory, steps: int) -> Memory:
    """Return the memory after ``is_first`` ended an episode of ``steps`` steps."""
    if not config.carry_across_episodes:
        return Memory([], [])
    chunks = memory.chunks
    if steps > 0 and not config.completes(steps):  # the last steps are in no chunk yet
        chunks = with_chunk(config, chunks, memory.window[-int(config.in_progress(torch.tensor(steps))) :])
    return Memory([], chunks)


def with_chunk(config: HierarchicalChunkMemoryConfig, chunks: list[Chunk], steps: list[Tensor]) -> list[Chunk]:
    """Append a chunk; remove the oldest when there are too many."""
    contents = config.reading.stored(torch.stack(steps))
    return [*chunks, Chunk(contents, contents.mean(0))][-config.num_chunks :]


def unpacked(
    config: HierarchicalChunkMemoryConfig, layer: LayerMemory, lengths: Tensor, row: int, steps: int
) -> Memory:
    """Return one layer and row of a state, after ``steps`` steps of the episode."""
    stored, held = config.reading.stored, min(steps, config.memory_len)
    window = list(layer.window[row])
    chunks = [
        Chunk(stored(contents[-length:]), stored(key))
        for contents, key, length in zip(layer.contents[row], layer.keys[row], lengths[row].tolist(), strict=True)
        if length > 0
    ]
    return Memory(window[len(window) - held :], chunks)


def packed(
    memories: list[list[Memory]], counts: list[int], like: HierarchicalChunkMemoryState
) -> HierarchicalChunkMemoryState:
    """Return the memories ``[row][layer]`` as a state with the shapes and dtypes of ``like``."""
    layers = []
    for i, old in enumerate(like.layers):
        windows, contents, keys = [], [], []
        for row, memory in enumerate(memories):
            windows.append(right_aligned(memory[i].window, old.window[row]))
            chunks = [right_aligned(list(chunk.steps), old.contents[row, 0]) for chunk in memory[i].chunks]
            contents.append(right_aligned(chunks, old.contents[row]))
            keys.append(right_aligned([chunk.summary for chunk in memory[i].chunks], old.keys[row]))
        layers.append(LayerMemory(torch.stack(windows), torch.stack(contents), torch.stack(keys)))
    lengths = []
    for row, memory in enumerate(memories):
        found = [torch.tensor(len(chunk.steps)).to(like.lengths) for chunk in memory[0].chunks]
        lengths.append(right_aligned(found, like.lengths[row]))
    return HierarchicalChunkMemoryState(tuple(layers), torch.stack(lengths), torch.tensor(counts).to(like.steps))


def right_aligned(entries: list[Tensor], like: Tensor) -> Tensor:
    """Stack tensors as the last ones of ``[n, ...]``, after zeros; n and the dtype are those of ``like``."""
    missing = [torch.zeros_like(entry) for entry in like[: len(like) - len(entries)]]
    return torch.stack([*missing, *entries])
