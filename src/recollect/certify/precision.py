"""Lines about precision: float32 is float32 throughout, and the drift of bfloat16 and float16 is small."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from recollect.certify.comparison import (
    Comparison,
    NotApplicable,
    Violation,
    absolute_difference,
    first_place,
    is_continuous,
    per_step,
    scale,
)
from recollect.certify.equivalence import run_split
from recollect.certify.hidden_state import call_with_gradients, change_weights
from recollect.certify.subject import TOLERANCES, Subject
from recollect.state import clone, leaves, map_state, named_leaves

BFLOAT16_DRIFT = 0.1
"""Largest relative root-mean-square drift by rounding: about 25 roundings of bfloat16 in the same direction."""
FLOAT16_DRIFT = BFLOAT16_DRIFT / 8  # the same number of roundings of float16, which has three bits more

LAST_DIGIT = 2.0**-24
AMPLIFICATION = 32
"""Accepted float32 error relative to the effect of the last digit of weights, inputs and memory, because every
intermediate sum rounds again."""

CAST = (
    "weights were cast once and kept, or a hand-written backward pass meets two dtypes: cast anew in each call, and "
    "decorate with torch.amp.custom_fwd and custom_bwd"
)


def rounding(subject: Subject) -> float:
    """Return the relative difference that float32 rounding explains: 1e-5, or more if a core amplifies the last digit.

    Weights, inputs and the incoming memory are changed by one unit of their last digit; no float32 computation can be
    more accurate than the resulting change of the outputs times :data:`AMPLIFICATION`.
    """
    if "rounding" not in subject.cache:
        double = subject.in_float64()
        inputs, is_first, state = double.inputs(141), double.resets(142), double.used_state(9)
        moved = [0.0]
        with torch.no_grad():
            want, last = double(inputs, state, is_first)
            kept = {name: p.clone() for name, p in double.core.named_parameters()}
            for salt in (143, 144):
                generator = double.generator(salt)
                for p in double.core.parameters():
                    p.copy_(_nudge(p, generator))
                other = map_state(lambda leaf, g=generator: _nudge(leaf, g), state)
                got, end = double(_nudge(inputs, generator), other, is_first)
                for name, p in double.core.named_parameters():
                    p.copy_(kept[name])
                pairs = [(got, want), *zip(leaves(end), leaves(last), strict=True)]
                moved += [
                    absolute_difference(a, b).max().item() / scale(b)
                    for a, b in pairs
                    if a.numel() and is_continuous(a)
                ]
        finite = [size for size in moved if size < float("inf")]
        subject.cache["rounding"] = max(TOLERANCES[torch.float32], AMPLIFICATION * max(finite))
    return subject.cache["rounding"]


def _nudge(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not is_continuous(tensor):
        return tensor
    sign = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.dtype) * 2 - 1
    return tensor * (1 + LAST_DIGIT * sign)


@torch.no_grad()
def float32(subject: Subject) -> str:
    """Check that calls, single steps and stream in float32 equal those in float64 up to rounding."""
    single = subject.variant(core=subject.single, dtype=torch.float32, brief=False)
    double = subject.in_float64()
    limit = 3 * rounding(subject)
    meter = Comparison(limit)
    modes = {"evaluation": {}} | ({} if subject.is_noisy else {"training": {"is_training": True, "grad": True}})
    for mode, changes in modes.items():
        for batch in (3,) if subject.options.quick else (subject.batch, 1):
            ones, twos = single.variant(batch=batch, **changes), double.variant(batch=batch, **changes)
            # The same float32 numbers on both sides.
            inputs, is_first = ones.inputs(145), ones.resets(146)
            state = ones.used_state(10)
            with torch.no_grad():
                want, last = twos(inputs.double(), _like(state, double.core, batch), is_first)
            cause = "a part of the float32 module computes in reduced precision (half, bfloat16, TF32)"
            got, end = ones(inputs, state, is_first)
            what = f"float32 against float64, {subject.steps} steps of {batch} rows, {mode} mode"
            _close(subject, meter, got, want, what, cause)
            if not subject.discrete:
                meter.states(end, last, what, step=subject.steps - 1, cause=cause)
            if mode == "training" or (subject.options.quick and not subject.has_stream):
                continue
            want = twos(inputs.double(), _like(ones.fresh_state(), double.core, batch), is_first)[0]
            few = 8 if subject.options.quick else subject.steps
            got, _ = run_split(ones, inputs[:, :few], ones.fresh_state(), is_first[:, :few], [1] * few)
            _close(subject, meter, got, want[:, :few], f"{what}, calls of one step", cause)
            if subject.has_stream:
                got = _in_steps(ones.new_stream(batch), inputs, is_first)
                _close(subject, meter, got, want, f"{what}, stream", cause)
    return f"calls, single steps and stream against float64 (limit {limit:.0e}): {meter.report()}"


def _like(state: Any, core: Any, batch: int) -> Any:
    """Convert a state to the dtypes of another module's states."""
    return map_state(lambda leaf, like: leaf.to(like.dtype), state, core.initial_state(batch))


