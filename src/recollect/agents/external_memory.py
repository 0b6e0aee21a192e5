"""Questions about an external memory: the first episode of a row is the memory, each later one a question.

    row         A4 B4   C1 B1   B9 C9   ...      A1 C7 C1      A3 B3 B8      ...
    is_first     1                                1             1
                |-- memory, m steps ------|      |- k questions of t steps --|

Questions are independent of each other. Each reads the memory in one of two ways:

    shared     the m steps are chunks of chunk_len steps, the same ones in every layer of a hierarchical chunk memory
    streamed   any core reads the memory as a stream, and every question continues from there

The outputs at the steps of a question are averaged before the readout.

Paper: Lampinen et al. 2021, appendix B.4, for ``shared``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.cores.contract import MemoryCore
from recollect.cores.hcam import HierarchicalChunkMemory
from recollect.cores.hcam.external_memory import read_external_memory
from recollect.state import take_rows


def layout(is_first: Tensor) -> tuple[int, int]:
    """Return the number of steps of the memory and of each question, from ``is_first`` ``[b, t]``.

    Raises:
        ValueError: the rows of the batch differ, or the questions have different lengths.
    """
    starts = is_first[0].nonzero()[:, 0].tolist()
    if len(starts) < 2 or starts[0] or bool((is_first != is_first[:1]).any()):
        raise ValueError(
            "given_memory: every row needs a memory (its first episode) and questions (the later ones) at the same "
            "steps as the other rows: give whole rows of such a task, or set given_memory='none'"
        )
    ends = [*starts[1:], is_first.shape[1]]
    lengths = {end - start for start, end in zip(starts[1:], ends[1:], strict=True)}
    if len(lengths) > 1:
        raise ValueError(f"given_memory: questions have {sorted(lengths)} steps: give all of them the same number")
    return starts[1], lengths.pop()


def read_shared(core: MemoryCore[Any], memory: Tensor, questions: Tensor) -> Tensor:
    """Answer questions ``[b, k, t, d]`` with a memory ``[b, m, d]`` as chunks of all layers: ``[b, k, t, d_out]``.

    Raises:
        ValueError: the core is no hierarchical chunk memory, or m is no multiple of its chunk_len.
    """
    if not isinstance(core, HierarchicalChunkMemory):
        raise ValueError(
            f"given_memory='shared': {type(core).__name__} has no chunks to share: use hcam, or given_memory='streamed'"
        )
    length = core.config.chunk_len
    if memory.shape[1] % length:
        raise ValueError(f"chunk_len={length}: the memory has {memory.shape[1]} steps: give a divisor of that")
    return read_external_memory(core, memory.unflatten(1, (-1, length)), questions)


def read_streamed(
    core: MemoryCore[Any], encode: Callable[[Tensor], Tensor], memory: Tensor, questions: Tensor
) -> Tensor:
    """Answer questions ``[b, k, t, d]`` from the state after a memory ``[b, m, d]``: ``[b, k, t, *core.output_shape]``.

    Args:
        core: any core.
        encode: map from items to the core's inputs.
        memory: items of the memory.
        questions: items of the questions.
    """
    (b, k), device = questions.shape[:2], memory.device
    first = torch.zeros(memory.shape[:2], dtype=torch.bool, device=device)
    first[:, 0] = True
    _, state = core(encode(memory), core.initial_state(b), first)
    forks = take_rows(state, torch.arange(b, device=device).repeat_interleave(k))
    items = questions.flatten(0, 1)
    outputs, _ = core(encode(items), forks, torch.zeros(items.shape[:2], dtype=torch.bool, device=device))
    return outputs.unflatten(0, (b, k))
