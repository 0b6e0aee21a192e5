"""The instructed temporal latent bottleneck as a plain loop over rows and steps.

    X  = [W_l + Q; X_l + P]                          the instruction of the chunk's first step, and its steps so far
    for each layer of F:  self (looking back only) or cross (reads the slots I_l)
    y  = LN(X)'s last entry
    when the chunk is complete:  I_{l+1} = G(I_l, the entries of X that are steps)

Layers are those of :mod:`recollect.cores.tlb.reference`.
"""

import torch
from torch import Tensor

from recollect.cores.contract import require_no_dropout
from recollect.cores.instructed.core import InstructedTransformer, InstructedTransformerState
from recollect.cores.tlb.reference import layer, with_slot_positions


def reference_unroll(
    core: InstructedTransformer, inputs: Tensor, state: InstructedTransformerState, is_first: Tensor
) -> tuple[Tensor, InstructedTransformerState]:
    """Compute ``core(inputs, state, is_first)`` without dropout. Every step runs its chunk again, up to itself."""
    require_no_dropout(core, attention_dropout=core.config.details.attention_dropout)
    length = core.config.chunk_len
    projected, all_words = core.split(inputs)
    zero = projected.new_zeros(core.config.dim)
    rows = []
    parts = zip(projected, all_words, is_first, *state, strict=True)
    for x, instructions, first, slots, old_inputs, words, position in parts:
        chunk = list(old_inputs[length - 1 - int(position) :])
        outputs = []
        for t in range(len(x)):
            if first[t]:
                slots, chunk = core.chunks.initial_slots()[0], []
            if not chunk:
                words = instructions[t]
            chunk.append(x[t])
            outputs.append(_read(core, words, torch.stack(chunk), slots)[0])
            if len(chunk) == length:
                _, slots = _read(core, words, torch.stack(chunk), slots)
                chunk = []
        if not chunk:
            words = torch.zeros_like(words)
        cached = torch.stack([zero] * (length - len(chunk)) + chunk)[1:]
        rows.append((torch.stack(outputs), slots, cached, words, position.new_tensor(len(chunk))))
    outputs, slots, cached, words, position = (torch.stack(part) for part in zip(*rows, strict=True))
    return outputs, InstructedTransformerState(slots, cached, words, position)


def _read(core: InstructedTransformer, words: Tensor, chunk: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of a chunk's last step ``[d]``, and the new slots ``[N, d]``."""
    m = len(words)
    x = torch.cat((words + core.waves[:m], chunk + core.waves[: len(chunk)]))
    allowed = x.new_ones(len(x), len(x), dtype=torch.bool).tril()
    (memory,) = with_slot_positions(core.chunks, [slots])
    level = core.chunks.levels[0]
    for block in (*level.before, *level.inner):
        x = layer(block, x, memory) if block.cross else layer(block, x, x, allowed)
    return core.chunks.final_norm(x[-1]), layer(level.write, memory, x[m:])
