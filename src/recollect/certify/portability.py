"""Lines about carrying a core elsewhere: half precision, files, compilers; and gradients for every weight."""

import copy
import io
import logging
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from recollect.certify.compare import Comparison, Violation
from recollect.certify.subject import TOLERANCES, Subject, float_leaves, gradients, probe
from recollect.state import clone, named_leaves, to

TRACED_STEPS = (1, 3)
"""Lengths of the calls that are compiled and exported: a loop over steps is traced once per step.
The memory is in use and rows stand at different places, so chunks end inside these calls too."""

BFLOAT16_DRIFT = 0.1
"""Relative root-mean-square drift that is still taken for rounding: about 25 roundings of bfloat16 that agree."""
BFLOAT16_DRIFT_DISCRETE = 0.5
"""The same for cores that choose: rounding flips choices that were close."""


def _single_inputs(subject: Subject, salt: int, **shape: int) -> Tensor:
    return subject.inputs(salt, **shape).float()


def _fresh_single(subject: Subject) -> Any:
    with torch.no_grad():
        return clone(to(subject.single.initial_state(subject.batch), dtype=torch.float32))


@torch.no_grad()
def bfloat16(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Autocast to bfloat16: finite, state dtypes kept, drift from float32 measured and within reason."""
    limit = BFLOAT16_DRIFT_DISCRETE if subject.discrete else BFLOAT16_DRIFT
    inputs, is_first = _single_inputs(subject, 61), subject.resets(62)
    want = _in_calls(subject, inputs, is_first)
    with torch.autocast("cpu", torch.bfloat16):
        got = _in_calls(subject, inputs, is_first)
    numbers = {"drift": _drift(got, want, "under autocast to bfloat16", limit)}
    detail = f"drift {numbers['drift']:.1%} of the outputs' size over {subject.steps} steps"
    if hasattr(subject.single, "stream"):
        make = subject.single.stream
        want = _in_steps(make(subject.batch), inputs, is_first)
        outside = make(subject.batch)
        with torch.autocast("cpu", torch.bfloat16):
            got = _in_steps(make(subject.batch), inputs, is_first)
            numbers["stream_drift"] = _drift(got, want, "of a stream made under autocast to bfloat16", limit)
            got = _in_steps(outside, inputs, is_first)
            _drift(got, want, "of a stream made before autocast to bfloat16 and used under it", limit)
        detail += f", {numbers['stream_drift']:.1%} in the stream"
    return f"{detail} (limit {limit:.0%})", numbers


def _in_calls(subject: Subject, inputs: Tensor, is_first: Tensor) -> Tensor:
    state = _fresh_single(subject)
    kept = [(name, leaf.dtype) for name, leaf in named_leaves(state)]
    parts = []
    for x, first in zip(inputs.split(16, 1), is_first.split(16, 1), strict=True):
        out, state = subject.single(x.clone(), state, first)
        parts.append(out.float())
    changed = [name for name, dtype in kept if dict(named_leaves(state))[name].dtype != dtype]
    if changed:
        raise Violation(
            f"state leaves {', '.join(changed)} change their dtype "
            + ("under autocast" if torch.is_autocast_enabled("cpu") else "in a call"),
            "cast what is written into the state back to the dtype of the state",
        )
    return torch.cat(parts, 1)


def _in_steps(live: Any, inputs: Tensor, is_first: Tensor) -> Tensor:
    steps = [live.step(x.clone(), first) for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True)]
    return torch.stack(steps, 1).float()


def _drift(got: Tensor, want: Tensor, what: str, limit: float) -> float:
    cause = "sums, norms, softmax or long recurrences run in bfloat16: compute those in float32"
    if not got.isfinite().all():
        bad = (~got.isfinite()).flatten(2).any(-1)
        step = int(bad.any(0).nonzero()[0])
        row = int(bad[:, step].nonzero()[0])
        raise Violation(f"outputs {what} are not finite from step {step}, row {row} on", cause)
    error = (got - want).flatten(2)
    drift = (error.square().mean().sqrt() / want.square().mean().sqrt().clamp(min=1e-6)).item()
    if drift > limit:
        row, step = divmod(int(error.abs().amax(-1).argmax()), error.shape[1])
        raise Violation(
            f"outputs {what} drift by {drift:.1%} of their size (limit {limit:.0%}); worst at step {step}, "
            f"row {row}, by {error[row, step].abs().max().item():.2g}",
            cause,
        )
    return drift


@torch.no_grad()
def save_load(subject: Subject) -> str:
    """state_dict into a new module, pickle of module and state, deepcopy: all continue with the same numbers."""
    meter = subject.comparison()
    inputs, is_first, state = subject.inputs(63), subject.resets(64), subject.used_state()
    want, end = subject(inputs, state, is_first)
    cause = "something that the output depends on is neither a parameter nor a buffer"
    for way, module in _copies(subject):
        got, last = module.to(subject.dtype).eval()(inputs.clone(), subject.used_state(), is_first)
        meter.outputs(got, want, f"a module made by {way}", cause=cause)
        meter.states(last, end, f"a module made by {way}", cause=cause)
    cause = "define the state's NamedTuple at the top level of a module, so that pickle finds it"
    try:
        restored = pickle.loads(pickle.dumps(state))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Violation(f"the state cannot be pickled: {error}", cause) from None
    meter.states(restored, state, "a state through pickle", cause=cause)
    made = "a new module" if subject.rebuild else "a copy with other weights"
    return f"state_dict (torch and safetensors) into {made}, pickle, deepcopy: {meter.report()}"


def _copies(subject: Subject) -> Iterator[tuple[str, nn.Module]]:
    yield "deepcopy", copy.deepcopy(subject.core)
    try:
        yield "pickle", pickle.loads(pickle.dumps(subject.core))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Violation(
            f"the module cannot be pickled: {error}", "a lambda or a local class is kept as an attribute of the module"
        ) from None
    weights = subject.core.state_dict()
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    yield "torch.save(state_dict)", _load(_other(subject), torch.load(file, weights_only=True))
    packed = safetensors.torch.save({name: w.detach().clone().contiguous() for name, w in weights.items()})
    yield "safetensors", _load(_other(subject), safetensors.torch.load(packed))


def _other(subject: Subject) -> nn.Module:
    """A module of the same config with other weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.seed + 987)
        if subject.rebuild is not None:
            return subject.rebuild().cpu().to(subject.dtype)
        other = copy.deepcopy(subject.core)
        for tensor in other.state_dict().values():
            if tensor.is_floating_point():
                tensor.normal_()
        return other


