"""The line about the reference implementation: the fast path equals the slow loop over the equations."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, NotApplicable, Violation
from recollect.certify.subject import Reference, Subject, gradient_state, gradient_targets, gradients, probe_all
from recollect.state import named_leaves, take_rows


def reference(subject: Subject) -> str:
    """Check that outputs, final state and gradients equal the reference implementation."""
    plain = subject.options.reference or getattr(type(subject.core), "reference_unroll", None)
    if plain is None:
        raise NotApplicable("no reference is known: give reference=function(core, inputs, state, is_first)")
    double, quick = subject.in_float64(), subject.options.quick
    meter = double.comparison()
    resets, start = "from a used state, with resets", (double.used_state(7), double.resets(132))
    # The reference is slow. Without resets its rows differ in their inputs alone.
    if quick:
        _compare_rows(double, plain, meter, 2, start, f"{resets}, evaluation mode")
    else:
        _compare(double, plain, meter, *start, f"{resets}, evaluation mode")
        fresh = (double.fresh_state(), double.no_resets())
        _compare_rows(double, plain, meter, 1, fresh, "from a fresh state, without resets, evaluation mode")
        if not (subject.is_noisy or _has_dropout(subject.core)):
            _compare_rows(double.variant(is_training=True), plain, meter, 2, start, f"{resets}, training mode")
    few = double.variant(batch=1, steps=3)
    _compare(few, plain, meter, few.used_state(8, steps=subject.steps), few.no_resets(), "3 steps of one row")
    return f"{subject.steps} steps, outputs, final states and gradients: {meter.report()}"


def _compare_rows(
    subject: Subject, plain: Reference, meter: Comparison, rows: int, start: tuple[Any, Tensor], what: str
) -> None:
    """Compare the first rows of a call."""
    state, is_first = start
    twin = subject.variant(batch=rows)
    _compare(twin, plain, meter, take_rows(state, slice(0, rows)), is_first[:rows], what)


def _has_dropout(core: Any) -> bool:
    """Whether a core has dropout or noise, which references do not have in training mode."""
    modules = (module for module in core.modules() if isinstance(module, torch.nn.Dropout))
    return any(module.p for module in modules) or any(_rates(getattr(core, "config", None)))


def _rates(config: Any) -> Iterator[float]:
    """Yield dropout rates, and standard deviations of noise, of a config and of the configs in it."""
    if is_dataclass(config):
        for field in fields(config):
            value = getattr(config, field.name)
            if field.name.endswith(("dropout", "noise")):
                yield value or 0.0
            yield from _rates(value)


def _compare(subject: Subject, plain: Reference, meter: Comparison, state: Any, is_first: Tensor, what: str) -> None:
    what = f"against the reference, {what}"
    cause = "the fast path and the reference differ: one of them does not follow the equations"
    results, found = [], []
    for unroll in (subject.core, lambda *call: plain(subject.core, *call)):
        inputs, start = subject.inputs(133).requires_grad_(), gradient_state(state)
        with subject.mode(), torch.enable_grad():
            out, end = unroll(inputs, start, is_first)
        loss = probe_all(out, end, subject.generator(134))
        results.append((out, end))
        found.append(gradients(loss, {**gradient_targets(inputs, start), **subject.weights()}))
    got, want = results
    meter.results(got, want, what, cause=cause)
    for (name, leaf), (_, like) in zip(named_leaves(got[1]), named_leaves(want[1]), strict=True):
        if leaf.dtype != like.dtype:
            raise Violation(f"{what}: state.{name} is {leaf.dtype}, that of the reference is {like.dtype}", cause)
    left, right = found
    meter.gradients(left, right, what, cause)
