"""The line about side effects: a call changes nothing that belongs to its caller."""

from typing import Any

import torch
from torch import Tensor

from recollect.certify.comparison import Violation
from recollect.certify.random_sizes import SMALL_ROWS, describe, draw_rows, in_mode, make_call
from recollect.certify.subject import Subject, in_all_variants, make_strided, require_gradients
from recollect.state import clone, map_state, named_leaves

ALIAS = "a caller that reuses its input buffer would change the memory: copy what is kept"


@torch.no_grad()
def purity(subject: Subject) -> str:
    """Check that inputs and incoming state are unchanged, and structure, shapes and dtypes of the state preserved."""
    detail = _purity(subject)
    if subject.options.quick:
        return detail
    drawn = list(draw_rows(subject, "purity"))
    for rows, steps, mode in [*((rows, 1 + rows % 3, "evaluation mode") for rows in SMALL_ROWS), *drawn]:
        twin = in_mode(subject, rows, steps, mode)
        for resets in (True, False):
            _, state, is_first = make_call(twin, 140, resets=resets)
            _check_call(twin, state, is_first, f"a call of {steps} steps of {rows} rows ({mode})")
    return f"{detail}; {SMALL_ROWS[0]} to {SMALL_ROWS[-1]} rows; {describe(drawn)}"


@in_all_variants
def _purity(subject: Subject) -> str:
    flags = subject.resets(42)
    cases = {
        "a fresh state": (subject.fresh_state(), flags),
        "a used state": (subject.used_state(), flags),
        # Without resets a core may skip the selection that is its only copy.
        "a used state without resets": (subject.used_state(), subject.no_resets()),
    }
    for start, (state, is_first) in cases.items():
        for steps in (subject.steps, 1):
            here = is_first[:, -steps:].contiguous()
            _check_call(subject, state, here, f"a call of {steps} steps from {start}")
    one, many = subject.fresh_state(1), subject.fresh_state()
    for (name, single), (_, leaf) in zip(named_leaves(one), named_leaves(many), strict=True):
        if leaf.shape != (subject.batch, *single.shape[1:]) or not torch.equal(leaf, single.expand_as(leaf)):
            raise Violation(
                f"initial_state({subject.batch}).{name} is not {subject.batch} times initial_state(1).{name}",
                "fresh memories must be the same for every row; draw nothing at random in initial_state",
            )
    _check_fresh_states(subject)
    if not subject.brief:
        double = subject.in_float64()
        state = double.fresh_state()
        end = double(double.inputs(41, steps=1), state, double.no_resets(steps=1))[1]
        _check_structure(state, end, "after a call of the module in float64")
    return f"inputs, is_first and {len(list(named_leaves(many)))} leaves unchanged; same structure, shapes and dtypes"


def _check_fresh_states(subject: Subject) -> None:
    """Raise unless a fresh state shares no memory, because its caller may write into it: ``state.hidden[done] = 0``."""
    tensors = [*subject.core.named_parameters(), *subject.core.named_buffers()]
    dense = [(name, tensor) for name, tensor in tensors if tensor.numel() and tensor.layout == torch.strided]
    owners = {_address(tensor): f"the module's own {name}" for name, tensor in dense}
    for batch in (1, subject.batch):
        states = [subject.core.initial_state(batch) for _ in range(2)]  # both alive, so that no address is reused
        taken = dict(owners)
        for state in states:
            for name, leaf in named_leaves(state):
                if leaf.numel() and _address(leaf) in taken:
                    raise Violation(
                        f"initial_state({batch}).{name} is {taken[_address(leaf)]}, or a view of it",
                        "writing into a fresh memory changes all others: return a tensor of its own (repeat, clone)",
                    )
            taken |= {
                _address(leaf): f"a tensor of an earlier initial_state({batch})" for _, leaf in named_leaves(state)
            }


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _check_call(subject: Subject, state: Any, is_first: Tensor, what: str) -> None:
    steps = is_first.shape[1]
    inputs, is_first = subject.inputs(41, steps=steps), is_first.clone()
    if subject.strided:
        inputs, is_first = make_strided(inputs), make_strided(is_first)
    state = clone(state)
    kept = (inputs.clone(), clone(state), is_first.clone())
    if subject.grad:
        inputs, state = require_gradients(inputs), map_state(require_gradients, state)
    with subject.mode():
        out, end = subject.core(inputs, state, is_first)
    cause = "an in-place operation (index assignment, add_, copy_, masked_fill_) on a tensor that the caller owns"
    for name, now, before in (("inputs", inputs, kept[0]), ("is_first", is_first, kept[2])):
        if not torch.equal(now, before):
            raise Violation(f"{name} changed during {what}", cause)
    for (name, now), (_, before) in zip(named_leaves(state), named_leaves(kept[1]), strict=True):
        if not torch.equal(now, before):
            row = int((now != before).reshape(subject.batch, -1).any(-1).nonzero()[0])
            raise Violation(f"incoming state.{name}, row {row}, changed during {what}", cause)
    _check_structure(state, end, f"after {what}")
    _check_outputs(subject, out, steps)
    for name, leaf in named_leaves(end):
        for argument, given in (("inputs", inputs), ("is_first", is_first)):
            if leaf.numel() and _address(leaf) == _address(given):
                raise Violation(f"the new state.{name} is a view of {argument}", ALIAS)
    seen = clone(end)
    inputs.fill_(3.0)
    is_first.fill_(True)
    for (name, now), (_, before) in zip(named_leaves(end), named_leaves(seen), strict=True):
        if not torch.equal(now.nan_to_num(), before.nan_to_num()):
            raise Violation(f"the new state.{name} changes when the caller overwrites its inputs after {what}", ALIAS)


def _check_structure(before: Any, after: Any, when: str) -> None:
    cause = "the state that a call returns has another structure than that of initial_state"
    if type(after) is not type(before):
        raise Violation(f"the state is a {type(after).__name__} {when}, it was a {type(before).__name__}", cause)
    old, new = list(named_leaves(before)), list(named_leaves(after))
    if [n for n, _ in old] != [n for n, _ in new]:
        raise Violation(f"the state has leaves {[n for n, _ in new]} {when}, it had {[n for n, _ in old]}", cause)
    for (name, left), (_, right) in zip(old, new, strict=True):
        if left.shape != right.shape:
            raise Violation(
                f"state.{name} has shape {list(right.shape)} {when}, it had {list(left.shape)}",
                "a cache that grows: keep a fixed number of entries, and the number of valid ones in an integer leaf",
            )
        if left.dtype != right.dtype:
            raise Violation(
                f"state.{name} is {right.dtype} {when}, it was {left.dtype}",
                "arithmetic promoted the leaf: cast it back, or initialise it in the dtype of the result",
            )


def _check_outputs(subject: Subject, out: Tensor, steps: int) -> None:
    if tuple(out.shape[:2]) != (subject.batch, steps):
        raise Violation(
            f"outputs have shape {list(out.shape)}, inputs start with [{subject.batch}, {steps}]",
            "outputs must be batch first, then time, one per step",
        )
    want = getattr(subject.core, "output_shape", None)
    if want is not None and tuple(out.shape[2:]) != tuple(want):
        raise Violation(f"outputs have shape {list(out.shape)}, output_shape is {list(want)}", "output_shape is wrong")
    if out.is_complex():
        raise Violation(f"outputs are {out.dtype}", "outputs are real numbers: return the real part, or view_as_real")
    if out.dtype != subject.dtype:
        raise Violation(f"outputs are {out.dtype}, inputs and weights are {subject.dtype}", "a cast inside the core")
