"""Lines about the live stream: the sequence's numbers, one step at a time, and copies of it that go their own way."""

import copy
import pickle
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, Violation
from recollect.certify.subject import Subject, stride
from recollect.cores.stream import Stream
from recollect.state import clone, leaves, put_rows, take_rows

WRITES = "the stream keeps and overwrites a tensor that the caller owns: copy what is kept"


@torch.no_grad()
def stream(subject: Subject) -> str:
    """The live stream gives the sequence's numbers, and its state is the core's state at any moment."""
    meter = subject.comparison()
    _stream_follows(subject, meter)
    if not subject.options.quick:
        _stream_follows(subject.variant(batch=1), meter, "a stream of one row")
        _stream_follows(subject.variant(batch=7), meter, "a stream of seven rows")
    _stream_unrolls(subject, meter)
    _stream_without_resets(subject, meter)
    _stream_forks(subject, meter)
    _stream_resets_rows(subject, meter)
    _stream_saves(subject, meter)
    _stream_modes(subject, meter)
    what = "1 and more rows, blocks of steps, state, fork, reset(rows), save, load"
    return f"{subject.steps} steps with resets, {what}: {meter.report()}"


def _stream_follows(subject: Subject, meter: Comparison, who: str = "stream") -> None:
    """Step by step against the core; inputs are a view that is overwritten after the step, outputs are looked at twice.

    Row 1 (or the only row) has resets; ``is_first`` is left away at steps where no row has one.
    """
    steps = subject.steps
    inputs, is_first = subject.inputs(4), subject.resets(5)
    want, end = subject(inputs, subject.fresh_state(), is_first)
    live = subject.live()
    size, outputs, states = live.nbytes, [], []
    where = f"{who} against sequence"
    frame, flags = stride(inputs[:, 0]), is_first[:, 0].clone()
    for t in range(steps):
        frame.copy_(inputs[:, t])
        flags.copy_(is_first[:, t])
        got = live.step(frame, flags if flags.any() or t % 2 else None)
        if not (torch.equal(frame, inputs[:, t]) and torch.equal(flags, is_first[:, t])):
            raise Violation(f"{where}: step {t} writes into the inputs or is_first that it was given", WRITES)
        frame.fill_(torch.nan)
        flags.fill_(True)
        _same_step(meter, got, want[:, : t + 1], t, where, "the stream's own arithmetic differs from the core's")
        outputs.append(got)
        if t in (steps // 2, steps - 1):
            states.append(live.state)
    kept = torch.stack(outputs, 1)
    meter.outputs(kept, want, f"{where}, outputs kept until the end", cause="a step writes into the output before it")
    cause = "ring buffers are unrolled in another order, or rows that were reset keep entries"
    half = subject(inputs[:, : steps // 2 + 1], subject.fresh_state(), is_first[:, : steps // 2 + 1])[1]
    meter.states(states[0], half, f"{where}, `stream.state`", step=steps // 2, cause=cause)
    meter.states(states[-1], end, f"{where}, `stream.state`", step=steps - 1, cause=cause)
    if live.nbytes != size:
        raise Violation(f"nbytes went from {size} to {live.nbytes} in {steps} steps", "a buffer grows with the steps")


def _stream_modes(subject: Subject, meter: Comparison) -> None:
    """Stepped with gradients on and under inference mode, with resets."""
    inputs, is_first = subject.inputs(14, steps=8), subject.resets(13, steps=8)
    is_first[:, 4] = True  # all rows at once, as evaluations begin
    steps = list(zip(inputs.unbind(1), is_first.unbind(1), strict=True))
    want = subject(inputs, subject.fresh_state(), is_first)[0]
    plain, inference = subject.live(), subject.live()
    with torch.enable_grad():
        got = torch.stack([plain.step(*step) for step in steps], 1)
    meter.outputs(got, want, "stream stepped with gradients on", cause="the stream takes another path with gradients")
    with torch.inference_mode():
        parts = [inference.step(*step) for step in steps[:6]]
    parts += [inference.step(*step) for step in steps[6:]]
    cause = "the stream takes another path under inference mode, or cannot leave it again"
    meter.outputs(torch.stack(parts, 1), want, "stream stepped under torch.inference_mode", cause=cause)


@torch.no_grad()
def copies(subject: Subject) -> str:
    """A stream that is copied or pickled continues with the same numbers, and the two go their own ways."""
    meter = subject.comparison()
    ways = {"copy.deepcopy": copy.deepcopy, "pickle": lambda live: pickle.loads(pickle.dumps(live))}
    for batch in (1,) if subject.options.quick else (subject.batch, 1):
        few = subject.variant(batch=batch)
        state = few.used_state(4)
        for name, way in ways.items():
            live = few.live()
            live.load_state(clone(state))
            try:
                twin = way(live)
            except Exception as error:  # whatever a stranger's class raises
                raise Violation(
                    f"{name} of a stream raises {type(error).__name__}: {' '.join(str(error).split())[:200]}",
                    "the stream holds a closure, a file or a view: give it __reduce__, or keep buffers as attributes",
                ) from None
            cause = "the copy shares buffers with the original, or its buffers and its steps' functions came apart"
            what = f"{name} of a stream of {batch} rows"
            meter.states(twin.state, state, what, cause=cause)
            for x in few.inputs(15, steps=3).unbind(1):
                twin.step(x)
            meter.states(live.state, state, f"{what}, the original while the copy goes on", cause=cause)
            _follow(few, meter, live, state, 16, f"{what}, the original after the copy went on", cause)
            again = way(live)
            now = live.state
            for x in few.inputs(17, steps=3).unbind(1):
                live.step(x)
            _follow(few, meter, again, now, 18, f"{what}, the copy after the original went on", cause)
    return f"copy.deepcopy and pickle of streams, both ways: {meter.report()}"


def _same_step(meter: Comparison, got: Tensor, want: Tensor, step: int, what: str, cause: str) -> None:
    try:
        meter.outputs(got[:, None], want[:, -1:], what)
    except Violation as found:
        detail = found.detail.replace("at step 0", f"at step {step}")
        raise Violation(detail, cause, found.relative) from None


def _follow(subject: Subject, meter: Comparison, live: Any, state: Any, salt: int, what: str, cause: str) -> None:
    """Six further steps without resets from ``live`` must be those of the core from ``state``."""
    inputs = subject.inputs(salt, steps=6)
    for t in range(6):
        want, state = subject(inputs[:, t : t + 1], state, subject.never(steps=1))
        _same_step(meter, live.step(inputs[:, t]), want, t, what, cause)
    meter.states(live.state, state, what, step=5, cause=cause)


def _stream_unrolls(subject: Subject, meter: Comparison) -> None:
    """Blocks of 2, 1, 3, 5 steps and so on, with resets inside them, and one of all steps against the core. Classes of
    others that are no :class:`Stream` promise single steps only.
    """
    live = subject.live()
    if not isinstance(live, Stream):
        return
    state = subject.used_state(5)
    live.load_state(clone(state))
    inputs, is_first = subject.inputs(19), subject.resets(20)
    is_first[:, 0] = False  # the first block goes on from the state
    want, end = subject(inputs, state, is_first)
    outputs, t = [], 0
    for length in cycle((2, 1, 3, 5)):
        if t >= subject.steps:
            break
        here = slice(t, min(t + length, subject.steps))
        outputs.append(live.unroll(inputs[:, here], is_first[:, here] if is_first[:, here].any() else None))
        t += length
    what, cause = "`stream.unroll` against sequence", "a block of steps sees or keeps something else than single steps"
    meter.outputs(torch.cat(outputs, 1), want, what, cause=cause)
    meter.states(live.state, end, f"{what}, `stream.state`", step=subject.steps - 1, cause=cause)
    live.load_state(clone(state))
    is_first = subject.never()
    is_first[1, subject.steps // 3] = True  # a reset ends a block, so that the second one is longer than any window
    want, end = subject(inputs, state, is_first)
    what = f"`stream.unroll` of {subject.steps} steps against sequence"
    meter.outputs(live.unroll(inputs, is_first), want, what, cause=cause)
    meter.states(live.state, end, f"{what}, `stream.state`", step=subject.steps - 1, cause=cause)


def _stream_without_resets(subject: Subject, meter: Comparison) -> None:
    live = subject.live()
    state = subject.used_state()
    given = clone(state)
    live.load_state(given)
    inputs = subject.inputs(6)
    want, end = subject(inputs, state, subject.never())
    got = torch.stack([live.step(x) for x in inputs.unbind(1)], 1)
    what = f"{subject.steps} steps without is_first from a loaded state"
    meter.outputs(got, want, what, cause="load_state loses something, or step() without is_first is a different path")
    meter.states(given, state, "a state that a stream was given by load_state, after its steps", cause=WRITES)
    meter.states(live.state, end, what, step=subject.steps - 1, cause="load_state loses something")


def _stream_forks(subject: Subject, meter: Comparison) -> None:
    live = subject.live()
    state = subject.used_state(1)
    live.load_state(clone(state))
    cause = "two streams of one core share a buffer"
    twin, seen = live.fork(), live.state
    _follow(subject, meter, twin, state, 7, "a fork of a stream", "fork leaves out a part of the memory")
    meter.states(live.state, state, "a stream whose fork went on", cause=cause)
    meter.states(seen, state, "`stream.state` that was read before", cause="`stream.state` is not a copy")
    for leaf in leaves(seen):
        leaf.zero_()
    _follow(subject, meter, live, state, 8, "a stream after its fork went on", cause)


def _stream_resets_rows(subject: Subject, meter: Comparison) -> None:
    state, fresh = subject.used_state(2), subject.fresh_state()
    mask = torch.zeros(subject.batch, dtype=torch.bool)
    mask[[0, 2]] = True
    for rows, said in (([1], "reset([1])"), (mask, "reset(bool mask of rows 0 and 2)"), (None, "reset()")):
        live = subject.live()
        live.load_state(clone(state))
        live.reset(rows)
        index = torch.arange(subject.batch) if rows is None else torch.as_tensor(rows)
        want = put_rows(state, index, take_rows(fresh, index))
        what = f"stream after {said}"
        meter.states(live.state, want, what, cause="reset does not clear exactly the rows that it names")
        _follow(subject, meter, live, want, 9, what, "reset clears the state but not a buffer beside it")


def _stream_saves(subject: Subject, meter: Comparison) -> None:
    live = subject.live()
    state = subject.used_state(3)
    live.load_state(clone(state))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.safetensors"
        live.save(path)
        other = subject.live()
        other.load(path)
    cause = "save leaves out a part of the memory"
    meter.states(other.state, state, "stream after save and load", cause=cause)
    _follow(subject, meter, other, state, 10, "stream after save and load", cause)
