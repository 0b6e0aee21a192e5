"""The line about broken frames: a step that is not finite is NaN at once, and is not remembered."""

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, NotApplicable, Violation, continuous, first_place, per_step
from recollect.certify.subject import Subject, gradients, probe
from recollect.cores.contract import MemoryCore
from recollect.state import map_state, named_leaves, spread_rows, where_first

VALUES = (float("nan"), float("inf"), 1e30)
"""What a broken sensor sends; the last one has a square that float32 cannot hold."""


def frames(subject: Subject) -> str:
    """A broken step gives NaN and enters the memory as zeros; a broken memory gives NaN until the next reset."""
    if not isinstance(subject.core, MemoryCore):
        raise NotApplicable("only cores that inherit MemoryCore promise what a broken frame does inside an episode")
    meter = subject.comparison()
    for label, twin in (("", subject), *(() if subject.options.quick else subject.variants())):
        try:
            _broken_steps(twin, meter)
            _broken_memory(twin, meter)
        except Violation as found:
            raise (found.during(label) if label else found) from None
    return f"NaN, infinity and 1e30 in single steps, NaN in the memory, in calls and streams: {meter.report()}"


def _broken_steps(subject: Subject, meter: Comparison) -> None:
    steps, batch = subject.steps, subject.batch
    inputs, is_first, state = subject.inputs(101), subject.resets(102), subject.used_state()
    broken = torch.rand(batch, steps, generator=subject.generator(103)) < 0.2
    broken[0, steps // 3] = True
    broken[-1, -1] = True
    if subject.discrete:  # two zeros in one episode can make two memories equally good, and either choice is right
        broken &= broken.long().cumsum(1) == 1
    whole = broken.reshape(batch, steps, *[1] * len(subject.input_shape))
    some = torch.rand(inputs.shape, generator=subject.generator(104)) < 0.5
    some.view(batch, steps, -1)[..., 0] = True
    values = VALUES if subject.dtype == torch.float32 else VALUES[:2]
    choice = torch.tensor(values, dtype=inputs.dtype)[torch.arange(steps) % len(values)]
    dirty = torch.where(whole & some, choice.reshape(1, steps, *[1] * len(subject.input_shape)), inputs)
    clean = torch.where(whole, 0.0, inputs)
    want, last = subject(clean, state, is_first)
    got, end = subject(dirty, state, is_first)
    _all_nan(got, broken, "a call with broken steps")
    if not want[~broken].isfinite().all():
        raise Violation("a step of zeros is not finite, or makes later steps so", "a division by a norm meets zero")
    kept = "a broken step is remembered: it must enter the memory as zeros (the base class does that in `forward`)"
    what = "a call with broken steps against zeros at these steps"
    meter.outputs(got, want, what, mask=~broken, cause=kept)
    meter.states(end, last, what, step=steps - 1, cause=kept)
    weights = subject.weights()
    left = gradients(probe(got[~broken], subject.generator(105)), weights)
    right = gradients(probe(want[~broken], subject.generator(105)), weights)
    meter.gradients(left, right, what, kept)
    for name, gradient in right.items():
        if gradient is not None and not gradient.isfinite().all():
            raise Violation(f"{what}: the gradient of {name} is not finite", "a root or a division meets zero")
    memory, parts = state, []
    for t in range(min(steps, 12 if subject.brief or subject.options.quick else steps)):
        out, memory = subject(dirty[:, t : t + 1], memory, is_first[:, t : t + 1])
        parts.append(out)
    stepped = torch.cat(parts, 1)
    few = broken[:, : len(parts)]
    _all_nan(stepped, few, "calls of one step, some broken")
    meter.outputs(stepped, want[:, : len(parts)], "calls of one step, some broken", mask=~few, cause=kept)
    if subject.streams:
        live = subject.live()
        live.load_state(map_state(Tensor.clone, state))
        parts = [live.step(dirty[:, t], is_first[:, t]) for t in range(len(parts))]
        stepped = torch.stack(parts, 1)
        _all_nan(stepped, few, "a stream with broken steps")
        if not subject.is_training:
            meter.outputs(stepped, want[:, : len(parts)], "a stream with broken steps", mask=~few, cause=kept)


def _all_nan(out: Tensor, broken: Tensor, what: str) -> None:
    fine = per_step(~out.isnan()).any(-1) & broken
    if fine.any():
        step, row = first_place(fine)
        raise Violation(
            f"{what}: the input of step {step}, row {row} is not finite and the output is a number",
            "a broken frame must be seen at once: give NaN at that step (the base class does that in `forward`)",
        )


def _broken_memory(subject: Subject, meter: Comparison) -> None:
    """One NaN in one leaf of row 0: NaN until row 0 starts afresh, and the other rows do not mind."""
    steps, batch = subject.steps, subject.batch
    inputs, state = subject.inputs(106), subject.used_state(3)
    is_first = subject.resets(107)
    place = steps // 2
    is_first[0] = False
    is_first[0, place] = True
    lost = torch.zeros(batch, steps, dtype=torch.bool)
    lost[0, :place] = True
    row = torch.arange(batch) == 0
    want, last = subject(inputs, where_first(row, subject.fresh_state(), state), is_first)  # as new in row 0
    cause = "a memory that is not finite must give NaN until the next is_first, and be as new from there on"
    for name, leaf in list(named_leaves(state)):
        if not continuous(leaf) or not leaf[0].numel():
            continue
        bad = map_state(lambda old, leaf=leaf: _spoil(old, row) if old is leaf else old, state)
        what = f"one NaN in the incoming state.{name}, row 0"
        got, end = subject(inputs, bad, is_first)
        _all_nan_memory(got, lost, what, cause)
        meter.outputs(got, want, what, mask=~lost, cause=cause)
        meter.states(end, last, what, step=steps - 1, cause=cause)
        out, middle = subject(inputs[:, :2], bad, subject.never(steps=2))
        later, _ = subject(inputs[:, 2:3], middle, subject.never(steps=1))
        following = torch.cat((out, later), 1)
        _all_nan_memory(following, row[:, None].expand(-1, 3), f"{what}, calls of 2 and 1 steps without reset", cause)


def _spoil(leaf: Tensor, row: Tensor) -> Tensor:
    flat = leaf.reshape(leaf.shape[0], -1).clone()
    flat[:, -1] = flat[:, -1] + (complex(0.0, float("nan")) if leaf.is_complex() else torch.nan)
    bad = flat.reshape(leaf.shape)
    return torch.where(spread_rows(row, leaf), bad, leaf)


def _all_nan_memory(out: Tensor, lost: Tensor, what: str, cause: str) -> None:
    fine = per_step(~out.isnan()).any(-1) & lost
    if fine.any():
        step = int(fine.any(0).nonzero()[0])
        raise Violation(f"{what}: the output of step {step} is a number", cause)
