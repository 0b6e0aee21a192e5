"""Lines about streams: they give the numbers of a sequence, one step at a time, and so do their copies."""

import copy
import pickle
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, Violation
from recollect.certify.equivalence import run_split
from recollect.certify.random_sizes import (
    LONG_BLOCK,
    PIECES,
    ROWS,
    describe,
    draw_length,
    draw_pieces,
    make_call,
    size_generator,
)
from recollect.certify.subject import Subject, make_strided
from recollect.cores.stream import Stream
from recollect.state import clone, leaves, nbytes, put_rows, take_rows

STEP_MODES: dict[str, Callable[[], Any]] = {
    "torch.no_grad": torch.no_grad,
    "gradients on": torch.enable_grad,
    "torch.inference_mode": torch.inference_mode,
}

SIZE = "nbytes must count what all rows hold between steps"
WRITES = "the stream keeps and overwrites a tensor that the caller owns: copy what is kept"


@torch.no_grad()
def stream(subject: Subject) -> str:
    """Check that a stream gives the numbers of a sequence, and its state equals the core's state after every step."""
    meter = subject.comparison()
    _steps(subject, meter)
    if not subject.options.quick:
        _steps(subject.variant(batch=1), meter, "a stream of one row")
        _steps(subject.variant(batch=7), meter, "a stream of seven rows")
    said = "" if subject.options.quick else _many_rows(subject, meter)
    for check in (_unrolls, _steps_without_resets, _forks, _resets_of_rows, _saves, _gradient_modes):
        check(subject, meter)
    what = "1 and more rows, blocks of steps, state, fork, reset(rows), save, load"
    return f"{subject.steps} steps with resets, {what}: {meter.report()}{said}"


def _many_rows(subject: Subject, meter: Comparison) -> str:
    """Compare streams of drawn numbers of rows, and a long block of a drawn length, with the core."""
    draws = size_generator(subject, "stream")
    drawn = []
    for low, high in ROWS:
        rows, steps, mode = draws.randint(low, high), draws.randint(3, 6), draws.choice(list(STEP_MODES))
        twin = subject.variant(batch=rows, steps=steps)
        inputs, state, is_first = make_call(twin, 18)
        want = twin(inputs, state, is_first)
        live = twin.new_stream()
        live.load_state(clone(state))
        with STEP_MODES[mode]():
            outputs = [live.step(x, first) for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True)]
            got = torch.stack(outputs, 1), live.state
        what = f"stream of {rows} rows against a call of {steps} steps, {mode}"
        meter.results(got, want, what, cause="a buffer or a kernel of the stream has a fixed number of rows")
        drawn.append((rows, steps, mode))
    if isinstance(subject.new_stream(), Stream):
        rows, steps = draws.randint(1, 2), draw_length(subject, draws, LONG_BLOCK)
        twin = subject.variant(batch=rows, steps=steps)
        inputs, state, is_first = make_call(twin, 19)
        is_first &= torch.rand(is_first.shape, generator=subject.generator(20)) < 0.02  # few blocks end early
        live = twin.new_stream()
        live.load_state(clone(state))
        sizes = draw_pieces(steps, size_generator(subject, "pieces of the stream"))
        want = run_split(twin, inputs, state, is_first, sizes)
        what = f"`stream.unroll` of {steps} steps of {rows} rows against calls of {PIECES} steps at most"
        meter.results((live.unroll(inputs, is_first), live.state), want, what, cause="a long block takes another path")
        drawn.append((rows, steps, "unroll"))
    return f"; {describe(drawn)}"


def _used_stream(subject: Subject, salt: int) -> tuple[Any, Any]:
    """Return a stream in use, and the state that the core has where the stream is.

    It has made steps of its own, and its state was read: what it makes or keeps then is there.
    """
    live, state = subject.new_stream(), subject.used_state(salt)
    live.load_state(clone(state))
    inputs = subject.inputs(21, steps=2)
    for x in inputs.unbind(1):
        live.step(x)
    _ = live.state
    return live, subject(inputs, state, subject.no_resets(steps=2))[1]


