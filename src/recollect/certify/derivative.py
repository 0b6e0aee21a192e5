"""Lines about gradients: every weight gets one, whole and split calls agree, and both agree with finite differences."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, NotApplicable, Violation, continuous
from recollect.certify.subject import Subject, float_leaves, gradient_state, gradients, probe
from recollect.state import map_state, named_leaves

WRONG = (
    "a hand-written backward pass is wrong, a path is cut by detach or no_grad, or the weights are read in a way that "
    'autograd does not see; where the paper cuts the gradient, say so: `stops_gradient = "reason"` in the class'
)
CUT = "the gradient is cut or changed at the border between two calls: the caller does that, with state.detach"

INPUTS = "the inputs"
MEETS_ZERO = "a division, root or logarithm meets zero, perhaps that of a black frame or of a fresh memory"


def every_gradient(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Every weight gets a finite gradient."""
    weights = subject.weights()
    zero: list[str] = []
    modes = {"evaluation": subject} | ({} if subject.noisy else {"training": subject.variant(is_training=True)})
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
            inputs.requires_grad_()  # whatever made them learns too
            out, end = twin(inputs, state, twin.resets(salt + 1))
            if not out.isfinite().all():
                raise Violation(f"outputs are not finite, of normal inputs and zeros ({mode} mode)", MEETS_ZERO)
            loss = loss + probe(out, twin.generator(salt))
            for leaf in float_leaves(end):
                loss = loss + probe(leaf, twin.generator(salt))
        assert isinstance(loss, Tensor)
        *found, to_inputs = gradients(loss, {**weights, INPUTS: inputs}).values()
        if to_inputs is not None and not to_inputs.isfinite().all():
            raise Violation(f"the gradient of {INPUTS} is not finite ({mode} mode)", MEETS_ZERO)
        zero = _check_finite(dict(zip(weights, found, strict=True)), subject.steps, mode)
    detail = f"all {len(weights)} weights get a finite gradient from {subject.steps} steps"
    return detail + (f"; exactly zero: {', '.join(zero)}" if zero else ""), {"zero": zero}


def _check_finite(found: dict[str, Tensor | None], steps: int, mode: str) -> list[str]:
    zero = []
    for name, gradient in found.items():
        if gradient is None:
            raise Violation(
                f"{name} gets no gradient from {steps} steps ({mode} mode)",
                "the weight has no part in the output, or a detach or a no_grad cuts it off",
            )
        if not gradient.isfinite().all():
            raise Violation(f"the gradient of {name} is not finite ({mode} mode)", MEETS_ZERO)
        if not gradient.any():
            zero.append(name)  # right where a softmax has one thing to choose from
    return zero


def backward(subject: Subject) -> str:
    """Whole and split calls have the same gradients, and these are what finite differences of the outputs say."""
    meter, double = subject.comparison(), subject.doubled()
    cut = str(getattr(subject.core, "stops_gradient", "") or "")
    modes = [False] if subject.noisy else [False, True]
    tried = 0
    for training in modes:
        for batch, steps in ((subject.batch, subject.steps), (1, 7), (9, 1)):
            if subject.options.quick and (steps == 7 or (training and steps > 1)):
                continue
            twin = double.variant(batch=batch, is_training=training)
            single = subject.variant(batch=batch, is_training=training)
            mode = "training" if training else "evaluation"
            what = f"{steps} steps of {batch} rows, {mode} mode"
            if steps > 1:
                _split_gradients(single, meter, steps, what)
            if not cut:
                _differences(twin, steps, what)
            tried += 1
    if not subject.options.quick:
        _other_precision(subject, double)
    said = f"; finite differences not tried, the core cuts the gradient: {cut}" if cut else " and finite differences"
    return f"{tried} sizes and modes, whole against split calls: {meter.report()}{said}"


