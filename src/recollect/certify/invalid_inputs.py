"""Lines about invalid inputs: a step that is not finite gives NaN, and it does not enter the memory.

Modules that do not inherit :class:`MemoryCore` may answer such a step as they like. Their memory is judged: what
follows must be as if the step was zeros, or had not been, or not be finite.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, NotApplicable, Violation, first_place, is_continuous, per_step
from recollect.certify.random_sizes import describe, in_mode, modes, size_generator
from recollect.certify.subject import Subject, gradients, probe
from recollect.cores.contract import MemoryCore
from recollect.state import map_state, named_leaves, spread_rows, where_first

VALUES = (float("nan"), float("inf"), 1e30)  # values of a broken sensor; the last one has a square beyond float32

MANY_ROWS = (130, 300)
"""Range of rows, of which one number is drawn."""

REMEMBERED = "an invalid step is remembered: it must enter the memory as zeros (the base class does that in `forward`)"


@dataclass(frozen=True)
class InvalidCall:
    """A call with invalid steps."""

    clean: Tensor
    """Inputs with zeros in place of invalid steps."""
    dirty: Tensor
    invalid: Tensor
    """bool [b, t]"""
    is_first: Tensor
    state: Any


def frames(subject: Subject) -> str:
    """Check that the output of an invalid step is NaN, and so are outputs from an invalid memory."""
    if not isinstance(subject.core, MemoryCore):
        raise NotApplicable(f"only cores that inherit MemoryCore promise NaN; this one {_answers(subject)}")
    found = _judge(subject)
    if found.shown:
        raise found.shown
    return (
        "NaN, infinity and 1e30 in single steps give NaN, in calls and streams, and so does NaN in the memory, in "
        f"calls; {found.drawn}"
    )


def frames_memory(subject: Subject) -> str:
    """Check that an invalid step enters the memory as zeros, and that nothing of an invalid memory survives a reset."""
    if not isinstance(subject.core, MemoryCore):
        return _foreign_memory(subject, subject.comparison())
    found = _judge(subject)
    if found.remembered:
        raise found.remembered
    report = found.meter.report()
    return f"invalid steps enter the memory as zeros, in calls and streams: {report}; {found.drawn}"


@dataclass
class Findings:
    """What is wrong with the outputs of invalid steps, and with what is remembered of them."""

    meter: Comparison
    drawn: str = "no size drawn"
    shown: Violation | None = None
    remembered: Violation | None = None


def _judge(subject: Subject) -> Findings:
    """Make the calls of both lines once: the subject, its variants and many rows, a number that is drawn."""
    if "invalid steps" in subject.cache:
        return subject.cache["invalid steps"]
    found = Findings(subject.comparison())
    twins: list[tuple[str, Subject]] = [("", subject)]
    if not subject.options.quick:
        draws = size_generator(subject, "frames")
        rows, steps, mode = draws.randint(*MANY_ROWS), draws.randint(4, 9), draws.choice(modes(subject))
        found.drawn = describe([(rows, steps, mode)])
        twins += [*subject.variants(), (f"{rows} rows, {mode}", in_mode(subject, rows, steps, mode))]
    for label, twin in twins:
        _steps(twin, found, label)
        _memories(twin, found, label)
    subject.cache["invalid steps"] = found
    return found


@contextmanager
def _noted(found: Findings, half: str, label: str) -> Iterator[None]:
    """Keep the first violation of a half, with its circumstances."""
    try:
        yield
    except Violation as violation:
        if getattr(found, half) is None:
            setattr(found, half, violation.during(label) if label else violation)


def _call(subject: Subject) -> InvalidCall:
    """Return a call in which a fifth of the steps is invalid, in some or all of their entries."""
    steps, batch = subject.steps, subject.batch
    inputs, is_first, state = subject.inputs(101), subject.resets(102), subject.used_state()
    invalid = torch.rand(batch, steps, generator=subject.generator(103)) < 0.2
    invalid[0, steps // 3] = True
    invalid[-1, -1] = True
    if subject.discrete:  # two zeros in one episode can make two memories equally good, and either choice is right
        invalid &= invalid.long().cumsum(1) == 1
    axes = [1] * len(subject.input_shape)
    whole = invalid.reshape(batch, steps, *axes)
    entries = torch.rand(inputs.shape, generator=subject.generator(104)) < 0.5
    entries.view(batch, steps, -1)[..., 0] = True
    values = VALUES if subject.dtype == torch.float32 else VALUES[:2]
    choice = torch.tensor(values, dtype=inputs.dtype)[torch.arange(steps) % len(values)]
    dirty = torch.where(whole & entries, choice.reshape(1, steps, *axes), inputs)
    return InvalidCall(torch.where(whole, 0.0, inputs), dirty, invalid, is_first, state)


def _in_steps(subject: Subject, call: InvalidCall) -> Iterator[tuple[str, Tensor]]:
    """Yield outputs of single steps of the core and of its stream, with what they are."""
    few = min(subject.steps, 12 if subject.brief or subject.options.quick else subject.steps)
    memory, parts = call.state, []
    for t in range(few):
        out, memory = subject(call.dirty[:, t : t + 1], memory, call.is_first[:, t : t + 1])
        parts.append(out)
    yield "calls of one step, some invalid", torch.cat(parts, 1)
    if subject.has_stream:
        live = subject.new_stream()
        live.load_state(map_state(Tensor.clone, call.state))
        steps = [live.step(call.dirty[:, t], call.is_first[:, t]) for t in range(few)]
        yield "a stream with invalid steps", torch.stack(steps, 1)


def _steps(subject: Subject, found: Findings, label: str) -> None:
    """Compare a call with invalid steps, single steps and a stream with a call that has zeros there."""
    call, meter = _call(subject), found.meter
    valid = ~call.invalid
    want, last = subject(call.clean, call.state, call.is_first)
    got, end = subject(call.dirty, call.state, call.is_first)
    what = "a call with invalid steps"
    with _noted(found, "shown", label):
        _require_nan(got, call.invalid, what)
    with _noted(found, "remembered", label):
        if not want[valid].isfinite().all():
            raise Violation("the output of a step of zeros, or of a later one, is not finite", "a norm divides by zero")
        what = f"{what} against zeros at these steps"
        meter.results((got, end), (want, last), what, mask=valid, cause=REMEMBERED)
        weights = subject.weights()
        left = gradients(probe(got[valid], subject.generator(105)), weights)
        right = gradients(probe(want[valid], subject.generator(105)), weights)
        meter.gradients(left, right, what, REMEMBERED)
        for name, gradient in right.items():
            if gradient is not None and not gradient.isfinite().all():
                raise Violation(f"{what}: the gradient of {name} is not finite", "a root or a division meets zero")
    for what, got in _in_steps(subject, call):
        few = got.shape[1]
        with _noted(found, "shown", label):
            _require_nan(got, call.invalid[:, :few], what)
        if not (subject.is_training and "stream" in what):
            with _noted(found, "remembered", label):
                meter.outputs(got, want[:, :few], what, mask=valid[:, :few], cause=REMEMBERED)


def _require_nan(out: Tensor, invalid: Tensor, what: str) -> None:
    finite = per_step(~out.isnan()).any(-1) & invalid
    if finite.any():
        step, row = first_place(finite)
        raise Violation(
            f"{what}: the input of step {step}, row {row} is not finite and the output is a number",
            "an invalid step must give NaN at that step (the base class does that in `forward`)",
        )


def _invalid_memories(subject: Subject) -> Iterator[tuple[str, Any, Any, Tensor, Tensor]]:
    """Yield states with one NaN in one leaf of row 0, which is reset in the middle of a call.

    With a description, the state without NaN in which row 0 is fresh, and the flags [b, t] of resets and of lost steps.
    """
    state, is_first = subject.used_state(3), subject.resets(107)
    place = subject.steps // 2
    is_first[0] = False
    is_first[0, place] = True
    lost = torch.zeros(subject.batch, subject.steps, dtype=torch.bool)
    lost[0, :place] = True
    row = torch.arange(subject.batch) == 0
    fresh = where_first(row, subject.fresh_state(), state)
    for name, leaf in list(named_leaves(state)):
        if is_continuous(leaf) and leaf[0].numel():
            bad = map_state(lambda old, leaf=leaf: _with_nan(old, row) if old is leaf else old, state)
            yield f"one NaN in the incoming state.{name}, row 0", bad, fresh, is_first, lost


INVALID_MEMORY = (
    "a memory that is not finite must give NaN until the next is_first, and nothing of it may remain after that"
)


def _memories(subject: Subject, found: Findings, label: str) -> None:
    """Require NaN until row 0 is reset, also in later calls; all else is as if it had started fresh."""
    inputs = subject.inputs(106)
    few = min(2, subject.steps - 1)
    for what, bad, fresh, is_first, lost in _invalid_memories(subject):
        want = subject(inputs, fresh, is_first)
        got = subject(inputs, bad, is_first)
        with _noted(found, "shown", label):
            _require_nan_memory(got[0], lost, what, INVALID_MEMORY)
            out, middle = subject(inputs[:, :few], bad, subject.no_resets(steps=few))
            later, _ = subject(inputs[:, few : few + 1], middle, subject.no_resets(steps=1))
            longer = f"{what}, calls of {few} and 1 steps without reset"
            row = torch.arange(subject.batch) == 0
            _require_nan_memory(torch.cat((out, later), 1), row[:, None].expand(-1, few + 1), longer, INVALID_MEMORY)
        with _noted(found, "remembered", label):
            meter = found.meter
            meter.results(got, want, what, mask=~lost, cause=INVALID_MEMORY)


def _with_nan(leaf: Tensor, row: Tensor) -> Tensor:
    flat = leaf.reshape(leaf.shape[0], -1).clone()
    flat[:, -1] = flat[:, -1] + (complex(0.0, float("nan")) if leaf.is_complex() else torch.nan)
    return torch.where(spread_rows(row, leaf), flat.reshape(leaf.shape), leaf)


def _require_nan_memory(out: Tensor, lost: Tensor, what: str, cause: str) -> None:
    finite = per_step(~out.isnan()).any(-1) & lost
    if finite.any():
        step, _ = first_place(finite)
        raise Violation(f"{what}: the output of step {step} is a number", cause)


def _answers(subject: Subject) -> str:
    """Return what a module of another library answers to one invalid step."""
    inputs = subject.inputs(101, steps=2)
    inputs[:, 1] = torch.nan
    with torch.no_grad():
        out, _ = subject(inputs, subject.used_state(), subject.no_resets(steps=2))
    return (
        "gives NaN" if per_step(out[:, 1:].isnan()).any(-1).all() else "answers NaN with a number, and nobody is told"
    )


@torch.no_grad()
def _foreign_memory(subject: Subject, meter: Comparison) -> str:
    """Check the memory of a module that promises nothing about outputs of invalid steps."""
    inputs, state, never = subject.inputs(101), subject.used_state(), subject.no_resets()
    place = subject.steps // 2
    found = []
    for value in (torch.nan, torch.inf):
        dirty, zeros = inputs.clone(), inputs.clone()
        dirty[:, place], zeros[:, place] = value, 0.0
        got = subject(dirty, state, never)[0][:, place + 1 :]
        without = torch.cat((inputs[:, :place], inputs[:, place + 1 :]), 1)
        ways = {
            "as zeros": subject(zeros, state, never)[0][:, place + 1 :],
            "not at all": subject(without, state, never[:, 1:])[0][:, place:],
        }
        finite = per_step(got.isfinite()).all(-1)
        if not finite.any():
            found.append("as a memory that is not finite")
            continue
        errors = []
        for way, want in ways.items():
            try:
                meter.outputs(got, want, f"steps after one of {value}, against {way}", mask=finite, cause=MADE_UP)
                found.append(way)
                break
            except Violation as violation:
                errors.append(violation)
        else:
            raise errors[0]
    ways = " or ".join(dict.fromkeys(found))
    return f"steps of NaN and infinity enter the memory {ways}: {meter.report()}"


MADE_UP = (
    "an invalid step is remembered as a number that was never measured: select zeros, or leave the memory as it was "
    "(nan_to_num gives the largest number for an infinity)"
)
