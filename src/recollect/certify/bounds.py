"""Lines about what a call may touch and what may grow: purity, hidden state, bytes."""

import gc
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from recollect.certify.compare import Comparison, Violation
from recollect.certify.subject import Subject
from recollect.state import clone, named_leaves, nbytes

RESIDENT_SLACK = 32 * 2**20  # allocators keep some free memory; a leak of 10^5 steps is larger than this

Snapshot = dict[str, Any]

deterministic: Any = torch.utils.deterministic  # its setting is a property of the module, which type checkers miss


@torch.no_grad()
def purity(subject: Subject) -> str:
    """Inputs and the incoming state are unchanged; structure, shapes and dtypes come back as they went in."""
    for start, state in (("a fresh state", subject.fresh_state()), ("a used state", subject.used_state())):
        inputs, is_first = subject.inputs(41), subject.resets(42)
        kept = (inputs.clone(), clone(state), is_first.clone())
        out, end = subject.core(inputs, state, is_first)
        cause = "an in-place operation (index assignment, add_, copy_, masked_fill_) on a tensor that the caller owns"
        for what, now, before in (("inputs", inputs, kept[0]), ("is_first", is_first, kept[2])):
            if not torch.equal(now, before):
                raise Violation(f"{what} changed during a call from {start}", cause)
        for (name, now), (_, before) in zip(named_leaves(state), named_leaves(kept[1]), strict=True):
            if not torch.equal(now, before):
                row = int((now != before).flatten(1).any(-1).nonzero()[0])
                raise Violation(f"incoming state.{name}, row {row}, changed during a call from {start}", cause)
        _same_form(state, end, f"after {subject.steps} steps from {start}")
        _check_outputs(subject, out)
        _no_alias(inputs, end)
    every = subject.core(subject.inputs(43, steps=1), subject.fresh_state(), subject.never(steps=1))[1]
    _same_form(subject.fresh_state(), every, "after 1 step from a fresh state")
    one, many = subject.fresh_state(1), subject.fresh_state()
    for (name, single), (_, leaf) in zip(named_leaves(one), named_leaves(many), strict=True):
        if leaf.shape != (subject.batch, *single.shape[1:]) or not torch.equal(leaf, single.expand_as(leaf)):
            raise Violation(
                f"initial_state({subject.batch}).{name} is not {subject.batch} times initial_state(1).{name}",
                "fresh memories must be the same for every row; draw nothing at random in initial_state",
            )
    return f"inputs, is_first and {len(list(named_leaves(state)))} leaves unchanged; same structure, shapes and dtypes"


def _same_form(before: Any, after: Any, when: str) -> None:
    cause = "the state that a call returns is not of the form that initial_state gives"
    if type(after) is not type(before):
        raise Violation(f"the state is a {type(after).__name__} {when}, it was a {type(before).__name__}", cause)
    old, new = list(named_leaves(before)), list(named_leaves(after))
    if [n for n, _ in old] != [n for n, _ in new]:
        raise Violation(f"the state has leaves {[n for n, _ in new]} {when}, it had {[n for n, _ in old]}", cause)
    for (name, left), (_, right) in zip(old, new, strict=True):
        if left.shape != right.shape:
            raise Violation(
                f"state.{name} has shape {list(right.shape)} {when}, it had {list(left.shape)}",
                "a cache that grows: keep a fixed number of entries and say in an integer leaf how many are valid",
            )
        if left.dtype != right.dtype:
            raise Violation(
                f"state.{name} is {right.dtype} {when}, it was {left.dtype}",
                "arithmetic promoted the leaf: cast it back, or start it in the dtype that the arithmetic gives",
            )


def _check_outputs(subject: Subject, out: Tensor) -> None:
    if tuple(out.shape[:2]) != (subject.batch, subject.steps):
        raise Violation(
            f"outputs have shape {list(out.shape)}, inputs start with [{subject.batch}, {subject.steps}]",
            "outputs must be batch first, then time, one per step",
        )
    want = getattr(subject.core, "output_shape", None)
    if want is not None and tuple(out.shape[2:]) != tuple(want):
        raise Violation(
            f"outputs have shape {list(out.shape)}, output_shape says {list(want)}", "output_shape is wrong"
        )
    if out.dtype != subject.dtype:
        raise Violation(f"outputs are {out.dtype}, inputs and weights are {subject.dtype}", "a cast inside the core")


