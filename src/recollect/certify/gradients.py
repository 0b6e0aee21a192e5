"""Lines about gradients: of all weights, of whole and split calls, and against finite differences."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, NotApplicable, Violation, is_continuous
from recollect.certify.subject import Subject, gradient_state, gradient_targets, gradients, probe_all
from recollect.state import map_state, named_leaves

WRONG = (
    "a hand-written backward pass is wrong, detach or no_grad cuts a path, or autograd does not record how the weights "
    'are read; where the paper cuts the gradient, declare it: `stops_gradient = "reason"` in the class'
)
CUT = "the gradient is cut or changed at the border between two calls: the caller does that, with state.detach"
MEETS_ZERO = "a division, root or logarithm meets zero, perhaps of a black frame or of a fresh memory"


def every_gradient(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that every weight gets a finite gradient."""
    weights = subject.weights()
    zero: list[str] = []
    modes = {"evaluation": subject} | ({} if subject.is_noisy else {"training": subject.variant(is_training=True)})
    if subject.options.quick and len(modes) > 1:
        modes.pop(("evaluation", "training")[subject.seed % 2])
    for mode, twin in modes.items():
        loss: Tensor | float = 0.0
        for salt in (81, 83):
            with torch.enable_grad():
                state = twin.core.initial_state(twin.batch)
            inputs = twin.inputs(salt)
            if salt == 83:
                inputs[:, :3] = 0.0  # black frames, and padding
                inputs[-1, -3:] = 0.0
            inputs.requires_grad_()  # as outputs of an encoder do
            out, end = twin(inputs, state, twin.resets(salt + 1))
            if not out.isfinite().all():
                raise Violation(f"outputs of normal inputs and zeros are not finite ({mode} mode)", MEETS_ZERO)
            loss = loss + probe_all(out, end, twin.generator(salt))
        assert isinstance(loss, Tensor)
        *found, to_inputs = gradients(loss, {**weights, "inputs": inputs}).values()
        if to_inputs is not None and not to_inputs.isfinite().all():
            raise Violation(f"the gradient of the inputs is not finite ({mode} mode)", MEETS_ZERO)
        zero = _check_finite(dict(zip(weights, found, strict=True)), subject.steps, mode)
    detail = f"all {len(weights)} weights get a finite gradient from {subject.steps} steps"
    return detail + (f"; exactly zero: {', '.join(zero)}" if zero else ""), {"zero": zero}


def _check_finite(found: dict[str, Tensor | None], steps: int, mode: str) -> list[str]:
    zero = []
    for name, gradient in found.items():
        if gradient is None:
            raise Violation(
                f"{name} gets no gradient from {steps} steps ({mode} mode)",
                "the output does not depend on the weight, or detach or no_grad cuts the path",
            )
        if not gradient.isfinite().all():
            raise Violation(f"the gradient of {name} is not finite ({mode} mode)", MEETS_ZERO)
        if not gradient.any():
            zero.append(name)  # correct where a softmax has one choice
    return zero


def backward(subject: Subject) -> str:
    """Check that gradients of whole and split calls are equal, and agree with finite differences of the outputs."""
    meter, double = subject.comparison(), subject.in_float64()
    cut = str(getattr(subject.core, "stops_gradient", "") or "")
    tried = 0
    for training in [False] if subject.is_noisy else [False, True]:
        for batch, steps in ((subject.batch, subject.steps), (1, 7), (9, 1)):
            if subject.options.quick and (steps == 7 or (training and steps > 1)):
                continue
            what = f"{steps} steps of {batch} rows, {'training' if training else 'evaluation'} mode"
            if steps > 1:
                _split_gradients(subject.variant(batch=batch, is_training=training), meter, steps, what)
            if not cut:
                _differences(double.variant(batch=batch, is_training=training), steps, what)
            tried += 1
    if not subject.options.quick:
        _other_precision(subject, double)
    rest = f"; no finite differences, because the core cuts the gradient: {cut}" if cut else " and finite differences"
    return f"{tried} sizes and modes, whole against split calls: {meter.report()}{rest}"


