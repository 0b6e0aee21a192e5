"""What is a memory used for? The policy with it and without it.

    KL_t,c = KL( pi(. | memory before step t) || pi(. | the same without chunk c) )        dV_t,c = V without c - V

The memory at step t is that of the recorded episode: only the reading at this step is changed. occlusion.py defines
what "without chunk c" means for each core.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCriticOutput
from recollect.cores import HierarchicalChunkMemory
from recollect.cores.hcam.core import HierarchicalChunkLayer, LayerMemory, make_plan
from recollect.interpret.occlusion import (
    can_hide_steps,
    forget_chunks,
    heads_of,
    hiding,
    mask_of,
    reset_parts,
    slots_of,
)
from recollect.interpret.playback import BLOCK, Playback, map_inputs
from recollect.interpret.record import Removal
from recollect.state import concatenate, nbytes, take_rows

Chunks = Sequence[tuple[int, int]]
MOST_BYTES = 2**26
"""Of the copies of a memory, each without other steps, that are run at a time: long episodes have large memories and
many chunks to remove."""


@torch.no_grad()
def measure_removal(playback: Playback, chunks: Chunks, unit: str | None = None) -> Removal:
    """Remove every chunk at every step, one at a time: T forward passes with a row per chunk.

    Args:
        playback: of the episode.
        chunks: half-open intervals of steps.
        unit: ``chunk``, ``slot``, ``head`` or ``all``; None takes the finest that the core has.

    Raises:
        ValueError: the core has no such unit.
    """
    core = playback.agent.core
    parts = {"slot": slots_of(core), "head": heads_of(core)}
    possible = {"chunk": can_hide_steps(core), **{name: part is not None for name, part in parts.items()}, "all": True}
    unit = next(name for name, has in possible.items() if has) if unit is None else unit
    if not possible.get(unit, False):
        remedy = ", ".join(name for name, has in possible.items() if has)
        raise ValueError(f"unit={unit!r}: a {type(core).__name__} has {remedy}")
    if unit == "chunk":
        results, number = _without_chunks(playback, chunks), len(chunks)
        method = "weights of its steps in windows set to 0, the others divided by their sum"
        if isinstance(core, HierarchicalChunkMemory):
            method = f"removed from the chunks of all layers; {method}"
    else:
        part = parts.get(unit)
        results, number = _after_reset(playback, part), 1
        if part is not None:
            number = getattr(core.initial_state(1), part[0]).shape[part[1]]
        what = {"slot": "each slot", "head": "the matrix of each head, in all layers,"}.get(unit, "the whole memory")
        method = f"{what} set back to its value at the start of an episode"
    width = playback.agent.policy.num_parameters
    shapes = {"kl": (number,), "dv": (number,), "logits": (number, width)}
    rows = {name: np.full((playback.num_steps, *shape), np.nan, np.float32) for name, shape in shapes.items()}
    for t, removed, output in results:
        for name, part in _compare(playback, output).items():
            rows[name][t, removed] = part
    without, kl = without_memory(playback)
    return Removal(**rows, method=method, unit=unit, whole=without, whole_kl=kl)


@torch.no_grad()
def without_memory(playback: Playback) -> tuple[np.ndarray, np.ndarray]:
    """Return the policy of every step from the initial state, ``[T, A]``, and KL(with memory || without), ``[T]``.

    The inputs are those of the episode, so what the agent sees at a step stays, and all that it remembers is gone.
    """
    agent, state = playback.agent, playback.agent.initial_state(1)
    with_memory, without = [], []
    for start in range(0, playback.num_steps, BLOCK):
        stop = min(start + BLOCK, playback.num_steps)
        encoded, is_first = playback.encoded[:, start:stop], playback.is_first[:, start:stop]
        inputs = playback.part(start, stop)
        outputs, state = agent.core(encoded, state, is_first)
        with_memory.append(agent.decide(outputs, encoded, inputs).policy[0])
        encoded, is_first = encoded.transpose(0, 1), is_first.transpose(0, 1)  # a row for every step
        inputs = map_inputs(lambda leaf: leaf.transpose(0, 1), inputs)
        outputs, _ = agent.core(encoded, agent.initial_state(stop - start), is_first)
        without.append(agent.decide(outputs, encoded, inputs).policy[:, 0])
    own, policy = torch.cat(with_memory), torch.cat(without)
    kl = agent.distribution(policy).divergence(agent.distribution(own)).clamp(min=0.0)  # KL(own || without)
    return policy.float().cpu().numpy(), kl.float().cpu().numpy()


def policies_without(playback: Playback, t: int, state: Any, hidden: Tensor) -> ActorCriticOutput:
    """Run step t with hidden steps: row 0 with the whole memory, then one row per set of hidden steps.

    Args:
        playback: of the episode.
        t: the step.
        state: before it, of one row.
        hidden: bool ``[r, T]``.

    Returns:
        Of ``1 + r`` rows, ``[1 + r, 1, ...]``.
    """
    core, encoded = playback.agent.core, playback.encoded[:, t : t + 1]
    hidden = torch.cat((torch.zeros_like(hidden[:1]), hidden)) if len(hidden) else hidden.new_zeros(1, hidden.shape[1])
    parts = []
    for some in hidden.split(max(1, MOST_BYTES // max(nbytes(state), 1))):
        with hiding(core, some, t):
            if isinstance(core, HierarchicalChunkMemory):
                outputs = _outputs_without_chunks(core, encoded, playback.is_first[:, t : t + 1], state, some, t)
                parts.append(playback.agent.decide(outputs, encoded.expand(len(some), 1, -1), playback.part(t, t + 1)))
            else:
                rows = take_rows(state, torch.zeros(len(some), dtype=torch.long, device=hidden.device))
                parts.append(playback.step(t, rows)[0])
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _outputs_without_chunks(
    core: HierarchicalChunkMemory, encoded: Tensor, is_first: Tensor, state: Any, hidden: Tensor, t: int
) -> Tensor:
    """Return the outputs of step t, ``[r, 1, d]``, of r rows that read one copy of the chunks as queries of one row.

    A core would copy the chunks for each row, and keep them for the next step.
    """
    rows, n = len(hidden), core.config.num_chunks
    lengths = forget_chunks(core, state._replace(lengths=state.lengths.expand(rows, -1)), hidden, t).lengths
    plan = make_plan(core.config, is_first.expand(rows, 1), state.steps.expand(rows), lengths)
    mask = plan.mask[..., :n].transpose(0, 1)  # a chunk that this step completes is visible later
    x = core.project(encoded).to(state.layers[0].window.dtype).expand(rows, 1, -1)
    for layer, memory in zip(core.layers, state.layers, strict=True):
        window = torch.where(plan.held[..., None], memory.window, 0.0)
        x = layer.attend(x, window, plan.visible, core.features(), partial(_read_as_one_row, layer, memory, mask))
    return x


def _read_as_one_row(layer: HierarchicalChunkLayer, memory: LayerMemory, mask: Tensor, queries: Tensor) -> Tensor:
    return layer.memory(queries.transpose(0, 1), memory.keys, memory.contents, mask).transpose(0, 1)


def _compare(playback: Playback, output: ActorCriticOutput) -> dict[str, np.ndarray]:
    """Return KL, dV and parameters of the rows after the first, each against the first."""
    distribution = playback.agent.distribution
    policy, value = output.policy[:, 0], output.value[:, 0]
    kl = distribution(policy[1:]).divergence(distribution(policy[:1].expand_as(policy[1:])))
    found = {"kl": kl.clamp(min=0.0), "dv": value[1:] - value[0], "logits": policy[1:]}
    return {name: part.float().cpu().numpy() for name, part in found.items()}


Results = Iterator[tuple[int, list[int] | slice, ActorCriticOutput]]
"""Step, removed units, and the output with the memory and without each unit."""


def _without_chunks(playback: Playback, chunks: Chunks) -> Results:
    steps, device = playback.num_steps, playback.is_first.device
    sets = [mask_of([chunk], steps, device) for chunk in chunks]
    for t, state in playback.states():
        reached = _in_reach(playback, t)
        held = [c for c, (start, stop) in enumerate(chunks) if stop <= t and reached[start:stop].any()]
        if held:
            yield t, held, policies_without(playback, t, state, torch.stack([sets[c] for c in held]))


def _in_reach(playback: Playback, t: int) -> np.ndarray:
    """Mark the steps that the memory before step t holds in any form, bool ``[T]``."""
    reached = np.zeros(playback.num_steps, bool)
    for places in playback.agent.core.attended_steps(torch.full((1, 1), t)).values():
        first, behind = (place.flatten().tolist() for place in torch.broadcast_tensors(*places))
        for start, stop in set(zip(first, behind, strict=True)):
            reached[max(start, 0) : max(min(stop, t), 0)] = True
    return reached


def _after_reset(playback: Playback, part: tuple[str, int] | None) -> Results:
    core, fresh = playback.agent.core, playback.agent.initial_state(1)
    for t, state in playback.states():
        edited = fresh if part is None else reset_parts(core, state, *part)
        yield t, slice(None), playback.step(t, concatenate([state, edited]))[0]