def _load(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise Violation(
            f"state_dict does not fit a new module: {' '.join(str(error).split())[:300]}",
            "parameters or buffers are made at the first call, or depend on something other than the config",
        ) from None
    return module


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    """A compiler without memory of earlier calls, whose warnings are left to the line's own message."""
    torch.compiler.reset()
    logging.disable(logging.CRITICAL)
    try:
        # On failure torch also prints the graph that it had.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()


def _first_line(error: BaseException) -> str:
    """What the compiler complains about, without its pages of context."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _trial(subject: Subject, salt: int, steps: int) -> tuple[Tensor, Any, Tensor]:
    """Arguments of a call; always new tensors."""
    state = to(subject.used_state(salt), dtype=torch.float32)
    return _single_inputs(subject, salt, steps=steps), state, subject.resets(salt + 1, steps=steps)


@torch.no_grad()
def compiled(subject: Subject) -> str:
    """torch.compile of the whole graph gives the same numbers, for one step and for several."""
    meter = Comparison(10 * TOLERANCES[torch.float32])
    cause = "compiled code takes another path than eager code (a branch on is_compiling, or on a value seen once)"
    with _quiet_compiler():
        for steps in TRACED_STEPS:
            model = torch.compile(subject.single, fullgraph=True, dynamic=False, backend=subject.options.backend)
            for salt in (71, 73):  # the second call has other values: nothing may be burnt into the graph
                want, end = subject.single(*_trial(subject, salt, steps))
                try:
                    got, last = model(*_trial(subject, salt, steps))
                except Exception as error:  # the compiler raises many types; all mean the same here
                    raise Violation(
                        f"torch.compile(fullgraph=True, backend={subject.options.backend!r}) of {steps} steps: "
                        f"{type(error).__name__}: {_first_line(error)}",
                        "a Python branch or loop that depends on the value of a tensor (.item(), .any(), nonzero)",
                    ) from None
                what = f"compiled against eager, {steps} steps"
                meter.outputs(got, want, what, cause=cause)
                meter.states(last, end, what, step=steps - 1, cause=cause)
    return f"fullgraph, backend {subject.options.backend}, calls of 1 and 3 steps: {meter.report()}"


@torch.no_grad()
def export(subject: Subject) -> str:
    """torch.export of one step and of several gives the same numbers, with the state going in and out."""
    meter = Comparison(10 * TOLERANCES[torch.float32])
    with _quiet_compiler():
        for steps in TRACED_STEPS:
            try:
                program = torch.export.export(subject.single, _trial(subject, 75, steps), strict=False)
            except Exception as error:  # as above
                raise Violation(
                    f"torch.export of {steps} steps: {type(error).__name__}: {_first_line(error)}",
                    "a Python branch that depends on the value of a tensor, or a state that is not a NamedTuple",
                ) from None
            model = program.module()
            for salt in (75, 77):
                want, end = subject.single(*_trial(subject, salt, steps))
                got, last = model(*_trial(subject, salt, steps))
                what = f"exported against eager, {steps} steps"
                cause = "a value of the example inputs is burnt into the exported program"
                meter.outputs(got, want, what, cause=cause)
                meter.states(last, end, what, step=steps - 1, cause=cause)
    return f"calls of 1 and 3 steps: {meter.report()}"


def every_gradient(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Every weight gets a finite gradient."""
    weights = subject.weights()
    loss: Tensor | float = 0.0
    for salt in (81, 83):
        out, end = subject(subject.inputs(salt), subject.core.initial_state(subject.batch), subject.resets(salt + 1))
        loss = loss + probe(out, subject.generator(salt))
        for leaf in float_leaves(end):
            loss = loss + probe(leaf, subject.generator(salt))
    assert isinstance(loss, Tensor)
    found = gradients(loss, weights)
    zero = []
    for name, gradient in found.items():
        if gradient is None:
            raise Violation(
                f"{name} gets no gradient from {subject.steps} steps",
                "the weight has no part in the output, or a detach or a no_grad cuts it off",
            )
        if not gradient.isfinite().all():
            raise Violation(f"the gradient of {name} is not finite", "a division, root or logarithm meets zero")
        if not gradient.any():
            zero.append(name)  # right where a softmax has one thing to choose from
    detail = f"all {len(weights)} weights get a finite gradient from {subject.steps} steps"
    return detail + (f"; exactly zero: {', '.join(zero)}" if zero else ""), {"zero": zero}