def _no_alias(inputs: Tensor, end: Any) -> None:
    for name, leaf in named_leaves(end):
        if leaf.numel() and leaf.untyped_storage().data_ptr() == inputs.untyped_storage().data_ptr():
            raise Violation(
                f"the new state.{name} is a view of the inputs",
                "a caller that reuses its input buffer would change the memory: copy what is kept",
            )


def _freeze(value: Any) -> Any:
    """A comparable copy of plain data; None for everything else (functions, locks, listeners)."""
    if isinstance(value, Tensor):
        # A tensor on the meta device is a shape and a dtype, nothing else.
        return str((value.shape, value.dtype)) if value.is_meta else value.detach().clone()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_freeze(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _freeze(item) for key, item in value.items()}
    return None


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.shape == right.shape and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def snapshot(module: nn.Module) -> Snapshot:
    """Copies of every parameter, buffer and plain attribute of a module and its children."""
    found: Snapshot = {f"parameter {name}": _freeze(p) for name, p in module.named_parameters()}
    found |= {f"buffer {name}": _freeze(b) for name, b in module.named_buffers()}
    for name, child in module.named_modules():
        for key, value in vars(child).items():
            if key not in ("_parameters", "_buffers", "_modules", "training"):
                found[f"attribute {name + '.' if name else ''}{key}"] = _freeze(value)
    return found


def _unchanged(before: Snapshot, after: Snapshot, when: str) -> None:
    for name in before.keys() | after.keys():
        if not (name in before and name in after and _equal(before[name], after[name])):
            raise Violation(
                f"{name} changed during {when}",
                "memory is kept in the module beside the state (a running statistic, a cache, a counter): "
                "move it into the state or do without",
            )


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Within, ``torch.empty`` gives NaN and the largest integers."""
    settings = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    fill = deterministic.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        deterministic.fill_uninitialized_memory = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        deterministic.fill_uninitialized_memory = fill
        torch.use_deterministic_algorithms(settings[0], warn_only=settings[1])


def hidden_state(subject: Subject) -> str:
    """The module remembers nothing: calls repeat exactly, two interleaved streams do not meet."""
    meter = subject.comparison()
    cause = "the module remembers something of the calls before: move it into the state"
    inputs, is_first, state = subject.inputs(44), subject.resets(45), subject.used_state()
    with torch.no_grad():
        out, end = subject(inputs, state, is_first)
        again, last = subject(inputs, state, is_first)
        meter.outputs(again, out, "the same call a second time", cause=cause)
        meter.states(last, end, "the same call a second time", cause=cause)
        with _poisoned_memory():
            again, last = subject(inputs, state, is_first)
        what = "the same call with new memory full of NaN"
        unwritten = "torch.empty gives memory that is read before it is written"
        meter.outputs(again, out, what, cause=unwritten)
        meter.states(last, end, what, cause=unwritten)
        _interleave(subject, meter, cause)
    for mode in ("evaluation", "training"):
        _no_trace(subject, inputs, state, is_first, mode)
    return f"repeated and interleaved calls, buffers and attributes in both modes: {meter.report()}"


def _interleave(subject: Subject, meter: Comparison, cause: str) -> None:
    """Two streams of different batch size take turns; each must be as if alone."""
    wide, narrow = subject.inputs(46), subject.inputs(47, batch=1)
    size = max(1, subject.steps // 6)
    never, alone = subject.never(), subject.never(batch=1)
    want, _ = subject(wide, subject.fresh_state(), never)
    expected, _ = subject(narrow, subject.fresh_state(1), alone)
    left, right = subject.fresh_state(), subject.fresh_state(1)
    outs, others = [], []
    for a, b in zip(wide.split(size, 1), narrow.split(size, 1), strict=True):
        out, left = subject(a, left, never[:, : a.shape[1]])
        outs.append(out)
        out, right = subject(b, right, alone[:, : b.shape[1]])
        others.append(out)
    # A core that splits badly fails here too; its own line is `splits`.
    meter.outputs(torch.cat(outs, 1), want, "two streams that take turns, the first", cause=cause)
    meter.outputs(torch.cat(others, 1), expected, "two streams that take turns, the second", cause=cause)


def _no_trace(subject: Subject, inputs: Tensor, state: Any, is_first: Tensor, mode: str) -> None:
    other = subject.inputs(48)
    if mode == "evaluation":
        with torch.no_grad():
            subject(inputs, state, is_first)
            before = snapshot(subject.core)
            subject(other, state, is_first)
            _unchanged(before, snapshot(subject.core), "a call in evaluation mode")
        return
    with subject.training():
        subject(inputs, state, is_first)
        before = snapshot(subject.core)
        subject(other, state, is_first)
        _unchanged(before, snapshot(subject.core), "a call in training mode")


@torch.no_grad()
def state_bytes(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Bytes of state, of the live stream and of the process stay the same over a long run."""
    steps, numbers = _long_run(subject)
    detail = f"{numbers['bytes']:,} bytes per stream after {steps:,} steps in calls of {numbers['call']}"
    if steps < subject.options.long_steps:
        detail += (
            f" (of {subject.options.long_steps:,}; stopped by the time limit of {subject.options.long_seconds:g} s)"
        )
    if hasattr(subject.core, "stream"):
        live = _long_stream(subject, min(2000, subject.options.long_steps))
        detail += f"; Stream holds {live['stream_bytes']:,} bytes after {live['stream_steps']:,} steps"
        numbers |= live
    detail += f"; resident memory {numbers['resident_growth'] / 2**20:+.1f} MB"
    return detail, {**numbers, "steps": steps}


