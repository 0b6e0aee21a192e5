"""The line about the plain form: the fast path computes what the slow loop over the equations computes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, NotApplicable, Violation, continuous
from recollect.certify.subject import Reference, Subject, float_leaves, gradient_state, gradients, probe
from recollect.state import named_leaves, take_rows


def reference(subject: Subject) -> str:
    """Outputs, final state and gradients equal the plain form."""
    plain = _find(subject)
    double = subject.doubled()
    meter = double.comparison()
    modes = {"evaluation": double}
    if not (subject.noisy or subject.options.quick or _drops(subject.core)):
        modes["training"] = double.variant(is_training=True)
    cases = {
        "from a used state, with resets": (double.used_state(7), double.resets(132)),
        "from a fresh state, without resets": (double.fresh_state(), double.never()),
    }
    for mode, twin in modes.items():
        for start, (state, is_first) in list(cases.items())[: 1 if mode == "training" or subject.options.quick else 2]:
            if subject.options.quick:  # the plain form is slow
                twin, state, is_first = twin.variant(batch=2), take_rows(state, slice(0, 2)), is_first[:2]
            _equal(twin, plain, meter, state, is_first, f"{start}, {mode} mode")
    few = double.variant(batch=1, steps=3)
    _equal(few, plain, meter, few.used_state(8, steps=subject.steps), few.never(), "3 steps of one row")
    return f"{subject.steps} steps, outputs, final states and gradients: {meter.report()}"


def _find(subject: Subject) -> Reference:
    given = subject.options.reference
    if given is not None:
        return given
    own = getattr(type(subject.core), "reference_unroll", None)
    if own is None:
        raise NotApplicable("no plain form is known: give reference=function(core, inputs, state, is_first)")
    return own


def _drops(core: Any) -> bool:
    """Whether the plain form, which knows neither dropout nor noise, would refuse training mode."""
    modules = (module for module in core.modules() if isinstance(module, torch.nn.Dropout))
    return any(module.p for module in modules) or any(_rates(getattr(core, "config", None)))


def _rates(config: Any) -> Iterator[float]:
    """Dropout rates, and deviations of noise, of a config and of the configs in it."""
    if is_dataclass(config):
        for field in fields(config):
            value = getattr(config, field.name)
            if field.name.endswith(("dropout", "noise")):
                yield value or 0.0
            yield from _rates(value)


def _equal(subject: Subject, plain: Reference, meter: Comparison, state: Any, is_first: Tensor, what: str) -> None:
    cause = "the fast path and the plain form part: one of the two is not what the equations say"
    found = []
    for unroll in (subject.core, lambda *call: plain(subject.core, *call)):
        inputs, start = subject.inputs(133).requires_grad_(), gradient_state(state)
        with subject.mode(), torch.enable_grad():
            out, end = unroll(inputs, start, is_first)
        generator = subject.generator(134)
        loss = probe(out, generator)
        for leaf in float_leaves(end):
            loss = loss + probe(leaf, generator)
        names = {f"state.{name}": leaf for name, leaf in named_leaves(start) if continuous(leaf)}
        found.append((out, end, gradients(loss, {"inputs": inputs, **names, **subject.weights()})))
    (out, end, left), (want, last, right) = found
    what = f"against the plain form, {what}"
    meter.outputs(out, want, what, cause=cause)
    for (name, leaf), (_, like) in zip(named_leaves(end), named_leaves(last), strict=True):
        if leaf.dtype != like.dtype:
            raise Violation(f"{what}: state.{name} is {leaf.dtype}, the plain form gives {like.dtype}", cause)
    meter.states(end, last, what, step=is_first.shape[1] - 1, cause=cause)
    meter.gradients(left, right, what, cause)