def _steps(subject: Subject, meter: Comparison, who: str = "stream") -> None:
    """Compare every step with the core; input buffers are overwritten after each, outputs are compared again later.

    Row 1 (or the only row) has resets; ``is_first`` is omitted at some steps without any.
    """
    steps = subject.steps
    inputs, is_first = subject.inputs(4), subject.resets(5)
    want, end = subject(inputs, subject.fresh_state(), is_first)
    live = subject.new_stream()
    size, outputs, states = live.nbytes, [], []
    if subject.batch > 1 and nbytes(live.state) and size <= subject.new_stream(1).nbytes:
        raise Violation(f"nbytes is {size} in a stream of {subject.batch} rows, and no less in one of one row", SIZE)
    where = f"{who} against sequence"
    frame, flags = make_strided(inputs[:, 0]), is_first[:, 0].clone()
    for t in range(steps):
        frame.copy_(inputs[:, t])
        flags.copy_(is_first[:, t])
        got = live.step(frame, flags if flags.any() or t % 2 else None)
        if not (torch.equal(frame, inputs[:, t]) and torch.equal(flags, is_first[:, t])):
            raise Violation(f"{where}: step {t} writes into its inputs or is_first", WRITES)
        frame.fill_(torch.nan)
        flags.fill_(True)
        _same_step(meter, got, want[:, : t + 1], t, where, "the stream's own arithmetic differs from the core's")
        outputs.append(got)
        if t in (steps // 2, steps - 1):
            states.append(live.state)
    kept = torch.stack(outputs, 1)
    meter.outputs(kept, want, f"{where}, outputs kept until the end", cause="a step overwrites the previous output")
    cause = "ring buffers are unrolled in another order, or rows that were reset keep entries"
    half = subject(inputs[:, : steps // 2 + 1], subject.fresh_state(), is_first[:, : steps // 2 + 1])[1]
    meter.states(states[0], half, f"{where}, `stream.state`", step=steps // 2, cause=cause)
    meter.states(states[-1], end, f"{where}, `stream.state`", step=steps - 1, cause=cause)
    if live.nbytes != size:
        raise Violation(f"nbytes went from {size} to {live.nbytes} in {steps} steps", "a buffer grows with the steps")


def _same_step(meter: Comparison, got: Tensor, want: Tensor, step: int, what: str, cause: str) -> None:
    try:
        meter.outputs(got[:, None], want[:, -1:], what)
    except Violation as found:
        detail = found.detail.replace("from step 0", f"from step {step}")
        raise Violation(detail, cause, found.relative) from None


def _follow(subject: Subject, meter: Comparison, live: Any, state: Any, salt: int, what: str, cause: str) -> None:
    """Compare six further steps of a stream, without resets, with the core from ``state``.

    The first one has flags or has none, as ``salt`` is even or odd: no flag clears what ``reset`` has marked.
    """
    inputs, never = subject.inputs(salt, steps=6), subject.no_resets(steps=1)
    for t in range(6):
        want, state = subject(inputs[:, t : t + 1], state, never)
        got = live.step(inputs[:, t], None if (salt + t) % 2 else never[:, 0].clone())
        _same_step(meter, got, want, t, what, cause)
    meter.states(live.state, state, what, step=5, cause=cause)


def _unrolls(subject: Subject, meter: Comparison) -> None:
    """Compare blocks of 2, 1, 3, 5 steps and so on, with resets inside, and one of all steps, with the core.

    A user-defined stream that does not inherit :class:`Stream` promises single steps only.
    """
    live, state = _used_stream(subject, 5)
    if not isinstance(live, Stream):
        return
    inputs, is_first = subject.inputs(19), subject.resets(20)
    is_first[:, 0] = False  # the first block continues from the state
    outputs, t = [], 0
    for length in cycle((2, 1, 3, 5)):
        if t >= subject.steps:
            break
        here = slice(t, min(t + length, subject.steps))
        outputs.append(live.unroll(inputs[:, here], is_first[:, here] if is_first[:, here].any() else None))
        t += length
    what, cause = "`stream.unroll` against sequence", "a block of steps reads or keeps other data than single steps"
    meter.results((torch.cat(outputs, 1), live.state), subject(inputs, state, is_first), what, cause=cause)
    live.load_state(clone(state))
    is_first = subject.no_resets()
    is_first[1, subject.steps // 3] = True  # a reset ends a block, so that the second one is longer than any window
    want = subject(inputs, state, is_first)
    what = f"`stream.unroll` of {subject.steps} steps against sequence"
    meter.results((live.unroll(inputs, is_first), live.state), want, what, cause=cause)


def _steps_without_resets(subject: Subject, meter: Comparison) -> None:
    live, state = subject.new_stream(), subject.used_state()
    given = clone(state)
    live.load_state(given)
    inputs = subject.inputs(6)
    want, end = subject(inputs, state, subject.no_resets())
    got = torch.stack([live.step(x) for x in inputs.unbind(1)], 1)
    what = f"{subject.steps} steps without is_first from a loaded state"
    meter.outputs(got, want, what, cause="load_state loses data, or step() without is_first takes another path")
    meter.states(given, state, "the argument of load_state, after the stream's steps", cause=WRITES)
    meter.states(live.state, end, what, step=subject.steps - 1, cause="load_state loses data")


def _forks(subject: Subject, meter: Comparison) -> None:
    live, state = _used_stream(subject, 1)
    cause = "two streams of one core share a buffer"
    twin, seen = live.fork(), live.state
    _follow(subject, meter, twin, state, 7, "a fork of a stream", "fork omits a part of the memory")
    meter.states(live.state, state, "a stream after steps of its fork", cause=cause)
    meter.states(seen, state, "an earlier `stream.state`", cause="`stream.state` is not a copy")
    for leaf in leaves(seen):
        leaf.zero_()
    _follow(subject, meter, live, state, 8, "a stream after steps of its fork", cause)


def _resets_of_rows(subject: Subject, meter: Comparison) -> None:
    mask = torch.zeros(subject.batch, dtype=torch.bool)
    mask[[0, 2]] = True
    live, state = _used_stream(subject, 2)
    live.reset(torch.zeros_like(mask))
    meter.states(live.state, state, "stream after reset(bool mask of no row)", cause="no row is taken for all of them")
    cases = (([1], "reset([1])"), (mask, "reset(bool mask of rows 0 and 2)"), (None, "reset()"))
    for salt, (rows, call) in enumerate(cases, 22):
        live, state = _used_stream(subject, 2)
        live.reset(rows)
        index = torch.arange(subject.batch) if rows is None else torch.as_tensor(rows)
        want = put_rows(state, index, take_rows(subject.fresh_state(), index))
        what = f"stream after {call}"
        cause = "reset clears the state but not a buffer beside it, or marks rows that the next step or fork forgets"
        if rows is mask:
            _follow(subject, meter, live.fork(), want, 26, f"fork of a {what}", cause)
        meter.states(live.state, want, what, cause="reset does not clear exactly the given rows")
        _follow(subject, meter, live, want, salt, what, cause)


def _saves(subject: Subject, meter: Comparison) -> None:
    live, state = _used_stream(subject, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream"  # without a suffix: `torch.load` takes a file of that name for one of its own
        live.save(path)
        other = subject.new_stream()
        other.load(path)
    cause = "save omits a part of the memory"
    meter.states(other.state, state, "stream after save and load", cause=cause)
    _follow(subject, meter, other, state, 10, "stream after save and load", cause)


def _gradient_modes(subject: Subject, meter: Comparison) -> None:
    """Step with gradients on and in inference mode, with resets."""
    inputs, is_first = subject.inputs(14, steps=8), subject.resets(13, steps=8)
    is_first[:, 4] = True  # all rows at once, as evaluations begin
    steps = list(zip(inputs.unbind(1), is_first.unbind(1), strict=True))
    want, end = subject(inputs, subject.fresh_state(), is_first)
    plain, inference = subject.new_stream(), subject.new_stream()
    with torch.enable_grad():
        got = torch.stack([plain.step(*step) for step in steps], 1)
    meter.outputs(got, want, "stream stepped with gradients on", cause="the stream takes another path with gradients")
    with torch.inference_mode():
        parts = [inference.step(*step) for step in steps[:6]]
    parts += [inference.step(*step) for step in steps[6:]]
    cause = "the stream takes another path in inference mode, or cannot leave it"
    meter.outputs(torch.stack(parts, 1), want, "stream stepped under torch.inference_mode", cause=cause)
    with torch.inference_mode():
        inference.step(*steps[0])
    row, what = torch.tensor([1]), "stream after a step under torch.inference_mode and reset([1]) outside of it"
    end = subject(inputs[:, :1], end, is_first[:, :1])[1]
    try:
        inference.reset([1])
    except RuntimeError as error:
        raise Violation(f"{what}: {' '.join(str(error).split())[:200]}", cause) from None
    _follow(subject, meter, inference, put_rows(end, row, take_rows(subject.fresh_state(), row)), 25, what, cause)


@torch.no_grad()
def copies(subject: Subject) -> str:
    """Check that a copied or pickled stream continues with the same numbers, independently of the original."""
    meter = subject.comparison()
    ways = {"copy.deepcopy": copy.deepcopy, "pickle": lambda live: pickle.loads(pickle.dumps(live))}
    cause = "the copy shares buffers with the original, or its buffers and its steps' functions are separated"
    for batch in (1,) if subject.options.quick else (subject.batch, 1):
        few = subject.variant(batch=batch)
        for name, way in ways.items():
            live, state = _used_stream(few, 4)
            try:
                twin = way(live)
            except Exception as error:  # a user-defined class may raise anything
                raise Violation(
                    f"{name} of a stream raises {type(error).__name__}: {' '.join(str(error).split())[:200]}",
                    "the stream holds a closure, a file or a view: define __reduce__, or keep buffers as attributes",
                ) from None
            what = f"{name} of a stream of {batch} rows"
            meter.states(twin.state, state, what, cause=cause)
            for x in few.inputs(15, steps=3).unbind(1):
                twin.step(x)
            meter.states(live.state, state, f"{what}, the original during steps of the copy", cause=cause)
            _follow(few, meter, live, state, 16, f"{what}, the original after steps of the copy", cause)
            again, now = way(live), live.state
            for x in few.inputs(17, steps=3).unbind(1):
                live.step(x)
            _follow(few, meter, again, now, 18, f"{what}, the copy after steps of the original", cause)
    return f"copy.deepcopy and pickle of streams, both ways: {meter.report()}"
