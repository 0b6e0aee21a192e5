"""Lines about equality: of every split of a sequence, of the live stream, of a reset and a fresh start.

Each check takes a :class:`Subject`, returns what it found, and raises :class:`Violation` if a promise is broken.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, NotApplicable, Violation
from recollect.certify.subject import Subject, gradients, probe
from recollect.state import clone, leaves, put_rows, take_rows

ANCHOR = (
    "something is counted from the start of the call and not from the start of the episode "
    "(chunk borders, positions, window masks), or a part of the memory is missing from the state"
)
MISPLACED = (
    "equal without resets and unequal with them: a reset inside a call is applied at another step than the same "
    "reset at the start of a call, or what it should clear stays in a cache"
)


def run_split(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor, sizes: list[int]) -> tuple[Tensor, Any]:
    """The sequence in calls of the given sizes."""
    parts = []
    for x, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
        out, state = subject(x, state, first)
        parts.append(out)
    return torch.cat(parts, 1), state


def random_sizes(steps: int, generator: torch.Generator) -> list[int]:
    """Sizes of calls that add up to ``steps``, mostly short, sometimes long."""
    sizes = []
    while steps:
        longest = steps if torch.rand((), generator=generator) < 0.3 else min(steps, 5)
        sizes.append(int(torch.randint(1, longest + 1, (), generator=generator)))
        steps -= sizes[-1]
    return sizes


@torch.no_grad()
def splits(subject: Subject) -> str:
    """One call of T steps = T calls of one step = any split: outputs and final state."""
    meter, steps = subject.comparison(), subject.steps
    generator = subject.generator(1)
    ways = {
        f"{steps} calls of one step": [1] * steps,
        f"calls of 1 and {steps - 1} steps": [1, steps - 1],
    }
    sizes = random_sizes(steps, generator)
    ways[f"calls of {', '.join(map(str, sizes))} steps"] = sizes
    plans = {
        "from a fresh state, without resets": (subject.fresh_state(), subject.never(), ANCHOR),
        "from a used state, without resets": (subject.used_state(), subject.never(), ANCHOR),
        "from a used state, with resets": (subject.used_state(), subject.resets(2), MISPLACED),
    }
    inputs = subject.inputs(3)
    for plan, (state, is_first, cause) in plans.items():
        out, end = subject(inputs, state, is_first)
        for way, sizes in ways.items():
            what = f"{plan}, one call of {steps} steps against {way}"
            got, last = run_split(subject, inputs, state, is_first, sizes)
            meter.outputs(got, out, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)
    return f"{len(ways) * len(plans)} splits of {steps} steps, outputs and final states: {meter.report()}"


@torch.no_grad()
def stream(subject: Subject) -> str:
    """The live stream gives the sequence's numbers, and its state is the core's state at any moment."""
    core = subject.core
    if not hasattr(core, "stream"):
        raise NotApplicable("the module has no stream method")
    meter, steps, batch = subject.comparison(), subject.steps, subject.batch
    inputs, is_first = subject.inputs(4), subject.resets(5)
    live = core.stream(batch)
    size = live.nbytes
    state = subject.fresh_state()
    where = "stream against sequence"
    for t in range(steps):
        want, state = subject(inputs[:, t : t + 1], state, is_first[:, t : t + 1])
        got = live.step(inputs[:, t].clone(), is_first[:, t])
        _same_step(meter, got, want, t, where, "the stream's own arithmetic differs from the core's")
        if t % 5 == 0 or t == steps - 1:
            cause = "ring buffers are unrolled in another order, or rows that were reset keep entries"
            meter.states(live.state, state, f"{where}, `stream.state`", step=t, cause=cause)
    _stream_without_resets(subject, meter)
    _stream_forks(subject, meter)
    _stream_resets_rows(subject, meter)
    _stream_saves(subject, meter)
    if live.nbytes != size:
        raise Violation(f"nbytes went from {size} to {live.nbytes} in {steps} steps", "a buffer grows with the steps")
    return f"{steps} steps with resets, state, fork, reset(rows), save and load: {meter.report()}"


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


def _stream_without_resets(subject: Subject, meter: Comparison) -> None:
    live = subject.core.stream(subject.batch)
    state = subject.used_state()
    live.load_state(clone(state))
    inputs = subject.inputs(6)
    want, end = subject(inputs, state, subject.never())
    got = torch.stack([live.step(x) for x in inputs.unbind(1)], 1)
    what = f"{subject.steps} steps without is_first from a loaded state"
    meter.outputs(got, want, what, cause="load_state loses something, or step() without is_first is a different path")
    meter.states(live.state, end, what, step=subject.steps - 1, cause="load_state loses something")


def _stream_forks(subject: Subject, meter: Comparison) -> None:
    live = subject.core.stream(subject.batch)
    state = subject.used_state(1)
    live.load_state(clone(state))
    cause = "two streams of one core share a buffer"
    twin, seen = live.fork(), live.state
    for x in subject.inputs(7, steps=4).unbind(1):
        twin.step(x)
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
        live = subject.core.stream(subject.batch)
        live.load_state(clone(state))
        live.reset(rows)
        index = torch.arange(subject.batch) if rows is None else torch.as_tensor(rows)
        want = put_rows(state, index, take_rows(fresh, index))
        what = f"stream after {said}"
        meter.states(live.state, want, what, cause="reset does not clear exactly the rows that it names")
        _follow(subject, meter, live, want, 9, what, "reset clears the state but not a buffer beside it")


def _stream_saves(subject: Subject, meter: Comparison) -> None:
    live = subject.core.stream(subject.batch)
    state = subject.used_state(3)
    live.load_state(clone(state))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.safetensors"
        live.save(path)
        other = subject.core.stream(subject.batch)
        other.load(path)
    cause = "save leaves out a part of the memory"
    meter.states(other.state, state, "stream after save and load", cause=cause)
    _follow(subject, meter, other, state, 10, "stream after save and load", cause)


def reset(subject: Subject) -> str:
    """What follows a reset is what follows a fresh start, in outputs, state and gradients."""
    meter, steps, batch = subject.comparison(), subject.steps, subject.batch
    cause = (
        "the reset comes late or not at all, or a reset gives another memory than initial_state "
        "(zeros where the initial memory is learned, or a detached copy of it)"
    )
    inputs = subject.inputs(11)
    weights = subject.weights()
    for at in (0, steps // 2, steps - 1):
        is_first = subject.never()
        is_first[:, at] = True
        if at == steps // 2:
            is_first[:, at - 1] = True  # two in a row: the second one counts
        state = subject.used_state()
        got, end = subject(inputs, state, is_first)
        want, last = subject(inputs[:, at:], subject.core.initial_state(batch), subject.never(steps=steps - at))
        what = f"reset at step {at} against a fresh start"
        padded = torch.cat((torch.zeros_like(got[:, :at]), want), 1)
        after = torch.arange(steps).expand(batch, steps) >= at
        meter.outputs(got, padded, what, mask=after, cause=cause)
        meter.states(end, last, what, step=steps - 1, cause=cause)
        if at == steps // 2:
            left = gradients(probe(got[:, at:], subject.generator(12)), weights)
            right = gradients(probe(want, subject.generator(12)), weights)
            meter.gradients(left, right, what, cause=cause)
    _reset_of_fresh(subject, meter, inputs, cause)
    return f"3 resets in {steps} steps, outputs, states and gradients of the weights: {meter.report()}"


@torch.no_grad()
def _reset_of_fresh(subject: Subject, meter: Comparison, inputs: Tensor, cause: str) -> None:
    """Resetting a fresh memory, and resetting it again and again before the first step that counts, changes nothing."""
    first = subject.never()
    first[:, 0] = True
    want, last = subject(inputs, subject.fresh_state(), subject.never())
    got, end = subject(inputs, subject.fresh_state(), first)
    what = "is_first on a fresh state against no is_first"
    meter.outputs(got, want, what, cause=cause)
    meter.states(end, last, what, step=subject.steps - 1, cause=cause)
    every = torch.ones_like(first)
    got, _ = subject(inputs, subject.used_state(), every)
    parts = [subject(x, subject.fresh_state(), subject.never(steps=1))[0] for x in inputs[:, :8].split(1, 1)]
    what = "is_first at every step against fresh starts"
    meter.outputs(got[:, :8], torch.cat(parts, 1), what, cause=cause)
