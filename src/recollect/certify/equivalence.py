"""Lines about equality: of every split of a sequence, of every mode, of a reset and a fresh start.

Each check takes a :class:`Subject`, returns what it found, and raises :class:`Violation` if a promise is broken.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, Violation
from recollect.certify.subject import Subject, everywhere, gradients, probe

ANCHOR = (
    "something is counted from the start of the call and not from the start of the episode "
    "(chunk borders, positions, window masks), or a part of the memory is missing from the state"
)
MISPLACED = (
    "equal without resets and unequal with them: a reset inside a call is applied at another step than the same "
    "reset at the start of a call, or what it should clear stays in a cache"
)

INFERENCE = "something is made at the first call and kept, in the mode of that call: make it with the module"


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


@everywhere
@torch.no_grad()
def splits(subject: Subject) -> str:
    """One call of T steps = T calls of one step = any split: outputs and final state."""
    meter, steps = subject.comparison(), subject.steps
    generator = subject.generator(1)
    sizes = random_sizes(steps, generator)
    alone, mixed = f"{steps} calls of one step", f"calls of {', '.join(map(str, sizes))} steps"
    ways = {alone: [1] * steps, f"calls of 1 and {steps - 1} steps": [1, steps - 1], mixed: sizes}
    plans = {
        "from a fresh state, without resets": (subject.fresh_state(), subject.never(), ANCHOR),
        "from a used state, without resets": (subject.used_state(), subject.never(), ANCHOR),
        "from a used state, with resets": (subject.used_state(), _resets(subject), MISPLACED),
    }
    chosen = [(plan, way) for plan in plans for way in ways]
    if subject.brief:  # one way of each kind
        chosen = (
            [(list(plans)[2], alone)]
            if subject.options.quick
            else [(next(iter(plans)), mixed), (list(plans)[2], alone)]
        )
    elif subject.options.quick:
        chosen = [(next(iter(plans)), alone), *((plan, mixed) for plan in plans)]
    inputs = subject.inputs(3)
    for plan, (state, is_first, cause) in plans.items():
        some = [way for name, way in chosen if name == plan]
        if not some:
            continue
        out, end = subject(inputs, state, is_first)
        for way in some:
            what = f"{plan}, one call of {steps} steps against {way}"
            got, last = run_split(subject, inputs, state, is_first, ways[way])
            meter.outputs(got, out, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)
    number = len(chosen) + (0 if subject.brief or subject.options.quick else _every_length(subject, meter))
    return f"{number} splits of {steps} steps, outputs and final states: {meter.report()}"


def _resets(subject: Subject) -> Tensor:
    """Resets at all kinds of places, and a step at which all rows begin together, as they do in evaluations."""
    is_first = subject.resets(2)
    is_first[:, 2 * subject.steps // 3] = True
    return is_first


def _every_length(subject: Subject, meter: Comparison) -> int:
    """Two calls, of every pair of lengths: a core may have a path of its own for any of them."""
    steps, inputs, state, is_first = subject.steps, subject.inputs(7), subject.used_state(), subject.resets(8)
    out, end = subject(inputs, state, is_first)
    for length in range(2, steps // 2 + 1):
        sizes = [length, steps - length]
        sizes = sizes if length % 2 else sizes[::-1]  # half of the short calls come first
        what = f"from a used state, with resets, one call of {steps} steps against calls of {sizes[0]} and {sizes[1]}"
        got, last = run_split(subject, inputs, state, is_first, sizes)
        meter.outputs(got, out, what, cause=ANCHOR)
        meter.states(last, end, what, step=steps - 1, cause=ANCHOR)
    return steps // 2 - 1


def modes(subject: Subject) -> str:
    """Gradients on, off and inference mode give the same numbers, in training and in evaluation mode."""
    meter = subject.comparison()
    cause = "code that asks torch.is_grad_enabled() or requires_grad takes another path with other numbers"
    where = ["evaluation", *([] if subject.noisy else ["training"])]
    cases = ((subject.batch, subject.steps), (1, subject.steps), (1, 1), (subject.batch, 1))
    if subject.options.quick:
        cases = ((2, subject.steps), (1, 1))
    for mode in where:
        for batch, steps in cases:
            twin = subject.variant(batch=batch, is_training=mode == "training")
            inputs, is_first = twin.inputs(91, steps=steps), twin.resets(92, steps=steps)
            if batch == steps == 1:
                is_first = twin.never(steps=1)
            state = twin.used_state(6)
            with torch.no_grad():
                want, end = twin(inputs, state, is_first)
            got, last = twin.variant(grad=True)(inputs, state, is_first)
            what = f"with gradients against torch.no_grad, {steps} steps of {batch} rows, {mode} mode"
            meter.outputs(got, want, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)
            with torch.enable_grad():  # as in most training: only the weights ask for gradients
                got, last = twin(inputs, state, is_first)
            what = f"inputs that ask for no gradients against torch.no_grad, {steps} steps of {batch} rows, {mode} mode"
            meter.outputs(got, want, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)
            with torch.inference_mode():
                got, last = twin(inputs, state, is_first)
                following = twin(inputs, last, is_first)[0] if mode == "evaluation" else None
            what = f"torch.inference_mode against torch.no_grad, {steps} steps of {batch} rows, {mode} mode"
            meter.outputs(got, want, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)
            if following is not None:
                with torch.no_grad():
                    meter.outputs(following, twin(inputs, end, is_first)[0], f"{what}, second call", cause=cause)
    if not subject.options.quick:
        _frozen(subject, meter, cause)
        _learns_after_inference(subject, meter)
    return f"with gradients, torch.no_grad and torch.inference_mode, {' and '.join(where)} mode: {meter.report()}"


def _frozen(subject: Subject, meter: Comparison, cause: str) -> None:
    """Weights that do not learn, in front of or behind something that does."""
    frozen = subject.variant(core=copy.deepcopy(subject.core).requires_grad_(False))
    for steps in (subject.steps, 1):
        call = (subject.inputs(91, steps=steps), subject.used_state(6), subject.resets(92, steps=steps))
        with torch.no_grad():
            want, end = subject(*call)
        for grad in (True, False):
            with torch.enable_grad():
                got, last = frozen.variant(grad=grad)(*call)
            what = f"frozen weights with gradients on against torch.no_grad, {steps} steps"
            meter.outputs(got, want, what, cause=cause)
            meter.states(last, end, what, step=steps - 1, cause=cause)


def _learns_after_inference(subject: Subject, meter: Comparison) -> None:
    """A module that was evaluated first, in inference mode, and is trained then."""
    new = subject.variant(core=subject.cast(copy.deepcopy(subject.pristine)))
    inputs, is_first = subject.inputs(91), subject.resets(92)
    with torch.inference_mode():
        want, _ = new(inputs, new.core.initial_state(subject.batch), is_first)
    try:
        with torch.enable_grad():
            got, _ = new(inputs, new.core.initial_state(subject.batch), is_first)
            gradients(probe(got, subject.generator(93)), new.weights())
    except RuntimeError as error:
        raise Violation(
            f"a call with gradients after a first call in torch.inference_mode: {' '.join(str(error).split())[:200]}",
            INFERENCE,
        ) from None
    meter.outputs(got, want, "a call with gradients after a first call in torch.inference_mode", cause=INFERENCE)


@everywhere
def reset(subject: Subject) -> str:
    """What follows a reset is what follows a fresh start, in outputs, state and gradients."""
    meter, steps, batch = subject.comparison(), subject.steps, subject.batch
    cause = (
        "the reset comes late or not at all, or a reset gives another memory than initial_state "
        "(zeros where the initial memory is learned, or a detached copy of it)"
    )
    inputs = subject.inputs(11)
    weights = subject.weights()
    for at in (steps // 2,) if subject.brief else (0, steps // 2, steps - 1):
        is_first = subject.never()
        is_first[:, at] = True
        if at == steps // 2:
            is_first[:, at - 1] = True  # two in a row: the second one counts
        state = subject.used_state()
        got, end = subject(inputs, state, is_first)
        with subject.mode(), torch.enable_grad():
            fresh = subject.core.initial_state(batch)
        want, last = subject(inputs[:, at:], fresh, subject.never(steps=steps - at))
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
    if subject.brief and subject.options.quick:
        return
    every = torch.ones_like(first)
    got, _ = subject(inputs, subject.used_state(), every)
    parts = [subject(x, subject.fresh_state(), subject.never(steps=1))[0] for x in inputs[:, :8].split(1, 1)]
    what = "is_first at every step against fresh starts"
    meter.outputs(got[:, :8], torch.cat(parts, 1), what, cause=cause)
