"""What a memory is used for: the policy with it and without it.

    KL_t,c = KL( pi(. | memory before step t) || pi(. | the same without chunk c) )        dV_t,c = V without c - V

The memory at step t is that of the episode as it was: only this step's reading is changed. See occlusion.py for what it
means that a chunk is not there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCriticOutput
from recollect.cores import HierarchicalChunkMemory
from recollect.interpret.occlusion import can_hide_steps, forget_chunks, hiding, reset_slots, slots_of
from recollect.interpret.playback import Playback
from recollect.interpret.record import Removal
from recollect.state import concatenate, take_rows

Chunks = Sequence[tuple[int, int]]


@torch.no_grad()
def measure_removal(playback: Playback, chunks: Chunks, unit: str | None = None) -> Removal:
    """Take away every chunk at every step, one at a time: T forward passes with a row per chunk.

    Args:
        playback: of the episode.
        chunks: half-open intervals of steps.
        unit: ``chunk``, ``slot`` or ``all``; None takes the finest that the core has.

    Raises:
        ValueError: the core has no such unit.
    """
    core = playback.agent.core
    possible = {"chunk": can_hide_steps(core), "slot": slots_of(core) is not None, "all": True}
    unit = next(name for name, has in possible.items() if has) if unit is None else unit
    if not possible.get(unit, False):
        remedy = ", ".join(name for name, has in possible.items() if has)
        raise ValueError(f"unit={unit!r}: a {type(core).__name__} has {remedy}")
    if unit == "chunk":
        return _remove_chunks(playback, chunks)
    rows = _by_slot(playback) if unit == "slot" else _by_step(playback)
    method = "each slot set back to what it is at the start of an episode"
    if unit == "all":
        method = "the whole memory set back to what it is at the start of an episode"
    return Removal(**rows, method=method, unit=unit)


def policies_without(playback: Playback, t: int, state: Any, hidden: Tensor) -> ActorCriticOutput:
    """What the agent says at step t when steps are hidden from it: row 0 with its whole memory, then one per set.

    Args:
        playback: of the episode.
        t: the step.
        state: before it, of one row.
        hidden: bool ``[r, T]``.

    Returns:
        Of ``1 + r`` rows, ``[1 + r, 1, ...]``.
    """
    core = playback.agent.core
    hidden = torch.cat((torch.zeros_like(hidden[:1]), hidden)) if len(hidden) else hidden.new_zeros(1, hidden.shape[1])
    rows = take_rows(state, torch.zeros(len(hidden), dtype=torch.long, device=hidden.device))
    rows = forget_chunks(core, rows, hidden, t)
    with hiding(core, hidden, t):
        return playback.step(t, rows)[0]


def compare(playback: Playback, output: ActorCriticOutput) -> dict[str, np.ndarray]:
    """KL, dV and parameters of the rows after the first, each against the first."""
    distribution = playback.agent.distribution
    policy, value = output.policy[:, 0], output.value[:, 0]
    kl = distribution(policy[1:]).divergence(distribution(policy[:1].expand_as(policy[1:])))
    found = {"kl": kl.clamp(min=0.0), "dv": value[1:] - value[0], "logits": policy[1:]}
    return {name: part.float().cpu().numpy() for name, part in found.items()}


def _remove_chunks(playback: Playback, chunks: Chunks) -> Removal:
    steps, number = playback.num_steps, len(chunks)
    rows = _empty(steps, number, playback)
    where = playback.is_first.device
    sets = torch.zeros(number, steps, dtype=torch.bool, device=where)
    for c, (start, stop) in enumerate(chunks):
        sets[c, start:stop] = True
    for t, state in playback.states():
        reached = in_reach(playback, t)
        held = [c for c, (start, stop) in enumerate(chunks) if stop <= t and reached[start:stop].any()]
        if held:
            output = policies_without(playback, t, state, sets[held])
            for name, part in compare(playback, output).items():
                rows[name][t, held] = part
    core = playback.agent.core
    method = "weights of its steps in windows set to 0, the others divided by their sum"
    if isinstance(core, HierarchicalChunkMemory):
        method = f"taken out of the chunks of all layers; {method}"
    return Removal(**rows, method=method, unit="chunk")


def in_reach(playback: Playback, t: int) -> np.ndarray:
    """Which steps the memory before step t holds in any form, bool ``[T]``."""
    reached = np.zeros(playback.num_steps, bool)
    for places in playback.agent.core.attended_steps(torch.full((1, 1), t)).values():
        first, behind = (place.flatten().tolist() for place in torch.broadcast_tensors(*places))
        for start, stop in set(zip(first, behind, strict=True)):
            reached[max(start, 0) : max(min(stop, t), 0)] = True
    return reached


def _by_slot(playback: Playback) -> dict[str, np.ndarray]:
    core, rows = playback.agent.core, None
    for t, state in playback.states():
        without = reset_slots(core, state)
        output, _ = playback.step(t, concatenate([state, without]))
        found = compare(playback, output)
        rows = _empty(playback.num_steps, len(found["kl"]), playback) if rows is None else rows
        for name, part in found.items():
            rows[name][t] = part
    assert rows is not None
    return rows


def _by_step(playback: Playback) -> dict[str, np.ndarray]:
    rows, fresh = _empty(playback.num_steps, 1, playback), playback.agent.initial_state(1)
    for t, state in playback.states():
        output, _ = playback.step(t, concatenate([state, fresh]))
        for name, part in compare(playback, output).items():
            rows[name][t] = part
    return rows


def _empty(steps: int, number: int, playback: Playback) -> dict[str, np.ndarray]:
    width = playback.agent.policy.num_parameters
    shapes = {"kl": (steps, number), "dv": (steps, number), "logits": (steps, number, width)}
    return {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
