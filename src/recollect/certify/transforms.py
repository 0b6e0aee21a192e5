"""Line about transforms of torch: functional calls, vmap, second derivatives, forward derivatives, checkpointing."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, jvp, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from recollect.certify.comparison import Comparison, Violation
from recollect.certify.gradients import loss_of_call, make_call, terms_along
from recollect.certify.portability import first_line, other_module
from recollect.certify.subject import Subject, gradients, probe_all
from recollect.state import map_state

STEPS = 6
"""Steps of a call: a loop over steps is transformed once per step."""
LIMIT = 1e-2
"""Relative error of a finite difference in float64."""

SMALLEST = 1e-5
"""Derivative along a direction of length 1 below which an error is absolute."""

LEFT_BEHIND = "a module is registered under several names, or weights are read once and kept outside parameters"
NO_SECOND = (
    "a hand-written backward pass is not differentiable (once_differentiable), and torch takes it for a constant; or "
    "it keeps something of one pass for the next"
)
PLAIN = SDPBackend.MATH
"""Attention by plain operations: torch's fused attention on a CPU has first derivatives only."""
REFUSED = (RuntimeError, NotImplementedError, TypeError, ValueError)
"""What torch raises where it cannot transform an operation. To refuse is allowed, to be wrong without a word is not."""


def transforms(subject: Subject) -> str:
    """Check that transforms of torch see the same function and leave nothing behind, or refuse with an error."""
    double = subject.in_float64()
    done = ["functional_call"]
    _functional_call(double)
    checks: dict[str, Callable[[Subject], None]] = {"vmap": _vmap, "checkpoint": _checkpoint}
    cut = str(getattr(subject.core, "stops_gradient", "") or "")
    if not cut:
        checks |= {"second derivatives": _second_derivatives, "jvp": _forward_derivatives}
    for name, check in checks.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of operations that vmap runs one by one
                check(double)
            done.append(name)
        except REFUSED as error:
            done.append(f"{name} refused ({type(error).__name__}: {first_line(error)[:80]})")
    rest = f"; no second or forward derivatives, because the core cuts the gradient: {cut}" if cut else ""
    return f"{', '.join(done)}{rest}"


def _call(subject: Subject, salt: int = 131) -> tuple[Tensor, Any, Tensor]:
    """Return arguments of a short call."""
    steps = min(STEPS, subject.steps)
    return subject.inputs(salt, steps=steps), subject.used_state(7), subject.resets(salt + 1, steps=steps)


@torch.no_grad()
def _functional_call(subject: Subject) -> None:
    call, meter = _call(subject), Comparison(0.0)
    core = copy.deepcopy(subject.core)  # what stays behind must not reach other lines
    other = subject.cast(other_module(subject)).eval()
    before, want = core(*call), other(*call)
    given = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    got = functional_call(core, given, call)
    cause = "weights are read from a copy that was made earlier, not from the parameters"
    subject.comparison().results(got, want, "functional_call with other weights", cause=cause)
    meter.results(core(*call), before, "the core after functional_call with other weights", cause=LEFT_BEHIND)


@torch.no_grad()
def _vmap(subject: Subject) -> None:
    call = _call(subject)
    cores = [copy.deepcopy(subject.core), subject.cast(other_module(subject)).eval()]
    weights = stack_module_state(cores)
    base = copy.deepcopy(subject.core)
    together = vmap(lambda parameters, buffers: functional_call(base, (parameters, buffers), call))(*weights)
    cause = "an operation mixes the weights of several models, or reads a value of a tensor"
    for index, core in enumerate(cores):
        got = together[0][index], map_state(lambda leaf, i=index: leaf[i], together[1])
        subject.comparison().results(got, core(*call), f"vmap over stacked weights, model {index}", cause=cause)


def _checkpoint(subject: Subject) -> None:
    inputs, state, is_first, targets = make_call(subject, min(STEPS, subject.steps))
    meter, found = subject.comparison(), []

    def run(inputs: Tensor) -> tuple[Tensor, Any]:
        return subject.core(inputs, state, is_first)

    for call in (run, lambda inputs: checkpoint(run, inputs, use_reentrant=False)):
        outputs, end = call(inputs)  # type: ignore[misc]
        found.append(gradients(probe_all(outputs, end, subject.generator(133)), targets))
    meter.gradients(found[1], found[0], "torch.utils.checkpoint", "the second forward pass takes another path")


