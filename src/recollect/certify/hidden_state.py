"""Lines about hidden state: nothing of earlier calls is kept, and no copy of old weights."""

import copy
import pickle
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.utils.deterministic
from torch import Tensor, nn

from recollect.certify.comparison import Comparison, Violation, absolute_difference, is_continuous
from recollect.certify.snapshot import find_difference, settings, snapshot
from recollect.certify.subject import Subject, gradients, probe
from recollect.state import clone, map_state

deterministic: Any = torch.utils.deterministic  # its setting is a property of the module, which type checkers miss

MODES = ("evaluation", "training")
SHARED = "a table of weights is kept for all modules, in a global or in the class"
BACKWARD = "a hand-written backward pass reads a copy of the weights that was made earlier"
REMEMBERS = "the module keeps data of earlier calls: move it into the state"
DRAWS = (
    "a call draws random numbers or sets a seed, which changes all later draws of the program: draw when the module is "
    "made, or from a torch.Generator of its own"
)


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Let ``torch.empty`` return NaN and the largest integers within a context."""
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
    """Check that the module keeps nothing of a call: calls can be repeated, and interleaved streams are independent."""
    meter = subject.comparison()
    call = subject.inputs(44), subject.used_state(), subject.resets(45)
    with torch.no_grad():
        want = subject(*call)
        with _poisoned_memory():
            got = subject(*call)
        cause = "memory of torch.empty is read before it is written"
        meter.results(got, want, "the same call with uninitialised memory full of NaN", cause=cause)
        _interleave(subject, meter)
    _repeats(subject, meter, "")
    for label, variant in subject.variants() if not subject.options.quick else ():
        _repeats(variant, meter, f"{label}: ")
    for mode in (MODES[subject.seed % 2],) if subject.options.quick else MODES:
        _check_attributes(subject, mode)
    _check_generators_of_stream(subject)
    _check_settings(subject)
    return f"repeated and interleaved calls, buffers and attributes in both modes: {meter.report()}"


def _repeats(subject: Subject, meter: Comparison, label: str) -> None:
    """Repeat a call at once and after other calls, also when the caller overwrites its inputs."""
    quick = subject.options.quick
    for steps in ((subject.steps, 1)[subject.seed % 2],) if quick else (subject.steps, 1):
        is_first = subject.no_resets(steps=1) if steps == 1 else subject.resets(45)[:, :steps]
        inputs, state, other = subject.inputs(44, steps=steps), subject.used_state(), subject.used_state(1)
        out, end = subject(inputs, state, is_first)
        want = out.detach().clone(), map_state(lambda leaf: leaf.detach().clone(), end)
        what = f"{label}the same call of {steps} steps a second time"
        meter.results(subject(inputs, state, is_first), want, what, cause=REMEMBERS)
        for length in (1,) if quick else (steps, 1, 2):  # the last one could be continued by a following call
            subject(subject.inputs(48, steps=length), other, subject.no_resets(steps=length))
        with torch.no_grad(), subject.mode():
            spent = inputs.clone()
            subject.core(spent, clone(state), is_first.clone())
            spent.fill_(-2.0)
        meter.results(subject(inputs, state, is_first), want, f"{what}, after other calls", cause=REMEMBERS)
        # The result of a call is no view of a tensor that later calls write into.
        call = subject.inputs(39, steps=1), want[1], subject.no_resets(steps=1)
        following = subject(*call)[0].detach().clone()
        subject(subject.inputs(38, steps=1), other, subject.no_resets(steps=1))
        meter.outputs(subject(*call)[0], following, f"{label}the call that follows it, a second time", cause=REMEMBERS)


def _interleave(subject: Subject, meter: Comparison) -> None:
    """Interleave two sequences of different batch size, and compare each with itself alone."""
    wide, narrow = subject.inputs(46), subject.inputs(47, batch=1)
    size = max(1, subject.steps // 6)
    never, alone = subject.no_resets(), subject.no_resets(batch=1)
    want, _ = subject(wide, subject.fresh_state(), never)
    expected, _ = subject(narrow, subject.fresh_state(1), alone)
    left, right = subject.fresh_state(), subject.fresh_state(1)
    outs, others = [], []
    for a, b in zip(wide.split(size, 1), narrow.split(size, 1), strict=True):
        out, left = subject(a, left, never[:, : a.shape[1]])
        outs.append(out)
        out, right = subject(b, right, alone[:, : b.shape[1]])
        others.append(out)
    # A core that fails `splits` fails here too.
    meter.outputs(torch.cat(outs, 1), want, "two interleaved sequences, the first", cause=REMEMBERS)
    meter.outputs(torch.cat(others, 1), expected, "two interleaved sequences, the second", cause=REMEMBERS)


def _check_attributes(subject: Subject, mode: str) -> None:
    """Raise if an attribute, buffer, container or closure changes in a call."""
    sizes = ((subject.batch, subject.steps), (1, 1), (1, subject.steps), (subject.batch, 1))
    for batch, steps in sizes[:1] if subject.options.quick else sizes:
        twin = subject.variant(batch=batch)
        inputs, state, first = twin.inputs(44, steps=steps), twin.used_state(), twin.resets(45)[:, :steps]
        other = twin.inputs(48, steps=steps)
        with subject.training() if mode == "training" else torch.no_grad():
            twin.core(inputs, clone(state), first)
            before = snapshot(subject.core)
            with _global_generators() as moved:
                twin.core(other, clone(state), first)
            name = find_difference(before, snapshot(subject.core))
        if moved and mode == "evaluation":  # in training mode dropout draws
            what = f"a call in evaluation mode ({steps} steps, {batch} rows)"
            raise Violation(f"{moved[0]} has another state after {what}", DRAWS)
        if name is not None:
            raise Violation(
                f"{name} changed during a call in {mode} mode ({steps} steps, {batch} rows)",
                "memory is kept in the module beside the state (a running statistic, a cache, a counter): "
                "move it into the state, or remove it",
            )


@torch.no_grad()
def _check_generators_of_stream(subject: Subject) -> None:
    """Raise if a stream moves a global random generator."""
    if not subject.has_stream:
        return
    live, inputs, is_first = subject.new_stream(), subject.inputs(44, steps=3), subject.resets(45)[:, :3]
    with _global_generators() as moved:
        for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True):
            live.step(x, first)
    if moved:
        raise Violation(f"{moved[0]} has another state after steps of a stream", DRAWS)


def _check_settings(subject: Subject) -> None:
    """Raise if a setting of torch differs from the one before the first call."""
    inputs, state, first = subject.inputs(44, steps=1), subject.used_state(), subject.no_resets(steps=1)
    changed = find_difference(subject.settings, settings())
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            subject.core(inputs.clone(), clone(state), first)
            changed = changed or ("whether gradients are on" if torch.is_grad_enabled() != enabled else None)
    if changed:
        raise Violation(
            f"{changed} differs after a call",
            "a call changes a setting of the whole program: set it outside, or within a context that restores it",
        )


@contextmanager
def _global_generators() -> Iterator[list[str]]:
    """Yield a list that has, at the end of the context, the names of global random generators whose state changed.

    They start with a seed of their own, because setting the same seed twice would change nothing.
    """
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    moved: list[str] = []
    try:
        torch.manual_seed(987_654)
        np.random.seed(987_654)
        random.seed(987_654)
        before = _generator_states()
        yield moved
        moved += [name for name, state in _generator_states().items() if state != before[name]]
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])


def _generator_states() -> dict[str, bytes]:
    return {
        "torch's global random generator": torch.get_rng_state().numpy().tobytes(),
        "NumPy's global random generator": pickle.dumps(np.random.get_state()),
        "Python's global random generator": pickle.dumps(random.getstate()),
    }


def weights(subject: Subject) -> str:
    """Check that changed weights are used by the next call: nothing is fused at the first call and kept."""
    meter = subject.comparison()
    cause = "weights are fused, packed or copied only at the first call: key the copy on `weight._version`"
    sizes = ((subject.batch, subject.steps), (1, 1), (subject.batch, 1), (1, subject.steps))
    ways = {
        "changed in place": change_weights,
        "loaded by load_state_dict": _reload,
        "changed by a step of an optimiser": _descend,
        "assigned to `weight.data`": _assign_data,
        "loaded by load_state_dict(assign=True)": _assign,
    }
    modes = [False] if subject.is_noisy or subject.options.quick else [False, True]
    if subject.options.quick:
        sizes = ((2, 2 * subject.steps // 3), (1, 1))
    for turn, (way, change) in enumerate(ways.items()):
        if turn == 3:  # new only for copies that are keyed on identity or version
            sizes, modes = sizes[:2], [False]
        if change is _descend and not subject.weights():
            continue  # no weight requires gradients
        module, new = (subject.cast(copy.deepcopy(subject.pristine)) for _ in range(2))
        used, clean = subject.variant(core=module), subject.variant(core=new)
        old = [out for _, out in _all_sizes(used, sizes, modes)]  # whatever is fused at a first call is fused now
        call_with_gradients(used)
        change(module, subject)
        new.load_state_dict(module.state_dict())
        moved = 0.0
        for (what, got), (_, want), before in zip(
            _all_sizes(used, sizes, modes), _all_sizes(clean, sizes, modes), old, strict=True
        ):
            meter.outputs(got, want, f"weights {way} against a new module with these weights, {what}", cause=cause)
            moved = max(moved, absolute_difference(got, before).max().item())
        (shown, left), (_, right) = call_with_gradients(used), call_with_gradients(clean)
        meter.gradients(left, right, f"weights {way} against a new module with these weights", BACKWARD)
        with torch.no_grad():
            meter.outputs(_short_call(used), shown, f"weights {way}, torch.no_grad against gradients on", cause=SHARED)
        if moved == 0 and subject.weights():
            raise Violation(f"the outputs stay exactly the same when all weights are {way}", cause)
        if subject.options.quick:
            break
    return f"weights {', '.join(ways)}: every call uses them, {meter.report()}"


def _short_call(subject: Subject, inputs: Tensor | None = None) -> Tensor:
    """Return the outputs of a few steps from a fresh memory."""
    inputs = subject.inputs(96, steps=3) if inputs is None else inputs
    return subject(inputs, subject.core.initial_state(subject.batch), subject.no_resets(steps=3))[0]


@torch.enable_grad()
def call_with_gradients(
    subject: Subject, during: AbstractContextManager[Any] | None = None
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Return the outputs of a short call, made in a context, and the gradients of its inputs and of the weights."""
    inputs = subject.inputs(96, steps=3).requires_grad_()
    with during or nullcontext():
        out = _short_call(subject, inputs)
    return out.detach(), gradients(probe(out, subject.generator(97)), {"inputs": inputs, **subject.weights()})


