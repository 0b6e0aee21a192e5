"""Lines about what must not touch: earlier episodes, later inputs, other rows.

By value (change the one, look at the other), as NaN (poison the one) and by gradient (which must be exactly zero).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recollect.certify.compare import Comparison, Violation, continuous, locate
from recollect.certify.subject import Subject, everywhere, float_leaves, gradient_state, gradients, probe
from recollect.state import clone, map_state, named_leaves, spread_rows, take_rows

POISONS = (float("nan"), float("inf"), float("-inf"))
LARGE = 1e18
"""Finite in float32, and its square is; its cube is not."""


def _last_resets(subject: Subject) -> tuple[Tensor, Tensor]:
    """Resets with at least one per row, and which steps [b, t] are at or after each row's last one."""
    is_first = subject.resets(21)
    is_first[min(1, subject.batch - 1), -1] = False
    for row in range(subject.batch):
        is_first[row, subject.steps // 2 + row :] = False
        is_first[row, subject.steps // 2 + row] = True
    last = torch.tensor([int(row.nonzero()[-1]) for row in is_first])
    return is_first, torch.arange(subject.steps) >= last[:, None]


def _select(tensor: Tensor, mask: Tensor) -> Tensor:
    return tensor[mask]  # a gather: what is not chosen has no part in value or gradient


def _all_gradients(
    subject: Subject, out: Tensor, state: Any, after: Tensor, targets: dict[str, Tensor]
) -> dict[str, Tensor | None]:
    generator = subject.generator(22)
    loss = probe(_select(out, after), generator)
    for leaf in float_leaves(state):
        loss = loss + probe(leaf, generator)
    return gradients(loss, targets)


@everywhere
def poison(subject: Subject) -> str:
    """NaN and infinity in earlier episodes leave no trace after a reset: values, state, gradients."""
    meter = subject.comparison()
    cause = (
        "something is cleared by a product with zero, or a masked weight of zero meets a value that is NaN "
        "(0 * NaN = NaN): select with torch.where before the arithmetic"
    )
    is_first, after = _last_resets(subject)
    _poison_inputs(subject, meter, is_first, after, cause)
    _poison_state(subject, meter, cause)
    _poison_state(subject.variant(steps=1), meter, cause)
    return f"NaN and infinities in inputs and in the incoming state: nothing leaks, {meter.report()}"


def _poison_inputs(subject: Subject, meter: Comparison, is_first: Tensor, after: Tensor, cause: str) -> None:
    clean = subject.inputs(23).requires_grad_()
    choice = torch.randint(len(POISONS), clean.shape, generator=subject.generator(24))
    dirty = torch.tensor(POISONS, dtype=clean.dtype)[choice]
    spots = torch.rand(clean.shape, generator=subject.generator(25)) < 0.5
    before = ~spread_rows(after, clean)
    bad = torch.where(before & spots, dirty, clean.detach()).requires_grad_()
    found = []
    for inputs in (clean, bad):
        out, end = subject(inputs, subject.used_state(), is_first)
        grads = _all_gradients(subject, out, end, after, {"the inputs": inputs, **subject.weights()})
        found.append((out, end, grads))
    (want, last, right), (got, end, left) = found
    what = "NaN and infinity in the inputs of earlier episodes"
    meter.outputs(got, want, what, mask=after, cause=cause)
    meter.states(end, last, what, step=subject.steps - 1, cause=cause)
    meter.gradients(left, right, what, cause)
    # What is made of these may overflow, and then a weight of zero meets an infinity.
    large = torch.where(before & spots, LARGE * clean.detach().sign(), clean.detach())
    with torch.no_grad():
        got, end = subject(large, subject.used_state(), is_first)
    what = f"inputs of {LARGE:g} in earlier episodes"
    meter.outputs(got, want, what, mask=after, cause=cause)
    meter.states(end, last, what, step=subject.steps - 1, cause=cause)


def _poison_state(subject: Subject, meter: Comparison, cause: str) -> None:
    """Rows 0 and 2 arrive with a spoiled memory and start afresh: at step 0, or in the middle of the call.

    Gradients of the weights are compared for step 0 only: in the middle, arithmetic on NaN has taken place.
    """
    spoiled = torch.zeros(subject.batch, dtype=torch.bool)
    spoiled[[0, min(2, subject.batch - 1)]] = True
    state, inputs = subject.used_state(), subject.inputs(27)
    for place in (0,) if subject.brief else (0, subject.steps // 2):
        is_first = subject.resets(26)
        is_first[:, : place + 1] &= ~spoiled[:, None]
        is_first[spoiled, place] = True
        after = (is_first.long().cumsum(1) > 0) | ~spoiled[:, None]
        out, last = subject(inputs, state, is_first)
        right = _all_gradients(subject, out, last, after, subject.weights())
        for value in (POISONS[0], complex(0.0, POISONS[0]), POISONS[1]):
            if isinstance(value, complex) and not any(leaf.is_complex() for leaf in float_leaves(state)):
                continue

            def spoil(leaf: Tensor, value: float | complex = value) -> Tensor:
                if not continuous(leaf):
                    return leaf
                bad = torch.full_like(leaf, value if leaf.is_complex() else value.real)
                if isinstance(value, complex):
                    bad = leaf + bad if leaf.is_complex() else leaf  # the imaginary part alone
                return torch.where(spread_rows(spoiled, leaf), bad, leaf)

            got, end = subject(inputs, map_state(spoil, state), is_first)
            part = "imaginary parts of the incoming state" if isinstance(value, complex) else "incoming state"
            what = (
                f"{part} full of {value.imag or value.real}, is_first at step {place} of {subject.steps} in rows 0, 2"
            )
            meter.outputs(got, out, what, mask=after, cause=cause)
            meter.states(end, last, what, step=subject.steps - 1, cause=cause)
            if place == 0:
                left = _all_gradients(subject, got, end, after, subject.weights())
                meter.gradients(left, right, what, cause)


@everywhere
def reset_gradient(subject: Subject) -> str:
    """No gradient flows from after a reset to before it: exactly none."""
    cause = (
        "the value is replaced at a reset but the graph still reaches the old one, or masked weights are small, not 0"
    )
    is_first, after = _last_resets(subject)
    inputs = subject.inputs(28).requires_grad_()
    state = gradient_state(subject.used_state())
    out, end = subject(inputs, state, is_first)
    names = {f"state.{name}": leaf for name, leaf in named_leaves(state) if continuous(leaf)}
    found = _all_gradients(subject, out, end, after, {"inputs": inputs, **names})
    to_inputs = found.pop("inputs")
    if to_inputs is not None:
        before = ~spread_rows(after, to_inputs)
        crossing = torch.where(before, to_inputs, 0.0)
        if (crossing != 0).any():
            step, row, size = locate(crossing)
            border = int(after[row].nonzero()[0])
            raise Violation(
                f"the input at step {step}, row {row} gets a gradient of {size:.2g} from outputs or state after the "
                f"reset at step {border}",
                cause,
            )
    for name, gradient in found.items():
        if gradient is not None and (gradient != 0).any():
            row = int((gradient != 0).flatten(1).any(-1).nonzero()[0])
            raise Violation(
                f"incoming {name}, row {row}, gets a gradient of {gradient[row].abs().max().item():.2g} from after a "
                "reset",
                cause,
            )
    return f"inputs and {len(names)} leaves of the incoming state get exactly zero from after a reset"


def future(subject: Subject) -> str:
    """No output depends on a later input or a later reset, by value or by gradient."""
    meter, steps = subject.comparison(), subject.steps
    cause = "no causal mask inside the call or chunk, a shift in the wrong direction, or statistics over time"
    state = subject.used_state()
    inputs, is_first = subject.inputs(29), subject.resets(30)
    other, other_first = subject.inputs(31), subject.resets(32)
    borders = sorted({1, 2, steps - 1, *range(5, steps, max(1, steps // 5))})
    with torch.no_grad():
        for mode in ("evaluation", "training"):
            want = _in_mode(subject, mode, inputs, state, is_first)
            for border in borders if mode == "evaluation" and not subject.options.quick else borders[::3]:
                later = torch.arange(steps) >= border
                shape = (1, steps, *[1] * (inputs.ndim - 2))
                changed = torch.where(later.reshape(shape), other, inputs)
                first = torch.where(later, other_first, is_first)
                got = _in_mode(subject, mode, changed, state, first)
                what = f"inputs and resets changed from step {border} on ({mode} mode)"
                meter.outputs(got, want, what, mask=~later.expand(subject.batch, -1), cause=cause)
    for border, twin in _future_cases(subject, borders[::3]):
        grown = inputs[: twin.batch].clone().requires_grad_()
        out, _ = twin(grown, take_rows(state, slice(0, twin.batch)), is_first[: twin.batch])
        found = gradients(probe(out[:, :border], subject.generator(33)), {"inputs": grown})["inputs"]
        if found is not None and (found[:, border:] != 0).any():
            step, row, size = locate(found[:, border:])
            raise Violation(
                f"the input at step {step + border}, row {row} gets a gradient of {size:.2g} from outputs before step "
                f"{border}",
                cause,
            )
    return f"{len(borders)} places in {steps} steps, by value and by gradient: {meter.report()}"


def _future_cases(subject: Subject, borders: list[int]) -> Iterator[tuple[int, Subject]]:
    """Every border in evaluation mode, the first one in training mode and with one row too."""
    if not subject.options.quick:
        yield from ((border, subject) for border in borders)
    yield borders[0], subject.variant(batch=1)
    if not subject.noisy:
        yield borders[0], subject.variant(is_training=True, grad=True)


def _in_mode(subject: Subject, mode: str, inputs: Tensor, state: Any, is_first: Tensor) -> Tensor:
    if mode == "evaluation":
        return subject(inputs, state, is_first)[0]
    # The same seed and shapes give the same dropout masks, so even a core with dropout can be compared.
    with subject.training():
        return subject(inputs, state, is_first)[0]


def rows(subject: Subject) -> str:
    """A row's outputs, state and gradients do not depend on the other rows, nor on how many there are."""
    meter = subject.comparison()
    inputs, is_first, state = subject.inputs(34), subject.resets(35), subject.used_state()
    with torch.no_grad():
        _rows_moved(subject, meter, inputs, state, is_first)
        _rows_changed(subject, meter, inputs, state, is_first)
        if not subject.options.quick:
            for batch, steps in ((2, subject.steps), (9, subject.steps), (33, max(8, subject.steps // 3))):
                some = subject.variant(batch=batch, steps=steps)
                _rows_moved(some, meter, some.inputs(34), some.used_state(), some.resets(35))
            if not subject.noisy:
                _rows_moved(subject.variant(is_training=True, grad=True), meter, inputs, state, is_first)
        one = (inputs[:, :1], state, is_first[:, :1])
        _rows_moved(subject.variant(steps=1), meter, *one)
        _rows_changed(subject.variant(steps=1), meter, *one)
    if subject.noisy or not subject.options.quick:
        _rows_gradient(subject, inputs, state, is_first)
    if not subject.noisy:
        _rows_gradient(subject.variant(is_training=True, grad=True), inputs, state, is_first)
    return f"permuted rows, changed rows (also NaN, also in training mode), rows alone, gradients: {meter.report()}"


def _rows_moved(subject: Subject, meter: Comparison, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    out, end = subject(inputs, state, is_first)
    order = torch.arange(subject.batch).roll(1)
    got, last = subject(inputs[order], take_rows(state, order), is_first[order])
    cause = "a parameter or a decision is tied to the place of a row in the batch"
    meter.outputs(got, out[order], "rows in another order", cause=cause)
    meter.states(last, take_rows(end, order), "rows in another order", cause=cause)
    cause = "statistics over the batch, or one decision taken for all rows together"
    for row in (0, subject.batch - 1):
        index = slice(row, row + 1)
        got, last = subject(inputs[index], take_rows(state, index), is_first[index])
        meter.outputs(got, out[index], f"row {row} alone against row {row} of {subject.batch}", cause=cause)
        what = f"row {row} alone against row {row} of {subject.batch}"
        meter.states(last, take_rows(end, index), what, cause=cause)


def _rows_changed(subject: Subject, meter: Comparison, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    """Every row but row 1 gets other inputs, another memory, other resets, or NaN."""
    cause = "statistics over the batch (batch normalisation), or an index that reaches into another row"
    kept = torch.arange(subject.batch) == 1
    wide = spread_rows(kept, inputs)
    other = subject.inputs(36)
    first = torch.where(kept[:, None], is_first, ~is_first if subject.steps == 1 else subject.resets(37).roll(1, 0))

    def mix(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(spread_rows(kept, old), old, new)

    memory = map_state(mix, state, subject.used_state(5))
    cases = {
        "other inputs, resets and memories": (torch.where(wide, inputs, other), memory, first),
        "NaN": (torch.where(wide, inputs, torch.nan), clone(state), is_first),
    }
    mask = kept[:, None].expand(-1, subject.steps)
    for mode in ("evaluation", "training"):
        want = _in_mode(subject, mode, inputs, state, is_first)
        for name, case in cases.items():
            got = _in_mode(subject, mode, *case)
            what = f"row 1, while all other rows get {name} ({mode} mode)"
            meter.outputs(got, want, what, mask=mask, cause=cause)


def _rows_gradient(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    state = gradient_state(state)
    out, end = subject(inputs, state, is_first)
    for row in (0, subject.batch - 1):
        generator = subject.generator(38)
        loss = probe(out[row], generator)
        for leaf in float_leaves(end):
            loss = loss + probe(leaf[row], generator)
        names = {name: leaf for name, leaf in named_leaves(state) if continuous(leaf)}
        for name, gradient in gradients(loss, {"inputs": inputs, **names}).items():
            if gradient is None:
                continue
            hot = (gradient != 0).flatten(1).any(-1)
            hot[row] = False
            if hot.any():
                guilty = int(hot.nonzero()[0])
                raise Violation(
                    f"row {guilty} of {name} gets a gradient of {gradient[guilty].abs().max().item():.2g} from "
                    f"row {row}",
                    "statistics over the batch, or an index that reaches into another row",
                )