def _targets(subject: Subject, steps: int) -> tuple[Tensor, Any, Tensor, dict[str, Tensor]]:
    """Inputs, state and flags of a call, and everything that gradients are asked for."""
    inputs = subject.inputs(111, steps=steps).requires_grad_()
    state = gradient_state(subject.used_state(5))
    is_first = subject.resets(112, steps=subject.steps)[:, :steps]
    if subject.batch < 3:
        is_first = torch.zeros_like(is_first)
        is_first[-1, steps // 2] = steps > 1
    names = {f"state.{name}": leaf for name, leaf in named_leaves(state) if continuous(leaf)}
    return inputs, state, is_first, {"inputs": inputs, **names, **subject.weights()}


def _loss(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor, sizes: list[int]) -> Tensor:
    outs = []
    for x, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
        with subject.mode():
            out, state = subject.core(x, state, first)
        outs.append(out)
    generator = subject.generator(113)
    loss = probe(torch.cat(outs, 1), generator)
    for leaf in float_leaves(state):
        loss = loss + probe(leaf, generator)
    return loss


def _split_gradients(subject: Subject, meter: Comparison, steps: int, what: str) -> None:
    inputs, state, is_first, targets = _targets(subject, steps)
    want = gradients(_loss(subject, inputs, state, is_first, [steps]), targets)
    half = [steps // 2, steps - steps // 2]
    ways = {f"{steps} calls of one step": [1] * steps, "two calls": half}
    if subject.options.quick:
        ways.popitem() if steps < 10 else ways.pop(f"{steps} calls of one step")
    for way, sizes in ways.items():
        got = gradients(_loss(subject, inputs, state, is_first, sizes), targets)
        meter.gradients(got, want, f"one call against {way}, {what}", CUT)
    given = (inputs.detach(), map_state(Tensor.detach, state), is_first)
    got = gradients(_loss(subject, *given, [steps]), subject.weights())
    meter.gradients(got, {name: want[name] for name in got}, f"inputs that ask for no gradients, {what}", WRONG)


def _differences(subject: Subject, steps: int, what: str) -> None:
    """Along random directions; only a difference along each of three is a finding (one may hit a corner)."""
    inputs, state, is_first, targets = _targets(subject, steps)
    loss = _loss(subject, inputs, state, is_first, [steps])
    found = {name: torch.zeros_like(targets[name]) if g is None else g for name, g in gradients(loss, targets).items()}

    def value(shifts: dict[str, Tensor], size: float) -> float:
        for name, shift in shifts.items():
            targets[name].data.add_(shift, alpha=size)
        try:
            # Gradients stay on: with them the core may take another path.
            return _loss(subject, inputs, state, is_first, [steps]).item()
        finally:
            for name, shift in shifts.items():
                targets[name].data.sub_(shift, alpha=size)

    worst = _disagreement(subject, value, found, list(found))
    if worst is None:
        return
    guilty = [name for name in found if _disagreement(subject, value, found, [name]) is not None]
    names = ", ".join(guilty[:4]) or "everything together"
    raise Violation(
        f"the gradient of {names} is not that of finite differences, {what}: off by {worst:.2g} of its size", WRONG
    )


def _disagreement(
    subject: Subject, value: Callable[[dict[str, Tensor], float], float], found: dict[str, Tensor], names: list[str]
) -> float | None:
    """How far the gradient is from finite differences along every direction tried; None where one agrees."""
    least = float("inf")
    for salt in range(3):
        generator = subject.generator(120 + salt)
        # Tensors with small gradients take larger steps, so that each has its say in the sum.
        norms = {name: found[name].abs().square().sum().sqrt().item() for name in names}
        usual = sorted(norms.values())[len(norms) // 2]
        shifts = {
            name: _direction(found[name], generator) * min(10.0, usual / norms[name] if norms[name] else 1.0)
            for name in names
        }
        terms = torch.cat([_along(found[name], shifts[name]) for name in names]).double()
        expected, size = terms.sum().item(), max(terms.norm().item(), 1e-6)
        try:
            fine, rough = (_slope(value, shifts, step) for step in (1e-6, 1e-5))
        except ValueError:
            raise NotApplicable("the core refuses weights that are changed in place") from None
        error, limit = abs(fine - expected) / size, 1e-4
        if error > limit and abs(fine - rough) / size > limit:  # something inside computes in float32: larger steps
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


def _along(gradient: Tensor, direction: Tensor) -> Tensor:
    """Terms of the derivative along a direction; torch's gradient of a complex number is d/dRe + i d/dIm."""
    return (gradient.conj() * direction).real.flatten() if gradient.is_complex() else (gradient * direction).flatten()


def _other_precision(subject: Subject, double: Subject) -> None:
    """The backward pass of float32 is that of float64, but for rounding."""
    if subject.dtype == torch.float64:
        return
    meter = Comparison(1e-4)
    found = []
    for twin in (subject, double):
        inputs, state, is_first, targets = _targets(twin, twin.steps)
        found.append(gradients(_loss(twin, inputs, state, is_first, [twin.steps]), targets))
    meter.gradients(found[0], found[1], "gradients in float32 against float64", WRONG)