def _all_sizes(subject: Subject, sizes: Sequence[tuple[int, int]], modes: Sequence[bool]) -> list[tuple[str, Tensor]]:
    found = []
    for batch, steps in sizes:
        for training in modes:
            twin = subject.variant(batch=batch, is_training=training, grad=training)
            with torch.no_grad():
                state = clone(twin.core.initial_state(batch))
                out, state = twin(twin.inputs(93, steps=steps), state, twin.no_resets(steps=steps))
                out = torch.cat((out, twin(twin.inputs(94, steps=steps), state, twin.no_resets(steps=steps))[0]), 1)
            mode = "training" if training else "evaluation"
            found.append((f"calls of {steps} steps, {batch} rows, {mode} mode", out.detach()))
        if subject.has_stream:
            live, inputs = subject.new_stream(batch), subject.inputs(93, batch=batch, steps=2)
            found.append((f"new stream of {batch} rows", torch.stack([live.step(x) for x in inputs.unbind(1)], 1)))
    return found


@torch.no_grad()
def change_weights(module: nn.Module, subject: Subject) -> None:
    """Add noise to all weights, in place."""
    generator = subject.generator(95)
    for parameter in module.parameters():
        if is_continuous(parameter):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(parameter.dtype))


def _changed_copy(module: nn.Module, subject: Subject) -> nn.Module:
    other = copy.deepcopy(module)
    change_weights(other, subject)
    return other


def _reload(module: nn.Module, subject: Subject) -> None:
    module.load_state_dict(_changed_copy(module, subject).state_dict())


def _assign_data(module: nn.Module, subject: Subject) -> None:
    other = _changed_copy(module, subject)
    for old, new in zip(module.parameters(), other.parameters(), strict=True):
        old.data = new.data


def _assign(module: nn.Module, subject: Subject) -> None:
    module.load_state_dict(_changed_copy(module, subject).state_dict(), assign=True)


def _descend(module: nn.Module, subject: Subject) -> None:
    weights = [p for p in module.parameters() if p.requires_grad]
    for weight in weights:
        weight.grad = torch.full_like(weight, 0.1)
    torch.optim.SGD(weights, lr=1.0).step()
    for weight in weights:
        weight.grad = None
