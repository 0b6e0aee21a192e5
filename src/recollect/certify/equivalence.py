"""Lines about equality: of all splits of a sequence, of all gradient modes, and of a reset and a fresh start.

Each check takes a :class:`Subject`, returns a detail for the card, and raises :class:`Violation` for a broken promise.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, Result, Violation
from recollect.certify.random_sizes import (
    LONG_GRAPH,
    PIECES,
    describe,
    draw_pieces,
    draw_steps,
    in_mode,
    make_call,
    size_generator,
)
from recollect.certify.subject import Subject, gradients, in_all_variants, probe

ANCHOR = (
    "something is counted from the start of the call and not from the start of the episode "
    "(chunk borders, positions, window masks), or a part of the memory is missing from the state"
)
MISPLACED = (
    "equal without resets and different with them: a reset inside a call is applied at another step than the same "
    "reset at the start of a call, or a cache is not cleared by it"
)
LONG = "a path of its own for long calls (blocks, a kernel, a limit of positions), or a memory that a call cuts off"
LONG_ROUNDING = 1e-4  # of gradients through hundreds of steps in float32
LONG_GRADIENT = "backpropagation ends inside a long call: a call cuts no gradient, the caller does, between calls"
GRADIENT_MODE = "code that depends on torch.is_grad_enabled() or requires_grad takes a path with other numbers"
INFERENCE = "a tensor is made at the first call, in the mode of that call, and kept: make it with the module"


def run_split(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor, sizes: list[int]) -> Result:
    """Run a sequence in calls of the given sizes."""
    parts = []
    for x, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
        out, state = subject(x, state, first)
        parts.append(out)
    return torch.cat(parts, 1), state


def random_sizes(steps: int, generator: torch.Generator) -> list[int]:
    """Return sizes of calls that add up to ``steps``, mostly short, sometimes long."""
    sizes = []
    while steps:
        longest = steps if torch.rand((), generator=generator) < 0.3 else min(steps, 5)
        sizes.append(int(torch.randint(1, longest + 1, (), generator=generator)))
        steps -= sizes[-1]
    return sizes


@in_all_variants
@torch.no_grad()
def splits(subject: Subject) -> str:
    """Check that one call of T steps equals T calls of one step and any split in between: outputs and final state."""
    meter, steps, quick = subject.comparison(), subject.steps, subject.options.quick
    sizes = random_sizes(steps, subject.generator(1))
    alone, mixed = f"{steps} calls of one step", f"calls of {', '.join(map(str, sizes))} steps"
    singles = steps // 3
    some = f"{singles} calls of one step and one of {steps - singles}"
    splits = {
        alone: [1] * steps,
        f"calls of 1 and {steps - 1} steps": [1, steps - 1],
        mixed: sizes,
        some: [*[1] * singles, steps - singles],
    }
    starts = {
        "from a fresh state, without resets": (subject.fresh_state(), subject.no_resets(), ANCHOR),
        "from a used state, without resets": (subject.used_state(), subject.no_resets(), ANCHOR),
        "from a used state, with resets": (subject.used_state(), _resets(subject), MISPLACED),
    }
    fresh, _, with_resets = starts
    if subject.brief:
        chosen = [(with_resets, alone)] if quick else [(fresh, mixed), (with_resets, some)]
    elif quick:
        chosen = [(fresh, alone), *((start, mixed) for start in starts)]
    else:
        chosen = [(start, split) for start in starts for split in splits if split != some]
    inputs = subject.inputs(3)
    for start, (state, is_first, cause) in starts.items():
        mine = [split for name, split in chosen if name == start]
        want = subject(inputs, state, is_first) if mine else None
        for split in mine:
            assert want is not None
            what = f"{start}, one call of {steps} steps against {split}"
            meter.results(run_split(subject, inputs, state, is_first, splits[split]), want, what, cause=cause)
    number = len(chosen) + (0 if subject.brief or quick else _all_pairs(subject, meter))
    said = "" if subject.brief or quick else _long_calls(subject, meter)
    return f"{number} splits of {steps} steps, outputs and final states: {meter.report()}{said}"


def _long_calls(subject: Subject, meter: Comparison) -> str:
    """Compare long calls of drawn lengths with calls of drawn shorter ones; return what was drawn."""
    drawn = list(draw_steps(subject, "splits"))
    for rows, steps, mode in drawn:
        twin = in_mode(subject, rows, steps, mode)
        inputs, state, is_first = make_call(twin, 9)
        is_first &= torch.rand(is_first.shape, generator=subject.generator(10)) < 0.05  # episodes of 200 steps
        is_first[0] = False  # one episode, longer than any count inside a core
        longest = LONG_GRAPH[0] - 1 if twin.grad else PIECES  # a piece is shorter than any call that is drawn
        sizes = draw_pieces(steps, size_generator(subject, f"pieces of {steps}"), longest)
        with torch.set_grad_enabled(twin.grad):  # else a call copies its state without the graph of the call before
            want, got = twin(inputs, state, is_first), run_split(twin, inputs, state, is_first, sizes)
            losses = [probe(out, subject.generator(14)) for out, _ in (got, want)]
        what = f"one call of {steps} steps of {rows} rows against calls of {', '.join(map(str, sizes))} ({mode})"
        meter.results(got, want, what, cause=LONG)
        if twin.grad:
            left, right = (gradients(loss, subject.weights()) for loss in losses)
            Comparison(LONG_ROUNDING).gradients(left, right, what, LONG_GRADIENT)
    return f"; {describe(drawn)}"


def _resets(subject: Subject) -> Tensor:
    """Return resets at all kinds of places, with a step at which all rows begin together, as in evaluations."""
    is_first = subject.resets(2)
    is_first[:, 2 * subject.steps // 3] = True
    return is_first


def _all_pairs(subject: Subject, meter: Comparison) -> int:
    """Compare two calls of every pair of lengths, because a core may have a path of its own for any length.

    A core may be wrong where two resets of a call are exactly a window or a chunk apart, so every distance is there.
    """
    steps, is_first = subject.steps, torch.cat((_every_distance(subject.steps), subject.resets(8)))
    subject = subject.variant(batch=len(is_first))
    inputs, state = subject.inputs(7), subject.used_state()
    want = subject(inputs, state, is_first)
    for length in range(2, steps // 2 + 1):
        sizes = [length, steps - length]
        sizes = sizes if length % 2 else sizes[::-1]  # half of the short calls come first
        what = f"from a used state, with resets, one call of {steps} steps against calls of {sizes[0]} and {sizes[1]}"
        meter.results(run_split(subject, inputs, state, is_first, sizes), want, what, cause=ANCHOR)
    return steps // 2 - 1


def _every_distance(steps: int) -> Tensor:
    """Return ``is_first`` with two resets at every distance up to half the steps, in as many rows as that takes."""
    rows: list[list[int]] = []
    for distance in range(1, steps // 2 + 1):
        if not rows or rows[-1][-1] + distance >= steps:
            rows.append([1 + len(rows) % 3])
        rows[-1].append(rows[-1][-1] + distance)
    is_first = torch.zeros(len(rows), steps, dtype=torch.bool)
    for flags, places in zip(is_first, rows, strict=True):
        flags[places] = True
    return is_first


def modes(subject: Subject) -> str:
    """Check that gradients on, off and inference mode give the same numbers, in training and in evaluation mode."""
    meter = subject.comparison()
    modes = ["evaluation", *([] if subject.is_noisy else ["training"])]
    sizes = ((subject.batch, subject.steps), (1, subject.steps), (1, 1), (subject.batch, 1))
    if subject.options.quick:
        sizes = ((2, subject.steps), (1, 1))
    for mode in modes:
        for batch, steps in sizes:
            twin = subject.variant(batch=batch, is_training=mode == "training")
            is_first = twin.no_resets(steps=1) if batch == steps == 1 else twin.resets(92, steps=steps)
            call = twin.inputs(91, steps=steps), twin.used_state(6), is_first
            where = f"{steps} steps of {batch} rows, {mode} mode"
            with torch.no_grad():
                want = twin(*call)
            got = twin.variant(grad=True)(*call)
            meter.results(got, want, f"with gradients against torch.no_grad, {where}", cause=GRADIENT_MODE)
            with torch.enable_grad():  # as in most training: only the weights require gradients
                got = twin(*call)
            what = f"inputs that require no gradients against torch.no_grad, {where}"
            meter.results(got, want, what, cause=GRADIENT_MODE)
            what = f"torch.inference_mode against torch.no_grad, {where}"
            with torch.inference_mode():
                got = twin(*call)
                following = twin(call[0], got[1], is_first)[0] if mode == "evaluation" else None
            meter.results(got, want, what, cause=GRADIENT_MODE)
            if following is not None:
                with torch.no_grad():
                    second = twin(call[0], want[1], is_first)[0]
                meter.outputs(following, second, f"{what}, second call", cause=GRADIENT_MODE)
    if not subject.options.quick:
        _frozen_weights(subject, meter)
        _training_after_inference(subject, meter)
    return f"with gradients, torch.no_grad and torch.inference_mode, {' and '.join(modes)} mode: {meter.report()}"


def _frozen_weights(subject: Subject, meter: Comparison) -> None:
    """Compare weights that require no gradients, as before or after a trained module, with torch.no_grad."""
    frozen = subject.variant(core=copy.deepcopy(subject.core).requires_grad_(False))
    for steps in (subject.steps, 1):
        call = (subject.inputs(91, steps=steps), subject.used_state(6), subject.resets(92, steps=steps))
        with torch.no_grad():
            want = subject(*call)
        for grad in (True, False):
            with torch.enable_grad():
                got = frozen.variant(grad=grad)(*call)
            what = f"frozen weights with gradients on against torch.no_grad, {steps} steps"
            meter.results(got, want, what, cause=GRADIENT_MODE)


def _training_after_inference(subject: Subject, meter: Comparison) -> None:
    """Train a module whose first call was in inference mode."""
    new = subject.variant(core=subject.cast(copy.deepcopy(subject.pristine)))
    inputs, is_first = subject.inputs(91), subject.resets(92)
    what = "a call with gradients after a first call in torch.inference_mode"
    with torch.inference_mode():
        want, _ = new(inputs, new.core.initial_state(subject.batch), is_first)
    try:
        with torch.enable_grad():
            got, _ = new(inputs, new.core.initial_state(subject.batch), is_first)
            gradients(probe(got, subject.generator(93)), new.weights())
    except RuntimeError as error:
        raise Violation(f"{what}: {' '.join(str(error).split())[:200]}", INFERENCE) from None
    meter.outputs(got, want, what, cause=INFERENCE)


@in_all_variants
def reset(subject: Subject) -> str:
    """Check that steps after a reset equal steps after a fresh start, in outputs, state and gradients."""
    meter, steps, batch = subject.comparison(), subject.steps, subject.batch
    cause = (
        "the reset comes late or not at all, or a reset gives another memory than initial_state "
        "(zeros where the initial memory is learned, or a detached copy of it)"
    )
    inputs = subject.inputs(11)
    weights = subject.weights()
    for at in (steps // 2,) if subject.brief else (0, steps // 2, steps - 1):
        is_first = subject.no_resets()
        is_first[:, at] = True
        if at == steps // 2:
            is_first[:, at - 1] = True  # two in a row: the second one counts
        got, end = subject(inputs, subject.used_state(), is_first)
        with subject.mode(), torch.enable_grad():
            fresh = subject.core.initial_state(batch)
        want, last = subject(inputs[:, at:], fresh, subject.no_resets(steps=steps - at))
        what = f"reset at step {at} against a fresh start"
        padded = torch.cat((torch.zeros_like(got[:, :at]), want), 1)
        after = torch.arange(steps).expand(batch, steps) >= at
        meter.results((got, end), (padded, last), what, mask=after, cause=cause)
        if at == steps // 2:
            left = gradients(probe(got[:, at:], subject.generator(12)), weights)
            right = gradients(probe(want, subject.generator(12)), weights)
            meter.gradients(left, right, what, cause=cause)
    _reset_of_fresh_state(subject, meter, inputs, cause)
    if not (subject.brief or subject.options.quick):
        _resets_at_every_age(subject, meter, cause)
    return f"3 resets in {steps} steps, outputs, states and gradients of the weights: {meter.report()}"


@torch.no_grad()
def _reset_of_fresh_state(subject: Subject, meter: Comparison, inputs: Tensor, cause: str) -> None:
    """Compare a fresh state with a reset fresh state, and resets at every step with fresh starts."""
    first = subject.no_resets()
    first[:, 0] = True
    want = subject(inputs, subject.fresh_state(), subject.no_resets())
    got = subject(inputs, subject.fresh_state(), first)
    meter.results(got, want, "is_first on a fresh state against no is_first", cause=cause)
    if subject.brief and subject.options.quick:
        return
    out, end = subject(inputs, subject.used_state(), torch.ones_like(first))
    alone = [*inputs[:, :8].split(1, 1), inputs[:, -1:]]
    *parts, last = [subject(x, subject.fresh_state(), subject.no_resets(steps=1)) for x in alone]
    what = "is_first at every step against fresh starts"
    meter.outputs(out[:, :8], torch.cat([part for part, _ in parts], 1), what, cause=cause)
    meter.results((out[:, -1:], end), last, f"{what}, the last step", cause=cause)


@torch.no_grad()
def _resets_at_every_age(subject: Subject, meter: Comparison, cause: str) -> None:
    """Compare row i, which is reset after i steps, with a fresh start: one age may be the end of a window or chunk."""
    age = torch.arange(subject.steps)
    twin = subject.variant(batch=subject.steps)
    inputs, place = twin.inputs(15), age[:, None] + age
    got, _ = twin(inputs, twin.fresh_state(), torch.eye(len(age), dtype=torch.bool))
    moved = place % len(age)  # row i begins with its step i
    want, _ = twin(inputs[age[:, None], moved], twin.fresh_state(), twin.no_resets())
    what = "a reset of row i after i steps against a fresh start (steps from the reset on)"
    meter.outputs(got[age[:, None], moved], want, what, mask=place < len(age), cause=cause)
