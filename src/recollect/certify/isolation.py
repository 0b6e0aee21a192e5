"""Lines about isolation: from earlier episodes, from later inputs, and from other rows.

By value (change the one, compare the other), with NaN (in the one) and by gradient (which must be exactly zero).
"""

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Comparison, Result, Violation, is_continuous, locate
from recollect.certify.random_sizes import (
    SMALL_ROWS,
    call_rows,
    describe,
    draw_rows,
    in_mode,
    make_call,
    modes,
    size_generator,
)
from recollect.certify.subject import (
    Subject,
    gradient_state,
    gradient_targets,
    gradients,
    in_all_variants,
    probe,
    probe_all,
)
from recollect.state import clone, leaves, map_state, spread_rows, take_rows

POISONS = (float("nan"), float("inf"), float("-inf"))
LARGE = 1e18  # finite in float32, and so is its square, but not its cube
LEAKS = (
    "the memory is cleared by a product with zero, or a masked weight of zero multiplies a value that is NaN "
    "(0 * NaN = NaN): select with torch.where before the arithmetic"
)

GRADIENT_ROUNDING = 1e-4  # of sums over many rows in float32
MANY_ROWS = "a path of its own for many rows (a kernel, a block, a buffer of a fixed size), or a wrong index of a row"


def _last_resets(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return resets with at least one per row, and the steps [b, t] from each row's last one on."""
    is_first = subject.resets(21)
    is_first[min(1, subject.batch - 1), -1] = False
    half = subject.steps // 2
    for row in range(subject.batch):
        place = half + row % (subject.steps - half)  # a variant may have more rows than half the steps
        is_first[row, place:] = False
        is_first[row, place] = True
    last = torch.tensor([int(row.nonzero()[-1]) for row in is_first])
    return is_first, torch.arange(subject.steps) >= last[:, None]


def _gradients_after(
    subject: Subject, result: Result, after: Tensor, targets: dict[str, Tensor]
) -> dict[str, Tensor | None]:
    """Return gradients of the outputs at steps [b, t] (gathered: others have no part in them) and of the state."""
    out, state = result
    return gradients(probe_all(out[after], state, subject.generator(22)), targets)


@in_all_variants
def poison(subject: Subject) -> str:
    """Check that NaN and infinity in earlier episodes have no effect after a reset, on values, state or gradients."""
    meter = subject.comparison()
    _poison_inputs(subject, meter)
    _poison_state(subject, meter)
    _poison_state(subject.variant(steps=1), meter)
    return f"NaN and infinities in inputs and in the incoming state have no effect, {meter.report()}"


def _poison_inputs(subject: Subject, meter: Comparison) -> None:
    is_first, after = _last_resets(subject)
    clean = subject.inputs(23).requires_grad_()
    choice = torch.randint(len(POISONS), clean.shape, generator=subject.generator(24))
    dirty = torch.tensor(POISONS, dtype=clean.dtype)[choice]
    spots = torch.rand(clean.shape, generator=subject.generator(25)) < 0.5
    spots &= ~spread_rows(after, clean)
    bad = torch.where(spots, dirty, clean.detach()).requires_grad_()
    calls, found = [], []
    for inputs in (clean, bad):
        calls.append(subject(inputs, subject.used_state(), is_first))
        found.append(_gradients_after(subject, calls[-1], after, {"the inputs": inputs, **subject.weights()}))
    (want, got), (right, left) = calls, found
    what = "NaN and infinity in the inputs of earlier episodes"
    meter.results(got, want, what, mask=after, cause=LEAKS)
    meter.gradients(left, right, what, LEAKS)
    # Functions of large inputs may overflow, and then a weight of zero multiplies an infinity.
    large = torch.where(spots, LARGE * clean.detach().sign(), clean.detach())
    with torch.no_grad():
        got = subject(large, subject.used_state(), is_first)
    meter.results(got, want, f"inputs of {LARGE:g} in earlier episodes", mask=after, cause=LEAKS)


def _poison_state(subject: Subject, meter: Comparison) -> None:
    """Give rows 0 and 2 a state of NaN, and reset them at step 0, or in the middle of the call.

    Gradients of the weights are compared for step 0 only: in the middle, arithmetic on NaN has taken place.
    """
    spoiled = torch.zeros(subject.batch, dtype=torch.bool)
    spoiled[[0, min(2, subject.batch - 1)]] = True
    state, inputs = subject.used_state(), subject.inputs(27)
    is_complex = any(leaf.is_complex() for leaf in leaves(state))
    for place in (0,) if subject.brief else (0, subject.steps // 2):
        is_first = subject.resets(26)
        is_first[:, : place + 1] &= ~spoiled[:, None]
        is_first[spoiled, place] = True
        after = (is_first.long().cumsum(1) > 0) | ~spoiled[:, None]
        want = subject(inputs, state, is_first)
        right = _gradients_after(subject, want, after, subject.weights())
        for value in (POISONS[0], *([complex(0.0, POISONS[0])] if is_complex else []), POISONS[1]):

            def spoil(leaf: Tensor, value: float | complex = value) -> Tensor:
                if not is_continuous(leaf):
                    return leaf
                bad = torch.full_like(leaf, value if leaf.is_complex() else value.real)
                if isinstance(value, complex):
                    bad = leaf + bad if leaf.is_complex() else leaf  # the imaginary part alone
                return torch.where(spread_rows(spoiled, leaf), bad, leaf)

            part = "imaginary parts of the incoming state" if isinstance(value, complex) else "incoming state"
            what = (
                f"{part} full of {value.imag or value.real}, is_first at step {place} of {subject.steps} in rows 0, 2"
            )
            got = subject(inputs, map_state(spoil, state), is_first)
            meter.results(got, want, what, mask=after, cause=LEAKS)
            if place == 0:
                meter.gradients(_gradients_after(subject, got, after, subject.weights()), right, what, LEAKS)


@in_all_variants
def reset_gradient(subject: Subject) -> str:
    """Check that gradients from after a reset to before it are exactly zero."""
    cause = (
        "the value is replaced at a reset but the graph still reaches the old one, or masked weights are small, not 0"
    )
    is_first, after = _last_resets(subject)
    inputs = subject.inputs(28).requires_grad_()
    state = gradient_state(subject.used_state())
    result = subject(inputs, state, is_first)
    found = _gradients_after(subject, result, after, gradient_targets(inputs, state))
    to_inputs = found.pop("inputs")
    if to_inputs is not None:
        crossing = torch.where(spread_rows(after, to_inputs), 0.0, to_inputs)
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
            row = int((gradient != 0)[..., None].flatten(1).any(-1).nonzero()[0])
            size = gradient[row].abs().max().item()
            raise Violation(f"incoming {name}, row {row}, gets a gradient of {size:.2g} from after a reset", cause)
    return f"inputs and {len(found)} leaves of the incoming state get exactly zero from after a reset"


def future(subject: Subject) -> str:
    """Check that no output depends on a later input or a later reset, by value or by gradient."""
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
                changed = torch.where(later.reshape(1, steps, *[1] * (inputs.ndim - 2)), other, inputs)
                got = _in_mode(subject, mode, changed, state, torch.where(later, other_first, is_first))
                what = f"inputs and resets changed from step {border} on ({mode} mode)"
                meter.outputs(got, want, what, mask=~later.expand(subject.batch, -1), cause=cause)
    for border, twin in _gradient_cases(subject, borders[::3]):
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


def _gradient_cases(subject: Subject, borders: list[int]) -> Iterator[tuple[int, Subject]]:
    """Yield every border in evaluation mode, and the first one in training mode and with one row."""
    if not subject.options.quick:
        yield from ((border, subject) for border in borders)
    yield borders[0], subject.variant(batch=1)
    if not subject.is_noisy:
        yield borders[0], subject.variant(is_training=True, grad=True)


def _in_mode(subject: Subject, mode: str, inputs: Tensor, state: Any, is_first: Tensor) -> Tensor:
    if mode == "evaluation":
        return subject(inputs, state, is_first)[0]
    # The same seed and shapes give the same dropout masks, so even a core with dropout can be compared.
    with subject.training():
        return subject(inputs, state, is_first)[0]


def rows(subject: Subject) -> str:
    """Check that a row's outputs, state and gradients do not depend on the other rows, nor on their number."""
    meter, said = subject.comparison(), ""
    inputs, is_first, state = subject.inputs(34), subject.resets(35), subject.used_state()
    with torch.no_grad():
        _move_rows(subject, meter, inputs, state, is_first)
        _change_rows(subject, meter, inputs, state, is_first)
        if not subject.options.quick:
            for batch, steps in ((2, subject.steps), (9, subject.steps), (33, max(8, subject.steps // 3))):
                twin = subject.variant(batch=batch, steps=steps)
                _move_rows(twin, meter, twin.inputs(34), twin.used_state(), twin.resets(35))
            if not subject.is_noisy:
                _move_rows(subject.variant(is_training=True, grad=True), meter, inputs, state, is_first)
            said = _many_rows(subject, meter)
        one = (inputs[:, :1], state, is_first[:, :1])
        _move_rows(subject.variant(steps=1), meter, *one)
        _change_rows(subject.variant(steps=1), meter, *one)
    if subject.is_noisy or not subject.options.quick:
        _check_row_gradients(subject, inputs, state, is_first)
        _compare_gradients_beside_nan(subject, meter, inputs, state, is_first)
    if not subject.is_noisy:
        _check_row_gradients(subject.variant(is_training=True, grad=True), inputs, state, is_first)
    return (
        f"permuted rows, changed rows (also NaN, also in training mode), single rows, gradients: {meter.report()}{said}"
    )


def _many_rows(subject: Subject, meter: Comparison) -> str:
    """Compare calls of small and of drawn numbers of rows with calls of a few rows; return what was drawn."""
    drawn = list(draw_rows(subject, "rows"))
    draws = size_generator(subject, "rows at a time")
    few: dict[tuple[int, int, bool], tuple[Result, list[int]]] = {}  # of a few rows at a time, without gradients
    sizes: list[int] = []
    small = [name for name in ("evaluation mode", "training mode with gradients") if name in modes(subject)]
    for rows, steps, mode in [*((rows, 2, mode) for rows in SMALL_ROWS[1:] for mode in small), *drawn]:
        twin = in_mode(subject, rows, steps, mode)
        call = make_call(twin, 134)
        key = (rows, steps, twin.is_training)
        if key not in few:
            sizes = [1, rows - 1] if rows in SMALL_ROWS else _draw_parts(rows, draws)
            few[key] = call_rows(twin.variant(grad=False), call, sizes), sizes
        want, sizes = few[key]
        what = f"{rows} rows against {max(sizes)} and fewer at a time, {steps} steps, {mode}"
        meter.results(twin(*call), want, what, cause=MANY_ROWS)
    rows, _, mode = drawn[-1]
    _gradients_of_many_rows(in_mode(subject, rows, 2, mode), sizes, f"{rows} rows, {mode}")
    return f"; {SMALL_ROWS[0]} to {SMALL_ROWS[-1]} rows; {describe(drawn)}"


def _draw_parts(rows: int, draws: random.Random) -> list[int]:
    """Return numbers of rows that add up to ``rows``, each an eighth of them at most."""
    sizes: list[int] = []
    while (left := rows - sum(sizes)) > 0:
        sizes.append(min(left, draws.randint(1, 1 + rows // 8)))
    return sizes


@torch.enable_grad()
def _gradients_of_many_rows(subject: Subject, sizes: list[int], what: str) -> None:
    """Compare the gradients of the weights of a call with those of calls of fewer rows."""
    call = make_call(subject, 135)
    left, right = (
        gradients(probe_all(*found, subject.generator(136)), subject.weights())
        for found in (subject(*call), call_rows(subject, call, sizes))
    )
    what = f"{what}, against {max(sizes)} and fewer at a time"
    Comparison(GRADIENT_ROUNDING).gradients(left, right, what, MANY_ROWS)


def _take(result: Result, rows: Tensor | slice) -> Result:
    return result[0][rows], take_rows(result[1], rows)


def _move_rows(subject: Subject, meter: Comparison, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    result = subject(inputs, state, is_first)

    def compare(rows: Tensor | slice, what: str, cause: str) -> None:
        got = subject(inputs[rows], take_rows(state, rows), is_first[rows])
        meter.results(got, _take(result, rows), what, cause=cause)

    order = torch.arange(subject.batch).roll(1)
    compare(order, "rows in another order", "a parameter or a decision depends on the index of a row in the batch")
    for row in (0, subject.batch - 1):
        what = f"row {row} alone against row {row} of {subject.batch}"
        compare(slice(row, row + 1), what, "statistics over the batch, or one decision for all rows together")


def _change_rows(subject: Subject, meter: Comparison, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    """Give every row but row 1 other inputs, another memory and other resets, or NaN."""
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
            meter.outputs(got, want, f"row 1, while all others get {name} ({mode} mode)", mask=mask, cause=cause)


def _check_row_gradients(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor) -> None:
    inputs = inputs.clone().requires_grad_()
    state = gradient_state(state)
    result = subject(inputs, state, is_first)
    for row in (0, subject.batch - 1):
        out, end = _take(result, slice(row, row + 1))
        loss = probe_all(out, end, subject.generator(38))
        for name, gradient in gradients(loss, gradient_targets(inputs, state)).items():
            if gradient is None:
                continue
            leaking = (gradient != 0)[..., None].flatten(1).any(-1)
            leaking[row] = False
            if leaking.any():
                other = int(leaking.nonzero()[0])
                size = gradient[other].abs().max().item()
                raise Violation(
                    f"row {other} of {name} gets a gradient of {size:.2g} from row {row}",
                    "statistics over the batch, or an index that reaches into another row",
                )


def _compare_gradients_beside_nan(
    subject: Subject, meter: Comparison, inputs: Tensor, state: Any, is_first: Tensor
) -> None:
    """Compare the gradients of a row to its own inputs and memory with those beside rows full of NaN.

    A product with zero hides a NaN from every value when it is selected away, but not from gradients.
    """
    for row in (0, subject.batch - 1):
        own = torch.arange(subject.batch) == row
        dirty = torch.where(spread_rows(own, inputs), inputs, torch.nan)
        found = []
        for given in (inputs, dirty):
            x, start = given.clone().requires_grad_(), gradient_state(state)
            loss = probe_all(*_take(subject(x, start, is_first), slice(row, row + 1)), subject.generator(39))
            targets = gradients(loss, gradient_targets(x, start))
            found.append({name: None if g is None else g[row] for name, g in targets.items()})
        what = f"row {row} beside rows full of NaN"
        meter.gradients(found[1], found[0], what, "arithmetic with other rows, whose result is selected away")
