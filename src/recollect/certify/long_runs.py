"""Lines about long runs: thousands of steps give the same numbers, hold the same bytes and take the same time."""

import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Violation, first_place, per_step
from recollect.certify.equivalence import run_split
from recollect.certify.snapshot import held_bytes
from recollect.certify.subject import Subject
from recollect.machine import resident_bytes
from recollect.state import clone, nbytes

RESIDENT_SLACK = 32 * 2**20  # bytes of free memory that allocators keep; a leak over 10^5 steps is larger than this
STEPS = 1280  # single steps of a core and of its stream; fewer within the time limit, and the card has their number
QUICK_STEPS = 80
MARK = 90  # steps between two measurements of Python's memory; the last three are beyond a thousand steps
SETTLED = 480  # steps after which the process should not grow
ROWS = 2
LENGTHS = (64, 512, 128, 17, 256, 100, 203)
"""Lengths of calls that add up to :data:`STEPS`: powers of two, where fast paths often begin, and others.

One call of all steps is left to the line ``splits``, which makes longer ones.
"""
CALL = 8  # steps of the longer calls whose time is measured
EPISODES = 40  # episodes of one step between two measurements of a stream's memory
GROWTH = 0.5  # accepted growth of Python's number of objects per step
SLOWER = 2.5  # accepted ratio of the least times of a late and an early step
SMALLEST_DELAY = 50e-6  # seconds by which a step must be slower for a ratio to count
HOARDS = "data of past steps is kept: a list, an array, a cache, a graph that is not detached, a hook"


@dataclass
class SingleSteps:
    """Single steps of a core or a stream: outputs, and Python's memory at several moments."""

    outputs: Tensor
    done: int
    state: Any = None
    live: Any = None
    early: Any = None
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    """(steps done, memory blocks of Python, bytes held by the core or stream)"""
    grown: int = 0  # growth of the process in bytes during the second half


