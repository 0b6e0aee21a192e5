"""What a step costs deep in a stream.

A walk brings one stream to every position and keeps its memory there. Where stepping all the way would take too
long, whole-sequence calls carry the memory on, and the waypoint says so: the two ways give the same memory, which
the certificate proves. Then single steps are timed from all positions in turns.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from recollect.benchmark.timing import Timing
from recollect.cores.contract import MemoryCore
from recollect.cores.stream import Stream
from recollect.machine import resident_bytes
from recollect.state import take_rows

BLOCK = 512  # steps of a whole-sequence call
PROBE = 1000  # steps that are always stepped; they also say how long the rest would take


@dataclass(frozen=True)
class Waypoint:
    """One position of a walk."""

    position: int
    how: Literal["stepped", "jumped", "skipped"]
    """By single steps all the way from 0, by whole-sequence calls since the last waypoint, or not reached."""
    resident_growth: int
    """Bytes of resident memory since the first waypoint; includes the workspace of calls when jumped."""
    seconds: float
    """Since the start of the walk."""
    state: Any
    """Memory of one row; None when skipped."""


@torch.no_grad()
def walk(
    core: MemoryCore[Any], positions: Sequence[int], *, step_seconds: float, jump_seconds: float
) -> list[Waypoint]:
    """Bring a stream of one row to every position, with random inputs and no resets.

    Args:
        core: in ``eval`` mode.
        positions: ascending.
        step_seconds: jump if stepping to the last position would take longer.
        jump_seconds: skip what takes longer than this even by jumping.
    """
    inputs = torch.randn(257, 1, *core.input_shape)  # a prime number: no chunk sees the same inputs twice in a row
    stream, begun, base = core.stream(1), time.perf_counter(), None
    reached, how = 0, "stepped"
    waypoints: list[Waypoint] = []
    for target in positions:
        if reached >= PROBE and how == "stepped":
            per_step = (time.perf_counter() - begun) / reached
            how = "stepped" if per_step * positions[-1] <= step_seconds else "jumped"
        if how == "stepped":
            for step in range(reached, target):
                stream.step(inputs[step % len(inputs)])
        elif not _jump(stream, target - reached, begun + jump_seconds):
            waypoints.append(Waypoint(target, "skipped", 0, time.perf_counter() - begun, None))
            continue
        reached = target
        now = resident_bytes()
        base = now if base is None else base
        waypoints.append(Waypoint(target, how, now - base, time.perf_counter() - begun, stream.state))  # type: ignore[arg-type]
    return waypoints


def _jump(stream: Stream, steps: int, deadline: float) -> bool:
    """Carry a stream on by whole-sequence calls; False, and unmoved, if it would end after the deadline."""
    core, state = stream.core, stream.state
    done, begun = 0, time.perf_counter()
    while done < steps:
        size = min(BLOCK, steps - done)
        never = torch.zeros(1, size, dtype=torch.bool)
        _, state = core(torch.randn(1, size, *core.input_shape), state, never)
        done += size
        if begun + (time.perf_counter() - begun) / done * steps > deadline:
            return False
    stream.load_state(state)
    return True


@torch.no_grad()
def time_steps(
    stream: Stream, waypoints: Sequence[Waypoint], *, steps: int, repeats: int, max_seconds: float = float("inf")
) -> dict[int, Timing]:
    """Seconds per step at every waypoint that was reached, timed in turns on one stream.

    Args:
        stream: of any batch size; every row gets the waypoint's memory.
        waypoints: from :func:`walk`.
        steps: timed in one go, so that what happens once per chunk is counted once per chunk.
        repeats: rounds.
        max_seconds: no round begins later than this; two are always made.
    """
    rows = torch.zeros(stream.batch_size, dtype=torch.long)
    reached = [waypoint for waypoint in waypoints if waypoint.state is not None]
    states = {waypoint.position: take_rows(waypoint.state, rows) for waypoint in reached}
    inputs = list(torch.randn(steps, stream.batch_size, *stream.core.input_shape))
    seconds: dict[int, list[float]] = {position: [] for position in states}
    begun = time.perf_counter()
    for done in range(-1, max(2, repeats)):  # the first round does not count
        if done >= 2 and time.perf_counter() - begun > max_seconds:
            break
        for position, state in states.items():
            spent = _time_one(stream, state, inputs)
            if done >= 0:
                seconds[position].append(spent / steps)
    return {position: Timing(tuple(times), steps) for position, times in seconds.items()}


def _time_one(stream: Stream, state: Any, inputs: Sequence[Tensor]) -> float:
    stream.load_state(state)
    stream.step(inputs[-1])  # the copy of the state has emptied the caches of the processor
    started = time.perf_counter()
    for step in inputs:
        stream.step(step)
    return time.perf_counter() - started