def _second_derivatives(subject: Subject) -> None:
    """Compare derivatives of the gradient along random directions with finite differences; a kink may spoil one.

    Of the gradient of everything, and of that of the inputs alone, which penalties take: it is made by another backward
    pass, which does not reach the weights.
    """
    steps = min(STEPS, subject.steps)
    inputs, state, is_first, targets = make_call(subject, steps)

    def slope(along: dict[str, Tensor], names: list[str], *, graph: bool) -> Tensor:
        loss = loss_of_call(subject, inputs, state, is_first, [steps])
        if not loss.requires_grad:
            return torch.zeros((), dtype=torch.float64)
        some = [targets[name] for name in names]
        found = torch.autograd.grad(loss, some, create_graph=graph, materialize_grads=True)
        return torch.cat([terms_along(g, along[name]) for g, name in zip(found, names, strict=True)]).sum()

    with sdpa_kernel(PLAIN):
        for names, what in ((list(targets), ""), (["inputs"], " of the gradient of the inputs")):
            errors = []
            for salt in (141, 143, 145):
                first, second = _directions(subject, targets, salt), _directions(subject, targets, salt + 1)
                curve = gradients(slope(first, names, graph=True), targets)
                terms = [terms_along(g, second[name]) for name, g in curve.items() if g is not None]
                got = torch.cat(terms).sum() if terms else torch.zeros((), dtype=torch.float64)

                def value(along: dict[str, Tensor] = first, names: list[str] = names) -> Tensor:
                    return slope(along, names, graph=False)

                errors.append(_error(got, value, targets, second))
                if errors[-1] <= LIMIT:
                    break
            else:
                worst = min(errors)
                raise Violation(
                    f"second derivatives{what} differ from finite differences by {worst:.2g} of their size", NO_SECOND
                )


def _forward_derivatives(subject: Subject) -> None:
    steps = min(STEPS, subject.steps)
    inputs, state, is_first, _ = make_call(subject, steps)
    inputs = inputs.detach()
    state = map_state(Tensor.detach, state)

    def run(inputs: Tensor) -> Tensor:
        outputs, end = subject.core(inputs, state, is_first)
        return probe_all(outputs, end, subject.generator(133))

    errors = []
    with sdpa_kernel(PLAIN), torch.no_grad():
        for salt in (151, 152, 153):
            along = _directions(subject, {"inputs": inputs}, salt)
            got = jvp(run, (inputs,), (along["inputs"],))[1]
            errors.append(_error(got, lambda: run(inputs), {"inputs": inputs}, along))
            if errors[-1] <= LIMIT:
                return
    cause = "detach or a hand-written operation cuts the forward derivative"
    raise Violation(f"jvp differs from finite differences by {min(errors):.2g} of its size", cause)


def _directions(subject: Subject, targets: dict[str, Tensor], salt: int) -> dict[str, Tensor]:
    """Return a random direction of length 1 in the space of all targets."""
    generator = subject.generator(salt)
    drawn = {
        name: torch.randn(target.shape, generator=generator, dtype=target.dtype) for name, target in targets.items()
    }
    length = torch.stack([direction.norm() for direction in drawn.values()]).norm()
    return {name: direction / length for name, direction in drawn.items()}


def _error(got: Tensor, value: Callable[[], Tensor], targets: dict[str, Tensor], along: dict[str, Tensor]) -> float:
    """Return the relative error of a derivative along a direction against central differences of two sizes."""
    errors = []
    for size in (1e-4, 1e-6):  # the larger one is more exact where the function is smooth, the smaller one elsewhere
        found = []
        for shift in (size, -2 * size):
            for name, target in targets.items():
                target.data.add_(along[name], alpha=shift)
            found.append(value().detach())
        for name, target in targets.items():
            target.data.add_(along[name], alpha=size)
        want = (found[0] - found[1]) / (2 * size)
        errors.append(((got - want).abs() / want.abs().clamp(min=SMALLEST)).item())
    return min(errors)