def resident() -> int:
    """Bytes of the process in memory (the peak, where the system does not tell more)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def live_tensors() -> int:
    """How many tensors Python holds on to."""
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def _call_length(subject: Subject) -> int:
    """The call length that makes the most steps per second: long for parallel cores, short for wide windows."""
    best, rate = 16, 0.0
    state = subject.fresh_state(1)
    for length in (16, 64, 256, 1000):
        length = min(length, subject.options.long_steps)
        inputs, never = subject.inputs(49, batch=1, steps=length), subject.never(batch=1, steps=length)
        subject(inputs, state, never)
        start = time.perf_counter()
        subject(inputs, state, never)
        seconds = time.perf_counter() - start
        if length / seconds > rate:
            best, rate = length, length / seconds
        if seconds > subject.options.long_seconds / 20:
            break  # the next one would take too much of the time
    return best


def _long_run(subject: Subject) -> tuple[int, dict[str, Any]]:
    call = _call_length(subject)
    state = subject.fresh_state(1)
    size = nbytes(state)
    inputs, never = subject.inputs(50, batch=1, steps=call), subject.never(batch=1, steps=call)
    done, base, start = 0, 0, time.perf_counter()
    while done < subject.options.long_steps:
        take = min(call, subject.options.long_steps - done)
        out, state = subject(inputs[:, :take], state, never[:, :take])
        done += take
        if nbytes(state) != size:
            raise Violation(
                f"the state went from {size} to {nbytes(state)} bytes within {done} steps",
                "a cache that grows: keep a fixed number of entries",
            )
        if not out.isfinite().all():
            step = done - take + int((~out.isfinite()).flatten(2).any(-1)[0].nonzero()[0])
            raise Violation(f"outputs are not finite from step {step} on", "the memory grows without bound in value")
        base = base or resident()
        if time.perf_counter() - start > subject.options.long_seconds:
            break
    grown = resident() - base
    _check_resident(grown, done)
    return done, {"bytes": size, "call": call, "resident_growth": grown}


def _check_resident(grown: int, steps: int) -> None:
    if grown > RESIDENT_SLACK:
        raise Violation(
            f"the process grew by {grown / 2**20:.0f} MB in {steps} steps while the state did not",
            "tensors of past steps are kept somewhere: a list, a graph that is not cut, a hook",
        )


def _long_stream(subject: Subject, steps: int) -> dict[str, int]:
    """Steps of the live stream: its bytes and the number of tensors alive must not change once it is warm."""
    live = subject.core.stream(1)
    inputs = list(subject.inputs(51, batch=1, steps=32).unbind(1))
    size, start = live.nbytes, time.perf_counter()
    done, warm = 0, 0
    base = alive = 0
    while done < steps:
        live.step(inputs[done % 32])
        done += 1
        if done == min(64, steps // 2):
            warm, base, alive = done, resident(), live_tensors()
        if done % 64 == 0 and done >= 4 * warm > 0 and time.perf_counter() - start > subject.options.long_seconds / 3:
            break
    if live.nbytes != size:
        raise Violation(
            f"Stream.nbytes went from {size} to {live.nbytes} within {done} steps", "a buffer grows with the steps"
        )
    more = live_tensors() - alive
    if more > (done - warm) // 10:
        raise Violation(
            f"Python holds {more} tensors more after {done - warm} further steps of the stream",
            "the stream keeps tensors of past steps in a list, a cache or a graph",
        )
    _check_resident(resident() - base, done)
    return {"stream_bytes": size, "stream_steps": done}