def _close(subject: Subject, meter: Comparison, got: Tensor, want: Tensor, what: str, cause: str) -> None:
    """Compare at the limit; in a core with discrete choices, rounding may flip those of some steps, but not of most."""
    try:
        meter.outputs(got, want, what, cause=cause)
    except Violation as found:
        if subject.discrete and found.share < 0.5:
            return
        raise


@torch.no_grad()
def bfloat16(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that under autocast to bfloat16 outputs are finite, state dtypes are kept, and the drift is small."""
    inputs, is_first = subject.inputs(61).float(), subject.resets(62)
    want = _in_calls(subject.single, inputs, is_first)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            got = _in_calls(subject.single, inputs, is_first)
    except RuntimeError as error:
        if any(isinstance(child, nn.RNNBase | nn.RNNCellBase) for child in subject.single.modules()):
            raise NotApplicable(f"nn.LSTM, nn.GRU and their cells do not run under autocast here: {error}") from None
        raise
    numbers = {"drift": _drift(subject, got, want, "under autocast to bfloat16")}
    _training_under_autocast(subject)
    detail = f"drift {numbers['drift']:.1%} of the outputs' size over {subject.steps} steps"
    if subject.has_stream:
        make = subject.single.stream
        want = _in_steps(make(subject.batch), inputs, is_first)
        outside = make(subject.batch)
        with torch.autocast("cpu", torch.bfloat16):
            got = _in_steps(make(subject.batch), inputs, is_first)
            numbers["stream_drift"] = _drift(subject, got, want, "of a stream made under autocast to bfloat16")
            got = _in_steps(outside, inputs, is_first)
            _drift(subject, got, want, "of a stream made before autocast to bfloat16 and used under it")
            inside = make(subject.batch)
        got = _in_steps(inside, inputs, is_first)
        _drift(subject, got, want, "of a stream made under autocast to bfloat16 and used after it")
        detail += f", {numbers['stream_drift']:.1%} in the stream"
    return f"{detail} (limit {BFLOAT16_DRIFT:.0%}{_which_steps(subject)})", numbers


def _training_under_autocast(subject: Subject) -> None:
    """Check that every weight that gets a gradient in float32 gets a finite one, and that changed weights are used."""
    used, new = (subject.variant(core=copy.deepcopy(subject.pristine), dtype=torch.float32) for _ in range(2))
    want = call_with_gradients(new)[1]
    try:
        found = call_with_gradients(used, torch.autocast("cpu", torch.bfloat16))[1]
    except RuntimeError as error:
        if any(isinstance(child, nn.RNNBase | nn.RNNCellBase) for child in used.core.modules()):
            return  # torch's, which have no such kernel everywhere
        message = " ".join(str(error).split())[:200]
        raise Violation(f"the gradients of a call under autocast to bfloat16 fail: {message}", CAST) from None
    for name, gradient in found.items():
        if want[name] is not None and (gradient is None or not gradient.isfinite().all()):
            kind = "no gradient" if gradient is None else "a gradient that is not finite"
            raise Violation(f"{name} gets {kind} under autocast to bfloat16, and a finite one in float32", CAST)
    change_weights(used.core, subject)
    new.core.load_state_dict(used.core.state_dict())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        call = used.inputs(61, steps=3), used.fresh_state(), used.no_resets(steps=3)
        outputs = [twin(*call)[0] for twin in (used, new)]
    what = "weights changed in place against a new module with these weights, under autocast to bfloat16"
    Comparison(TOLERANCES[torch.float32]).outputs(outputs[0], outputs[1], what, cause=CAST)


@torch.no_grad()
def float16(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Check that in float16, calls, single steps and stream are finite, keep the state's dtypes and agree."""
    if not getattr(subject.core, "runs_in_float16", False):
        raise NotApplicable("the module does not declare runs_in_float16 = True")
    module = copy.deepcopy(subject.single).half()
    inputs, is_first = subject.inputs(61).float().half(), subject.resets(62)
    want = _in_calls(subject.single, inputs.float(), is_first)
    calls = _in_calls(module, inputs, is_first)
    others = {"single steps": _in_calls(module, inputs, is_first, 1)}
    if subject.has_stream:
        others["a stream"] = _in_steps(module.stream(subject.batch), inputs, is_first)
    drift = _drift(subject, calls, want, "of calls in float16", FLOAT16_DRIFT)
    numbers, parts = {"drift": drift}, [f"calls drift by {drift:.2%} of the outputs' size from float32"]
    for way, got in others.items():
        apart = _drift(subject, got, calls, f"of {way} in float16, against its calls,", FLOAT16_DRIFT)
        numbers[f"{way.split()[-1]}_apart"] = apart
        parts.append(f"{way} by {apart:.2%} from these")
    return f"{', '.join(parts)} (limit {FLOAT16_DRIFT:.2%}{_which_steps(subject)})", numbers


def _which_steps(subject: Subject) -> str:
    return " in the better half of the steps" if subject.discrete else ""


def _in_calls(core: Any, inputs: Tensor, is_first: Tensor, size: int = 16) -> Tensor:
    """Return the outputs of calls of ``size`` steps, and before them of one step."""
    whole, rest = divmod(inputs.shape[1] - 1, size)
    sizes = [1, *[size] * whole, *[rest] * (rest > 0)]
    state = clone(core.initial_state(len(inputs)))
    kept = [(name, leaf.dtype) for name, leaf in named_leaves(state)]
    parts = []
    for x, first in zip(inputs.split(sizes, 1), is_first.split(sizes, 1), strict=True):
        out, state = core(x.clone(), state, first)
        parts.append(out.float())
        leaves_now = dict(named_leaves(state))
        changed = [name for name, dtype in kept if leaves_now[name].dtype != dtype]
        if changed:
            where = "under autocast" if torch.is_autocast_enabled("cpu") else f"in {inputs.dtype}"
            raise Violation(
                f"state leaves {', '.join(changed)} change their dtype in a call of {x.shape[1]} steps {where}",
                "cast what is written into the state to the dtype of the state",
            )
    return torch.cat(parts, 1)


def _in_steps(live: Any, inputs: Tensor, is_first: Tensor) -> Tensor:
    steps = [live.step(x.clone(), first) for x, first in zip(inputs.unbind(1), is_first.unbind(1), strict=True)]
    return torch.stack(steps, 1).float()


def _drift(subject: Subject, got: Tensor, want: Tensor, what: str, limit: float = BFLOAT16_DRIFT) -> float:
    """Return the drift over all steps; limited is that of all of them, or of the better half for discrete choices.

    Rounding flips close choices, and the error of a flipped choice is unbounded: flips in some steps are no finding,
    flips in most steps are (as in :func:`_close`).
    """
    cause = "sums, norms, softmax or long recurrences run in half precision: compute them in float32"
    if not got.isfinite().all():
        step, row = first_place(per_step(~got.isfinite()).any(-1))
        raise Violation(f"outputs {what} are not finite from step {step}, row {row} on", cause)
    error = per_step(got - want)
    size = want.square().mean().sqrt().clamp(min=1e-6)
    drift = (error.square().mean().sqrt() / size).item()
    steps = error.square().mean(-1).flatten().sort().values
    limited = (steps[: (len(steps) + 1) // 2].mean().sqrt() / size).item() if subject.discrete else drift
    if limited > limit:
        row, step = divmod(int(error.abs().amax(-1).argmax()), error.shape[1])
        raise Violation(
            f"outputs {what} drift by {limited:.1%} of their size (limit {100 * limit:.3g}%); worst at step {step}, "
            f"row {row}, by {error[row, step].abs().max().item():.2g}",
            cause,
        )
    return drift
