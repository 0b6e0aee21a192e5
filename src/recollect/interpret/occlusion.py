"""Hide moments from a memory: hidden steps cannot be read any more, everything else stays.

    window of single steps      weights of hidden steps become 0, the others are divided by their sum: the softmax
                                without these keys, exactly (with ``top_k``: no further key takes a free place)
    chunks (hcam)               a chunk whose steps are all hidden has length 0 in the state, so that another takes its
                                place among the k that are read
    landmarks (long-short)      as single steps, where all steps of their segment are hidden

What a hidden step has left in later entries of the memory stays: layers above the first hold sums over the past. The
present step is never hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from recollect.cores import (
    CausalTransformer,
    HierarchicalChunkMemory,
    LongShortTransformer,
    TemporalLatentBottleneck,
    TokenTuringMachine,
    TransformerXL,
)
from recollect.cores.contract import MemoryCore
from recollect.cores.linear.stack import LinearRecurrence
from recollect.layers.tap import Tap, edit_taps, remove_keys

WINDOWED = (CausalTransformer, TransformerXL, HierarchicalChunkMemory, LongShortTransformer)
"""Cores that keep single steps or chunks of them, which can be hidden one by one."""


def can_hide_steps(core: MemoryCore[Any]) -> bool:
    """Return whether moments can be hidden from this core."""
    if isinstance(core, HierarchicalChunkMemory) and core.config.carry_across_episodes:
        return False
    return isinstance(core, WINDOWED)


def mask_of(intervals: Sequence[tuple[int, int]], steps: int, device: torch.device | None = None) -> Tensor:
    """Mark the steps inside half-open intervals, bool ``[T]``."""
    mask = torch.zeros(steps, dtype=torch.bool, device=device)
    for start, stop in intervals:
        mask[start:stop] = True
    return mask


@contextmanager
def hiding(core: MemoryCore[Any], hidden: Tensor, t: int) -> Iterator[None]:
    """Within this context a call for step t of r rows does not see hidden steps in its windows.

    Args:
        core: see :func:`can_hide_steps`.
        hidden: bool ``[r, T]``.
        t: the step.
    """
    clock = torch.full((1, 1), t, device=hidden.device)
    taps: dict[str, Tap] = {}
    editors: dict[str, Callable[[Tensor], Tensor]] = {}
    counts = torch.nn.functional.pad(hidden.long().cumsum(1), (1, 0))  # r T+1: hidden steps before each one
    for name, (first, behind) in core.attended_steps(clock).items():
        tap = core.get_submodule(name)
        if not isinstance(tap, Tap) or tap.axes != "b h t s":
            continue
        first, behind = (place.expand(1, 1, -1)[0, 0] for place in (first, behind))  # s
        exists = (first >= 0) & (first < t)
        low, high = (place.clamp(0, hidden.shape[1]) for place in (first, behind))
        gone = exists & (counts[:, high] - counts[:, low] == high - low)  # r s
        taps[name], editors[name] = tap, lambda weights, gone=gone: remove_keys(weights, gone[:, None, None])
    with edit_taps(taps, editors):
        yield


def forget_chunks(core: MemoryCore[Any], state: Any, hidden: Tensor, t: int) -> Any:
    """Remove the chunks whose steps are all hidden from the state of an hcam core; other cores keep no chunks.

    Args:
        core: any.
        state: of r rows, before step t.
        hidden: bool ``[r, T]``.
        t: the step.
    """
    if not isinstance(core, HierarchicalChunkMemory) or core.config.carry_across_episodes:
        return state
    c = core.config
    made = int(c.chunks_after(torch.tensor(t)))
    lengths = state.lengths.clone()
    for chunk in range(max(0, made - c.num_chunks), made):
        start = chunk * c.stride
        gone = hidden[:, start : start + c.chunk_len].all(1)
        place = c.num_chunks - made + chunk
        lengths[:, place] = torch.where(gone, 0, lengths[:, place])
    return state._replace(lengths=lengths)


def slots_of(core: MemoryCore[Any]) -> tuple[str, int] | None:
    """Return the name of the state's leaf with the slots, and their axis; None without slots."""
    if isinstance(core, TokenTuringMachine) and core.config.memory != "none":
        return "memory", 1
    if isinstance(core, TemporalLatentBottleneck) and core.config.feedback != "none":
        return "slots", 2
    return None


def heads_of(core: MemoryCore[Any]) -> tuple[str, int] | None:
    """Return the name of the state's leaf with a matrix for each head, and the axis of the heads; None without."""
    return ("matrix", 2) if isinstance(core, LinearRecurrence) and "matrix" in core.state_type._fields else None


def reset_parts(core: MemoryCore[Any], state: Any, name: str, axis: int) -> Any:
    """Expand the state of one row to one row per slot or head, in which that one is as at the start of an episode."""
    kept, fresh = getattr(state, name), getattr(core.initial_state(1), name)
    number = kept.shape[axis]
    own = torch.eye(number, dtype=torch.bool, device=kept.device)  # row i, slot i
    own = own.reshape(number, *[1] * (axis - 1), number, *[1] * (kept.ndim - axis - 1))
    rows = {field: leaf.expand(number, *leaf.shape[1:]) for field, leaf in state._asdict().items()}
    return state._replace(**(rows | {name: torch.where(own, fresh, kept)}))