@torch.no_grad()
def long(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that more than a thousand calls of one step, the stream and a few long calls give the same numbers."""
    meter = subject.comparison()
    core = _core_steps(subject)
    inputs, is_first = _test_data(subject)
    detail = f"{core.done:,} calls of one step"
    cause = "something depends on the number of calls or steps: a counter, a cache that fills, a clock"
    state = subject.variant(batch=ROWS).fresh_state()
    sizes = _sizes(core.done)
    want = run_split(subject, inputs[:, : core.done], state, is_first[:, : core.done], sizes)
    what = f"{core.done} calls of one step against calls of {', '.join(map(str, sizes))}"
    meter.results((core.outputs, core.state), want, what, cause=cause)
    if subject.has_stream:
        live = _stream_steps(subject)
        steps = min(core.done, live.done)
        what = f"{steps} steps of a stream against calls of one step"
        meter.outputs(live.outputs[:, :steps], core.outputs[:, :steps], what, cause=cause)
        detail += f", {live.done:,} steps of a stream"
    return f"{detail} against long calls: {meter.report()}", {"single_steps": core.done}


def _sizes(steps: int) -> list[int]:
    """Return lengths of calls that add up to ``steps``."""
    sizes = []
    for size in itertools.cycle(LENGTHS):
        if not steps:
            return sizes
        sizes.append(min(size, steps))
        steps -= sizes[-1]
    return sizes


@torch.no_grad()
def state_bytes(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that bytes of the state, the stream, Python and the process are constant over a long run."""
    began = time.perf_counter()
    steps, numbers = _long_run(subject)
    numbers["seconds"] = time.perf_counter() - began
    detail = f"{numbers['bytes']:,} bytes per stream after {steps:,} steps in calls of {numbers['call']}"
    if steps < subject.options.long_steps:
        limit = subject.options.long_seconds
        detail += f" (of {subject.options.long_steps:,}; stopped by the time limit of {limit:g} s)"
    _check_growth(_core_steps(subject), "single calls of the core")
    if subject.has_stream:
        run = _stream_steps(subject)
        _check_growth(run, "steps of the stream")
        size = subject.new_stream(ROWS).nbytes
        if run.live.nbytes != size:
            raise Violation(
                f"Stream.nbytes went from {size} to {run.live.nbytes} within {run.done} steps",
                "a buffer grows with the steps",
            )
        if not subject.options.quick:
            _check_episodes(subject)
        detail += f"; Stream holds {size // ROWS:,} bytes per row after {run.done:,} steps"
        numbers |= {"stream_bytes": size // ROWS, "stream_steps": run.done}
    detail += f"; resident memory {numbers['resident_growth'] / 2**20:+.1f} MB"
    return detail, {**numbers, "steps": steps, "asked": subject.options.long_steps}


@torch.no_grad()
def cost(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that a late step takes as long as an early one, in the core and in the stream."""
    core = _core_steps(subject)
    ratios = {}
    for steps, what in ((1, "call of one step"), (CALL, f"call of {CALL} steps")):
        inputs, never = subject.inputs(53, batch=ROWS, steps=steps), subject.no_resets(batch=ROWS, steps=steps)

        def call(state: Any, inputs: Tensor = inputs, never: Tensor = never) -> None:
            subject.core(inputs, state, never)

        ratios[what] = _slower(lambda call=call: call(core.early), lambda call=call: call(core.state))
    if subject.has_stream:
        run = _stream_steps(subject)
        young, frame = subject.new_stream(ROWS), subject.inputs(53, batch=ROWS, steps=1)[:, 0]
        young.load_state(run.early)
        ratios["step of the stream"] = _slower(lambda: young.step(frame), lambda: run.live.step(frame))
    for what, (ratio, early, late) in ratios.items():
        if ratio > SLOWER and late - early > SMALLEST_DELAY:
            raise Violation(
                f"a {what} takes {1e6 * late:.0f} us after {core.done} steps, and {1e6 * early:.0f} us at first",
                "the cost of a step must depend on the config alone: the step searches, sums or copies data that grows",
            )
    detail = ", ".join(f"a {what} takes {ratio:.2f} times as long" for what, (ratio, _, _) in ratios.items())
    return f"after {core.done:,} steps {detail}", {what: ratio for what, (ratio, _, _) in ratios.items()}


def _slower(early: Callable[[], Any], late: Callable[[], Any]) -> tuple[float, float, float]:
    """Return the ratio of the least times of both calls, made in turn, and both times.

    A busy machine only adds time, so the least of many is the call's own, and calls in turn are slowed alike.
    """
    first = last = float("inf")
    for _ in range(6):
        for _ in range(15):
            first, last = min(first, _seconds(early)), min(last, _seconds(late))
        if last <= 1.5 * first:
            break
    return last / first, first, last


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _test_data(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return inputs and resets of the single steps.

    Row 0 has no reset, row 1 has one early and another one more than a thousand steps later.
    """
    steps = QUICK_STEPS if subject.options.quick else max(24, min(STEPS, subject.options.long_steps))
    inputs, is_first = subject.inputs(52, batch=ROWS, steps=steps), subject.no_resets(batch=ROWS, steps=steps)
    is_first[1, [steps // 16, int(0.9 * steps)]] = True
    return inputs, is_first


def _core_steps(subject: Subject) -> SingleSteps:
    def start() -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], Any], Any]:
        state = subject.variant(batch=ROWS).fresh_state()

        def step(x: Tensor, first: Tensor) -> Tensor:
            nonlocal state
            out, state = subject.core(x[:, None], state, first[:, None])
            return out[:, 0]

        return step, lambda: state, subject.core

    return _run_steps(subject, "core", start)


def _stream_steps(subject: Subject) -> SingleSteps:
    def start() -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], Any], Any]:
        live = subject.new_stream(ROWS)
        return lambda x, first: live.step(x, first if first.any() else None), lambda: live.state, live

    return _run_steps(subject, "stream", start)