def make_call(subject: Subject, steps: int) -> tuple[Tensor, Any, Tensor, dict[str, Tensor]]:
    """Return inputs, state and flags of a call, and the targets of its gradients.

    A leaf of whole numbers alone counts something, such as steps: between two of them no derivative means anything.
    Several rows are asked, because the counter of one may stand at zero, as memories also do.
    """
    inputs = subject.inputs(111, steps=steps).requires_grad_()
    state = gradient_state(subject.used_state(5))
    is_first = subject.resets(112, steps=subject.steps)[:, :steps]
    if subject.batch < 3:
        is_first = torch.zeros_like(is_first)
        is_first[-1, steps // 2] = steps > 1
    several = state if subject.batch >= 4 else subject.variant(batch=4).used_state(5)
    counters = {f"state.{name}" for name, leaf in named_leaves(several) if _counts(leaf)}
    found = {name: target for name, target in gradient_targets(inputs, state).items() if name not in counters}
    return inputs, state, is_first, {**found, **subject.weights()}


def _counts(leaf: Tensor) -> bool:
    return is_continuous(leaf) and not leaf.is_complex() and bool(leaf.any() and (leaf == leaf.round()).all())


def loss_of_call(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor, sizes: list[int]) -> Tensor:
    """Return a random weighted sum of the outputs and the final state of a call in parts of these ``sizes``."""
    outs = []
    for x, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
        with subject.mode():
            out, state = subject.core(x, state, first)
        outs.append(out)
    return probe_all(torch.cat(outs, 1), state, subject.generator(113))


def _split_gradients(subject: Subject, meter: Comparison, steps: int, what: str) -> None:
    inputs, state, is_first, targets = make_call(subject, steps)
    want = gradients(loss_of_call(subject, inputs, state, is_first, [steps]), targets)
    single, half = f"{steps} calls of one step", [steps // 2, steps - steps // 2]
    ways = {single: [1] * steps, "two calls": half}
    if subject.options.quick:
        ways.pop("two calls" if steps < 10 else single)
    for way, sizes in ways.items():
        got = gradients(loss_of_call(subject, inputs, state, is_first, sizes), targets)
        meter.gradients(got, want, f"one call against {way}, {what}", CUT)
    detached = (inputs.detach(), map_state(Tensor.detach, state), is_first)
    got = gradients(loss_of_call(subject, *detached, [steps]), subject.weights())
    meter.gradients(got, {name: want[name] for name in got}, f"inputs that require no gradients, {what}", WRONG)
    if subject.batch == 1:
        got = gradients(loss_of_call(subject, inputs, detached[1], is_first, [steps]), {"inputs": inputs})
        meter.gradients(got, {"inputs": want["inputs"]}, f"a memory that requires no gradients, {what}", WRONG)


def _differences(subject: Subject, steps: int, what: str) -> None:
    """Compare along random directions; only a difference along each of three is a finding (one may meet a kink)."""
    inputs, state, is_first, targets = make_call(subject, steps)
    loss = loss_of_call(subject, inputs, state, is_first, [steps])
    found = {name: torch.zeros_like(targets[name]) if g is None else g for name, g in gradients(loss, targets).items()}

    def value(shifts: dict[str, Tensor], size: float) -> float:
        for name, shift in shifts.items():
            targets[name].data.add_(shift, alpha=size)
        try:
            # Gradients stay on, because without them the core may take another path.
            return loss_of_call(subject, inputs, state, is_first, [steps]).item()
        finally:
            for name, shift in shifts.items():
                targets[name].data.sub_(shift, alpha=size)

    worst = _disagreement(subject, value, found, list(found))
    if worst is None:
        return
    wrong = [name for name in found if _disagreement(subject, value, found, [name]) is not None]
    names = ", ".join(wrong[:4]) or "all tensors together"
    raise Violation(
        f"the gradient of {names} differs from finite differences, {what}: by {worst:.2g} of its size", WRONG
    )


def _disagreement(
    subject: Subject, value: Callable[[dict[str, Tensor], float], float], found: dict[str, Tensor], names: list[str]
) -> float | None:
    """Return the least error of the gradient over three directions; None where one agrees."""
    least = float("inf")
    for salt in range(3):
        generator = subject.generator(120 + salt)
        # Tensors with small gradients take larger steps, so that each contributes to the sum.
        norms = {name: found[name].abs().square().sum().sqrt().item() for name in names}
        usual = sorted(norms.values())[len(norms) // 2]
        shifts = {
            name: _direction(found[name], generator) * min(10.0, usual / norms[name] if norms[name] else 1.0)
            for name in names
        }
        terms = torch.cat([terms_along(found[name], shifts[name]) for name in names]).double()
        expected, size = terms.sum().item(), max(terms.norm().item(), 1e-6)
        try:
            fine = _slope(value, shifts, 1e-6)
        except ValueError:
            raise NotApplicable("the core refuses weights that are changed in place") from None
        error, limit = abs(fine - expected) / size, 1e-4
        if error > limit and abs(fine - _slope(value, shifts, 1e-5)) / size > limit:
            # Something inside computes in float32: larger steps.
            error, limit = abs(_slope(value, shifts, 1e-3) - expected) / size, 5e-3
        if error <= limit:
            return None
        least = min(least, error)
    return least


def _slope(value: Callable[[dict[str, Tensor], float], float], shifts: dict[str, Tensor], step: float) -> float:
    return (value(shifts, step) - value(shifts, -step)) / (2 * step)


def _direction(like: Tensor, generator: torch.Generator) -> Tensor:
    shape = (*like.shape, 2) if like.is_complex() else like.shape
    direction = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (torch.view_as_complex(direction) if like.is_complex() else direction).to(like.dtype)


def terms_along(gradient: Tensor, direction: Tensor) -> Tensor:
    """Return the terms of the derivative along a direction; torch's complex gradient is d/dRe + i d/dIm."""
    return (gradient.conj() * direction).real.flatten() if gradient.is_complex() else (gradient * direction).flatten()


def _other_precision(subject: Subject, double: Subject) -> None:
    """Compare the gradients of float32 and float64."""
    if subject.dtype == torch.float64:
        return
    meter = Comparison(1e-4)
    found = []
    for twin in (subject, double):
        inputs, state, is_first, targets = make_call(twin, twin.steps)
        found.append(gradients(loss_of_call(twin, inputs, state, is_first, [twin.steps]), targets))
    meter.gradients(found[0], found[1], "gradients in float32 against float64", WRONG)
