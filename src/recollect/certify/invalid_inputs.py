"""The line about invalid inputs: a step that is not finite gives NaN and does not enter the memory."""

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, NotApplicable, Violation, first_place, is_continuous, per_step
from recollect.certify.subject import Subject, gradients, probe
from recollect.cores.contract import MemoryCore
from recollect.state import map_state, named_leaves, spread_rows, where_first

VALUES = (float("nan"), float("inf"), 1e30)  # values of a broken sensor; the last one has a square beyond float32

REMEMBERED = "an invalid step is remembered: it must enter the memory as zeros (the base class does that in `forward`)"


def frames(subject: Subject) -> str:
    """Check that an invalid step gives NaN and does not enter the memory, which gives NaN if it is invalid itself."""
    if not isinstance(subject.core, MemoryCore):
        raise NotApplicable("only cores that inherit MemoryCore define the effect of invalid steps")
    meter = subject.comparison()
    for label, twin in (("", subject), *(() if subject.options.quick else subject.variants())):
        try:
            _invalid_steps(twin, meter)
            _invalid_memory(twin, meter)
        except Violation as found:
            raise (found.during(label) if label else found) from None
    return f"NaN, infinity and 1e30 in single steps, NaN in the memory, in calls and streams: {meter.report()}"


def _invalid_steps(subject: Subject, meter: Comparison) -> None:
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
    clean = torch.where(whole, 0.0, inputs)
    want, last = subject(clean, state, is_first)
    got, end = subject(dirty, state, is_first)
    _require_nan(got, invalid, "a call with invalid steps")
    if not want[~invalid].isfinite().all():
        raise Violation("the output of a step of zeros, or of a later one, is not finite", "a norm divides by zero")
    what = "a call with invalid steps against zeros at these steps"
    meter.results((got, end), (want, last), what, mask=~invalid, cause=REMEMBERED)
    weights = subject.weights()
    left = gradients(probe(got[~invalid], subject.generator(105)), weights)
    right = gradients(probe(want[~invalid], subject.generator(105)), weights)
    meter.gradients(left, right, what, REMEMBERED)
    for name, gradient in right.items():
        if gradient is not None and not gradient.isfinite().all():
            raise Violation(f"{what}: the gradient of {name} is not finite", "a root or a division meets zero")
    few = min(steps, 12 if subject.brief or subject.options.quick else steps)
    memory, parts = state, []
    for t in range(few):
        out, memory = subject(dirty[:, t : t + 1], memory, is_first[:, t : t + 1])
        parts.append(out)
    ways = {"calls of one step, some invalid": torch.cat(parts, 1)}
    if subject.has_stream:
        live = subject.new_stream()
        live.load_state(map_state(Tensor.clone, state))
        ways["a stream with invalid steps"] = torch.stack(
            [live.step(dirty[:, t], is_first[:, t]) for t in range(few)], 1
        )
    for what, got in ways.items():
        _require_nan(got, invalid[:, :few], what)
        if not (subject.is_training and "stream" in what):
            meter.outputs(got, want[:, :few], what, mask=~invalid[:, :few], cause=REMEMBERED)


def _require_nan(out: Tensor, invalid: Tensor, what: str) -> None:
    finite = per_step(~out.isnan()).any(-1) & invalid
    if finite.any():
        step, row = first_place(finite)
        raise Violation(
            f"{what}: the input of step {step}, row {row} is not finite and the output is a number",
            "an invalid step must give NaN at that step (the base class does that in `forward`)",
        )


def _invalid_memory(subject: Subject, meter: Comparison) -> None:
    """Put one NaN into one leaf of row 0: NaN until row 0 is reset, and no effect on other rows."""
    steps, batch = subject.steps, subject.batch
    inputs, state = subject.inputs(106), subject.used_state(3)
    is_first = subject.resets(107)
    place = steps // 2
    is_first[0] = False
    is_first[0, place] = True
    lost = torch.zeros(batch, steps, dtype=torch.bool)
    lost[0, :place] = True
    row = torch.arange(batch) == 0
    want = subject(inputs, where_first(row, subject.fresh_state(), state), is_first)  # row 0 starts fresh
    cause = "a memory that is not finite must give NaN until the next is_first, and nothing of it may remain after that"
    for name, leaf in list(named_leaves(state)):
        if not is_continuous(leaf) or not leaf[0].numel():
            continue
        bad = map_state(lambda old, leaf=leaf: _with_nan(old, row) if old is leaf else old, state)
        what = f"one NaN in the incoming state.{name}, row 0"
        got = subject(inputs, bad, is_first)
        _require_nan_memory(got[0], lost, what, cause)
        meter.results(got, want, what, mask=~lost, cause=cause)
        out, middle = subject(inputs[:, :2], bad, subject.no_resets(steps=2))
        later, _ = subject(inputs[:, 2:3], middle, subject.no_resets(steps=1))
        what += ", calls of 2 and 1 steps without reset"
        _require_nan_memory(torch.cat((out, later), 1), row[:, None].expand(-1, 3), what, cause)


def _with_nan(leaf: Tensor, row: Tensor) -> Tensor:
    flat = leaf.reshape(leaf.shape[0], -1).clone()
    flat[:, -1] = flat[:, -1] + (complex(0.0, float("nan")) if leaf.is_complex() else torch.nan)
    return torch.where(spread_rows(row, leaf), flat.reshape(leaf.shape), leaf)


def _require_nan_memory(out: Tensor, lost: Tensor, what: str, cause: str) -> None:
    finite = per_step(~out.isnan()).any(-1) & lost
    if finite.any():
        step, _ = first_place(finite)
        raise Violation(f"{what}: the output of step {step} is a number", cause)