def _run_steps(subject: Subject, key: str, start: Callable[[], tuple[Any, Any, Any]]) -> SingleSteps:
    if key in subject.cache:
        return subject.cache[key]
    with torch.no_grad():
        inputs, is_first = _test_data(subject)
        step, state, thing = start()
        steps = inputs.shape[1]
        began, run, resident = time.perf_counter(), SingleSteps(inputs.new_empty(0), 0), 0
        kept = None
        with _ignored_garbage():
            for t in range(steps):
                out = step(inputs[:, t].clone(), is_first[:, t].clone())
                if kept is None:
                    kept = out.new_empty(steps, *out.shape)
                kept[t] = out
                run.done = t + 1
                if t == min(steps // 8, 64):
                    run.early = clone(state())
                if run.done % MARK == 0 and not subject.options.quick:
                    gc.collect()
                    run.blocks.append((run.done, sys.getallocatedblocks(), held_bytes(thing)))
                    resident = resident or (resident_bytes() if run.done >= SETTLED else 0)
                if t % 64 == 0 and t > 200 and time.perf_counter() - began > 4 * subject.options.long_seconds:
                    break
        assert kept is not None
        run.outputs = kept[: run.done].transpose(0, 1)
        run.state, run.live = clone(state()), thing
        run.grown = resident_bytes() - resident if resident else 0
    subject.cache[key] = run
    return run


@contextmanager
def _ignored_garbage() -> Iterator[None]:
    """Exclude existing objects from garbage collection in a context, because torch's compiler has a million of them."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _check_growth(run: SingleSteps, what: str) -> None:
    """Raise if the number of objects or bytes grows between the last three marks."""
    _check_resident(run.grown, run.done)
    marks = [mark for mark in run.blocks if mark[0] > run.done // 3][-3:]
    pairs = list(itertools.pairwise(marks))
    if len(pairs) < 2:
        return  # too few steps to distinguish growth from single allocations
    for index, thing in ((1, "objects"), (2, "bytes")):
        rates = [(new[index] - old[index]) / (new[0] - old[0]) for old, new in pairs]
        if rates and min(rates) > (GROWTH if index == 1 else 1.0):
            raise Violation(
                f"Python holds {min(rates):.1f} {thing} more for every one of the last {marks[-1][0] - marks[0][0]} "
                f"{what}, after {marks[0][0]} of them",
                HOARDS,
            )


def _check_episodes(subject: Subject) -> None:
    """Raise if the stream's memory grows with the number of episodes, of one step each."""
    live, frame = subject.new_stream(ROWS), subject.inputs(53, batch=ROWS, steps=1)[:, 0]
    begin, marks = torch.ones(ROWS, dtype=torch.bool), []
    for _ in range(3):
        for _ in range(EPISODES):
            live.step(frame.clone(), begin.clone())
        marks.append(held_bytes(live))
    rate = min(new - old for old, new in itertools.pairwise(marks)) / EPISODES
    if rate >= 1.0:
        raise Violation(f"the stream holds {rate:.0f} bytes more for every episode", HOARDS)


def _call_length(subject: Subject) -> int:
    """Return the call length with most steps per second: long for parallel cores, short for wide windows."""
    best, rate = 16, 0.0
    state = subject.fresh_state(1)
    for length in (16, 64, 256, 1000):
        length = min(length, subject.options.long_steps)
        inputs, never = subject.inputs(49, batch=1, steps=length), subject.no_resets(batch=1, steps=length)
        subject(inputs, state, never)
        start = time.perf_counter()
        subject(inputs, state, never)
        seconds = time.perf_counter() - start
        if length / seconds > rate:
            best, rate = length, length / seconds
        if seconds > subject.options.long_seconds / 20:
            break  # the next one would take too long
    return best


def _long_run(subject: Subject) -> tuple[int, dict[str, Any]]:
    call = _call_length(subject)
    state = subject.fresh_state(1)
    size = nbytes(state)
    inputs, never = subject.inputs(50, batch=1, steps=call), subject.no_resets(batch=1, steps=call)
    done, base, start = 0, 0, time.perf_counter()
    while done < subject.options.long_steps:
        take = min(call, subject.options.long_steps - done)
        out, state = subject(inputs[:, :take], state, never[:, :take])
        done += take
        if nbytes(state) != size:
            raise Violation(
                f"the state went from {size} to {nbytes(state)} bytes within {done} steps",
                "a cache grows: keep a fixed number of entries",
            )
        if not out.isfinite().all():
            step = done - take + first_place(per_step(~out.isfinite()).any(-1))[0]
            raise Violation(f"outputs are not finite from step {step} on", "values in the memory grow without bound")
        base = base or resident_bytes()
        if time.perf_counter() - start > subject.options.long_seconds:
            break
    grown = resident_bytes() - base
    _check_resident(grown, done)
    return done, {"bytes": size, "call": call, "resident_growth": grown}


def _check_resident(grown: int, steps: int) -> None:
    if grown > RESIDENT_SLACK:
        raise Violation(
            f"the process grew by {grown / 2**20:.0f} MB in {steps} steps while the state did not",
            "tensors of past steps are kept: a list, a graph that is not detached, a hook",
        )
