"""The temporal latent bottleneck as a plain loop over rows and chunks.

For chunk l, with the steps X_l ``[k, d]`` read so far and the slots I_l ``[N, d]`` from before the chunk:

    X  = X_l + P
    for each layer of F:
        self    X = X + ATTENTION(LN(X), LN(X), LN(X)),         X = X + FFN(LN(X))      looking back only
        cross   X = X + ATTENTION(LN(X), LN(I_l), LN(I_l)),     X = X + FFN(LN(X))      (3)
    y  = LN(X)                                                                          (1)
    G:  I' = I_l + ATTENTION(LN(I_l), LN(X), LN(X)),            I_{l+1} = I' + FFN(LN(I'))   (2), (4)

    ATTENTION(Q, K, V) = concat over heads of  softmax(Q W_q (K W_k)^T / sqrt(e)) V W_v,  times W_o

Didolkar et al. 2022, section 2.2, equations 1-4 and algorithm 1. With ``feedback="per_layer"`` there are several slow
states, each read by its own cross layer and written from that layer's output.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.cores.contract import require_no_dropout
from recollect.cores.tlb.blocks import PreNormBlock
from recollect.cores.tlb.core import TemporalLatentBottleneck, TemporalLatentBottleneckState


def reference_unroll(
    core: TemporalLatentBottleneck, inputs: Tensor, state: TemporalLatentBottleneckState, is_first: Tensor
) -> tuple[Tensor, TemporalLatentBottleneckState]:
    """Compute ``core(inputs, state, is_first)`` without dropout. Every step runs its chunk again, up to itself."""
    require_no_dropout(core, attention_dropout=core.config.details.attention_dropout)
    length, stretch = core.config.chunk_len, core.config.details.detach_every
    projected = core.project(inputs)  # b t d
    zero = projected.new_zeros(core.config.dim)
    rows = []
    for x, first, old_slots, old_inputs, old_position in zip(projected, is_first, *state, strict=True):
        slots = list(old_slots)  # I_l of each slow state
        position = int(old_position)  # steps of the episode so far
        chunk = list(old_inputs[length - 1 - position % length :])  # X_l
        outputs = []
        for t in range(len(x)):
            if first[t]:
                slots, chunk, position = list(core.initial_slots()), [], 0
            chunk.append(x[t])
            if begins_stretch(core, position // length):
                slots = [memory.detach() for memory in slots]
            y, written = read_chunk(core, torch.stack(chunk), with_slot_positions(core, slots))
            outputs.append(y[-1])
            if len(chunk) == length:
                slots, chunk = written, []
            position += 1
        if stretch is None:
            position %= length
        elif position >= length:  # includes the number of the chunk: 0, then 1 to m in turn
            position = length + (position - length) % (length * stretch)
        cached = torch.stack([zero] * (length - len(chunk)) + chunk)[1:]
        rows.append((torch.stack(outputs), torch.stack(slots), cached, old_position.new_tensor(position)))
    outputs, slots, cached, position = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return outputs, TemporalLatentBottleneckState(slots, cached, position)


def reference_encode(
    core: TemporalLatentBottleneck,
    inputs: Tensor,
    padding: Tensor | None = None,
    *,
    remainder: Literal["update", "drop"] = "update",
    chunk_len: int | None = None,
) -> tuple[Tensor, TemporalLatentBottleneckState]:
    """Compute ``core.encode`` with the same arguments, on finite inputs."""
    require_no_dropout(core, attention_dropout=core.config.details.attention_dropout)
    length, state = chunk_len or core.config.chunk_len, core.initial_state(len(inputs))
    padding = torch.zeros(inputs.shape[:2], dtype=torch.bool, device=inputs.device) if padding is None else padding
    projected = core.project(torch.where(padding[..., None], 0.0, inputs))
    rows = []
    for x, blank in zip(projected, padding, strict=True):
        slots, outputs = list(core.initial_slots()), []
        end = max((~blank).nonzero().flatten().tolist(), default=-1) + 1  # steps of the row, holes included
        for number, begin in enumerate(range(0, len(x), length)):
            chunk, seen = x[begin : begin + length], ~blank[begin : begin + length]
            if begins_stretch(core, number):
                slots = [memory.detach() for memory in slots]
            used = with_slot_positions(core, slots)
            y, written = read_chunk(core, chunk, used, seen)
            outputs.append(torch.where(seen[:, None], y, 0.0))
            whole = begin + length <= end or (len(chunk) == length and not seen.any())
            if whole or remainder == "update":
                stays = used if core.config.details.empty_chunk == "add_slots" else slots
                slots = written if seen.any() else stays
        rows.append((torch.cat(outputs), torch.stack(slots)))
    outputs, slots = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return outputs, state._replace(slots=slots)


def read_chunk(
    core: TemporalLatentBottleneck, chunk: Tensor, slots: Sequence[Tensor], seen: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Compute equations 1 and 2 for one chunk ``[k, d]`` of one row, with slots ``[N, d]`` for each slow state.

    Returns outputs ``[k, d]`` and the new slots. ``seen`` bool ``[k]`` are the visible steps; None: all.
    """
    k, positions = len(chunk), core.local_positions()
    seen = chunk.new_ones(k, dtype=torch.bool) if seen is None else seen
    allowed = seen.expand(k, k)  # the step of a row may read that of a column
    allowed = allowed.tril() if core.config.causal else allowed
    x = chunk if positions is None else chunk + positions[:k]
    written = []
    for level, memory in zip(core.levels, slots, strict=True):
        for block in (*level.before, *level.inner):
            x = layer(block, x, memory) if block.cross else layer(block, x, x, allowed)
        written.append(layer(level.write, memory, x, seen))
    for block in core.tail:
        x = layer(block, x, x, allowed)
    return core.final_norm(x), written


def layer(block: PreNormBlock, x: Tensor, source: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Add attention to a source ``[s, d]`` and feed-forward to the stream ``[q, d]``.

    ``allowed`` bool ``[q, s]`` or ``[s]``; None allows all.
    """
    attention, feedforward = block.attention, block.feedforward
    queries = F.linear(block.norm(x), attention.query.weight)
    keys = F.linear(block.key_norm(source), attention.key.weight)
    values = F.linear(block.value_norm(source), attention.value.weight)
    allowed = x.new_ones(len(x), len(source), dtype=torch.bool) if allowed is None else allowed
    heads = []
    for q, k, v in zip(*(part.chunk(attention.num_heads, -1) for part in (queries, keys, values)), strict=True):
        scores = (q @ k.T) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)
        heads.append((weights * allowed) @ v)  # zeros where nothing may be read
    x = x + F.linear(torch.cat(heads, -1), attention.out.weight)
    if feedforward is None or block.norm_feedforward is None:
        return x
    hidden = F.linear(block.norm_feedforward(x), feedforward.expand.weight, feedforward.expand.bias)
    return x + F.linear(feedforward.activation(hidden), feedforward.contract.weight, feedforward.contract.bias)


def with_slot_positions(core: TemporalLatentBottleneck, slots: list[Tensor]) -> list[Tensor]:
    """Add a sinusoid to the slots, if the variant adds it at every chunk."""
    if core.config.details.initial_slots != "sinusoid_every_chunk":
        return slots
    return [memory + core.waves[: core.config.num_slots] for memory in slots]


def begins_stretch(core: TemporalLatentBottleneck, number: int) -> bool:
    """Whether gradients are cut before a chunk, by its number in the episode."""
    stretch = core.config.details.detach_every
    return stretch is not None and number > 0 and number % stretch == 0
