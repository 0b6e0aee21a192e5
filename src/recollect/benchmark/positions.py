"""Time of single steps at late positions of a stream.

A stream is advanced to every position, and its memory is kept there. Where single steps would take too long,
whole-sequence calls advance it, which the waypoint records: both give the same memory (the certificate proves it).
Then single steps are timed from all positions in turns.
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
PROBE = 1000  # single steps that are always made, to estimate the time of the rest


@dataclass(frozen=True)
class Waypoint:
    """State of a stream at one position."""

    position: int
    how: Literal["stepped", "jumped", "skipped"]
    """By single steps only, by whole-sequence calls since the last waypoint, or not reached."""
    resident_growth: int
    """Growth of resident memory in bytes since the first waypoint; with the workspace of calls when jumped."""
    seconds: float  # seconds since the start of the walk
    state: Any  # state of one row; None when skipped


@torch.no_grad()
def walk(
    core: MemoryCore[Any], positions: Sequence[int], *, step_seconds: float, jump_seconds: float
) -> list[Waypoint]:
    """Advance a stream of one row to every position, with random inputs and no resets.

    Args:
        core: in ``eval`` mode.
        positions: ascending.
        step_seconds: use whole-sequence calls if single steps to the last position would take longer.
        jump_seconds: skip positions that whole-sequence calls would reach later.
    """
    inputs = torch.randn(257, 1, *core.input_shape)  # a prime number: no chunk gets the same inputs twice in a row
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
    """Advance a stream by whole-sequence calls; return False, without change, if that would end after the deadline."""
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
    """Return the seconds per step at every reached waypoint, timed in turns on one stream.

    Args:
        stream: of any batch size; every row gets the waypoint's state.
        waypoints: from :func:`walk`.
        steps: timed together, whole chunks of them, because some work is done once per chunk.
        repeats: rounds.
        max_seconds: no round begins later than this, after the first two.
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
    stream.step(inputs[-1])  # the copy of the state has replaced the processor's cache
    started = time.perf_counter()
    for step in inputs:
        stream.step(step)
    return time.perf_counter() - started
