"""Lines about portability: files, copies, devices and compilers."""

import copy
import io
import logging
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from recollect.certify.comparison import Comparison, NotApplicable, Violation
from recollect.certify.random_sizes import size_generator
from recollect.certify.subject import TOLERANCES, Subject
from recollect.cores.contract import MemoryCore
from recollect.export.selftest import open_onnx
from recollect.export.step import ModelStep, one_step
from recollect.export.trace import FixedBatchError, to_onnx, trace, trace_fixed
from recollect.ops.torch_internals import allow_recurrent_layers
from recollect.state import map_state, named_leaves

TRACED_STEPS = (1, 3)
"""Lengths of the compiled and exported calls: a loop over steps is traced once per step. The memory is in use and rows
are at different steps of their episodes, so chunks end inside these calls too."""

DEVICE = "a tensor is made on torch's default device: give it the device of a weight, or of the inputs"


@torch.no_grad()
def save_load(subject: Subject) -> str:
    """Check that a module from state_dict, pickle or deepcopy, and a pickled state, continue with the same numbers."""
    meter = subject.comparison()
    inputs, is_first, state = subject.inputs(63), subject.resets(64), subject.used_state()
    want = subject(inputs, state, is_first)
    cause = "the output depends on data that is neither a parameter nor a buffer"
    for way, module in _copies(subject):
        got = subject.cast(module).eval()(inputs.clone(), subject.used_state(), is_first)
        meter.results(got, want, f"a module made by {way}", cause=cause)
    twin = copy.deepcopy(subject.core)
    for parameter in twin.parameters():
        parameter.zero_()
    twin(inputs.clone(), subject.used_state(), is_first)
    cause = "the copy shares weights or a cache with the original, through a closure"
    got = subject(inputs, state, is_first)
    meter.outputs(got[0], want[0], "a module whose deepcopy got other weights", cause=cause)
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
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise Violation(
            f"the module cannot be pickled: {error}",
            "a lambda or a local class is an attribute of the module, or a weight is parametrized, which torch "
            "saves in a state_dict only",
        ) from None
    weights = subject.core.state_dict()
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    yield "torch.save(state_dict)", _load(other_module(subject), torch.load(file, weights_only=True))
    if any(weight.layout != torch.strided for weight in weights.values()):
        return  # such a file holds no sparse tensors
    packed = safetensors.torch.save({name: w.detach().clone().contiguous() for name, w in weights.items()})
    yield "safetensors", _load(other_module(subject), safetensors.torch.load(packed))


def other_module(subject: Subject) -> nn.Module:
    """Make a module of the same config with other weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.seed + 987)
        if subject.rebuild is not None:
            return subject.cast(subject.rebuild().cpu())
        other = copy.deepcopy(subject.core)
        for tensor in other.state_dict().values():
            if tensor.is_floating_point() and tensor.layout == torch.strided:
                tensor.normal_()
        return other


def _load(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise Violation(
            f"state_dict does not fit a new module: {' '.join(str(error).split())[:300]}",
            "parameters or buffers are made at the first call, or depend on more than the config",
        ) from None
    return module


@torch.no_grad()
def device(subject: Subject) -> str:
    """Check that all tensors move to another device with the weights; tested on torch's meta device."""
    module = copy.deepcopy(subject.single)
    if not [*module.parameters(), *module.buffers()]:
        raise NotApplicable("the module has no tensors")
    done = []
    try:
        module.to("meta")
        state = module.initial_state(subject.batch)
        done.append("initial_state")
        _all_on_meta(state, f"initial_state({subject.batch})")
        for steps in TRACED_STEPS:
            call = (subject.inputs(65, steps=steps).float(), subject.resets(66)[:, :steps])
            inputs, is_first = (tensor.to("meta") for tensor in call)
            done.append(f"a call of {'one step' if steps == 1 else f'{steps} steps'}")
            output, end = module(inputs, state, is_first)
            _all_on_meta(end, f"the state after {done[-1]}")
            _all_on_meta(output, f"the output of {done[-1]}")
    except Violation:
        raise
    except Exception as error:  # a user-defined module may raise anything on the meta device
        mixed = all(word in str(error) for word in ("cpu", "meta", "devic"))
        if mixed and not isinstance(error, NotImplementedError):
            raise Violation(f"{done[-1] if done else 'initial_state'}: {first_line(error)}", DEVICE) from None
        tested = ", ".join(done[:-1]) or "weights"
        return f"{tested}; the rest needs values, which the meta device has not ({first_line(error)})"
    return f"{', '.join(done)}: all tensors move"


def _all_on_meta(state: Any, what: str) -> None:
    for name, leaf in named_leaves(state):
        if not leaf.is_meta:
            raise Violation(
                f"{what}{name and '.'}{name} is on {leaf.device}, the weights are on another device", DEVICE
            )


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    """Reset the compiler and silence its output within a context."""
    torch.compiler.reset()
    logging.disable(logging.CRITICAL)
    try:
        # On failure torch also prints its graph.
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            allow_recurrent_layers(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()


def first_line(error: BaseException) -> str:
    """Return the first line of an error of the compiler, without its pages of context."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _trial(subject: Subject, salt: int, steps: int) -> tuple[Tensor, Any, Tensor]:
    """Return new tensors as arguments of a call."""
    like = subject.single.initial_state(subject.batch)  # leaves may be of several dtypes
    state = map_state(lambda leaf, own: leaf.to(own.dtype), subject.used_state(salt), like)
    return subject.inputs(salt, steps=steps).float(), state, subject.resets(salt + 1, steps=steps)


@torch.no_grad()
def compiled(subject: Subject) -> str:
    """Check that torch.compile of the whole graph gives the same numbers, for one step and for several."""
    meter = Comparison(10 * TOLERANCES[torch.float32])
    backend = subject.options.backend
    cause = "compiled code takes another path than eager code (a branch on is_compiling, or on a value at tracing time)"
    with _quiet_compiler():
        for steps in TRACED_STEPS:
            model = torch.compile(subject.single, fullgraph=True, dynamic=False, backend=backend)
            for salt in (71, 73):  # the second call has other values, which must not be constants of the graph
                want = subject.single(*_trial(subject, salt, steps))
                try:
                    got = model(*_trial(subject, salt, steps))
                except Exception as error:  # the compiler raises many types, with one meaning here
                    what = f"torch.compile(fullgraph=True, backend={backend!r}) of {steps} steps"
                    raise _failure(what, error, _compile_cause(subject.single)) from None
                meter.results(got, want, f"compiled against eager, {steps} steps", cause=cause)
    rnn = any(isinstance(module, nn.RNNBase) for module in subject.single.modules())
    need = " (nn.LSTM and nn.GRU need allow_rnn = True in the config of dynamo, which was set)" if rnn else ""
    return f"fullgraph, backend {backend}, calls of 1 and 3 steps: {meter.report()}{need}"


def _failure(what: str, error: Exception, cause: str) -> Violation:
    return Violation(f"{what}: {type(error).__name__}: {first_line(error)}", cause)


def _compile_cause(module: nn.Module) -> str:
    if any(isinstance(child, nn.RNNBase) for child in module.modules()):
        return (
            "nn.LSTM and nn.GRU are compiled only with dynamo's config.allow_rnn = True, and not everywhere: use "
            'recollect\'s LSTM and GRU, or exemptions = {"compile": "nn.LSTM"}'
        )
    return "a Python branch or loop that depends on the value of a tensor (.item(), .any(), nonzero)"


@torch.no_grad()
def export(subject: Subject) -> str:
    """Check that torch.export of one step takes any number of rows, and of several steps gives the same numbers.

    The state is input and output. A thorough certificate also runs one step in onnxruntime, where that is installed.
    """
    meter = Comparison(10 * TOLERANCES[torch.float32])
    draws = size_generator(subject, "export")
    many, steps, mode = draws.randint(*MANY_ROWS), draws.randint(*MANY_STEPS), draws.choice(list(TRACE_MODES))
    numbers, steps = ((1, 3), TRACED_STEPS[-1]) if subject.options.quick else ((1, 3, many), steps)
    with _quiet_compiler():
        told = _export_one_step(subject, meter, numbers)
        example = _trial(subject, 75, steps)
        try:
            with TRACE_MODES[mode]():
                model = torch.export.export(subject.single, example, strict=False).module()
        except Exception as error:  # as above
            why = "a Python branch that depends on the value of a tensor, or a state that is not a NamedTuple"
            raise _failure(f"torch.export of {steps} steps", error, why) from None
        for salt in (75, 77):
            want = subject.single(*_trial(subject, salt, steps))
            got = model(*_trial(subject, salt, steps))
            meter.results(got, want, f"exported against eager, {steps} steps", cause=CONSTANT)
    drawn = "" if subject.options.quick else f"; drawn: {many} rows, {steps} steps, traced with {mode}"
    return f"one step of {', '.join(map(str, numbers))} rows{told}, and {steps} steps: {meter.report()}{drawn}"


MANY_ROWS = (130, 300)
"""Range of rows, of which one number is drawn; the program was traced with three, and also runs one."""
MANY_STEPS = (9, 10)
"""Range of the steps of another program, above eight: a loop over steps is traced once per step."""
TRACE_MODES: dict[str, Callable[[], Any]] = {"gradients off": torch.no_grad, "gradients on": torch.enable_grad}

FIXED_ROWS = (
    "a Python branch that depends on the number of rows or on the value of a tensor (ask is_compiling() first), or "
    "len(tensor), which is a fixed number: write tensor.shape[0]"
)
CONSTANT = (
    "a value of the example inputs became a constant of the exported program, or initial_state returns one "
    "tensor as several leaves: clone it"
)


def _export_one_step(subject: Subject, meter: Comparison, numbers: Sequence[int]) -> str:
    """Compare exported programs of one step with the core; return the runtimes, as the end of a sentence."""
    _require_own_memory(subject.single.initial_state(subject.batch))
    step = one_step(subject.single, input_shape=subject.input_shape)
    runs, told = _programs(subject, step)
    for rows in numbers:
        twin = subject.variant(batch=rows)
        inputs, state, is_first = _trial(twin, 75, 1)
        if rows == 1:
            is_first = twin.no_resets(steps=1)  # a single step would always be the last one, which resets
        want = subject.single(inputs, state, is_first)
        for name, run in runs.items():
            try:
                outputs, *kept = run(rows)(inputs[:, 0], is_first[:, 0], *step.pack(state))
            except Exception as error:  # of a runtime
                why = "initial_state returns views, and the program takes nothing else: use repeat, not expand"
                raise _failure(f"the program in {name} rejects {rows} rows", error, why) from None
            what = f"{name} against eager, one step of {rows} rows"
            meter.results((outputs[:, None], step.unpack(kept, rows)), want, what, cause=CONSTANT)
    return told


Program = Callable[..., Sequence[Tensor]]


def _programs(subject: Subject, step: ModelStep) -> tuple[dict[str, Callable[[int], Program]], str]:
    """Return functions from a number of rows to a program, by runtime, and a note for the card.

    One program must take any number of rows. Only modules that do not inherit ``MemoryCore`` may need one for each
    number: ``len(tensor)`` alone fixes it in a program, and no promise of the contract forbids that.
    """
    try:
        program = trace(step)
    except FixedBatchError as error:
        if isinstance(subject.single, MemoryCore):
            raise Violation(str(error), FIXED_ROWS) from None
        return {"torch.export": lambda rows: _traced(step, rows)}, f" (one program for each number: {error})"
    except ValueError as error:
        raise Violation(str(error), FIXED_ROWS) from None
    module = program.module()
    runs: dict[str, Callable[[int], Program]] = {"torch.export": lambda _: module}
    if not subject.options.thorough:
        return runs, ""
    found = _onnx_session(program, step)
    if isinstance(found, str):
        return runs, f" (not in onnxruntime: {found})"
    return {**runs, "onnxruntime": lambda _: found}, " (torch and onnxruntime)"


def _traced(step: ModelStep, rows: int) -> Program:
    try:
        return trace_fixed(step, rows).module()
    except ValueError as error:
        raise Violation(str(error), FIXED_ROWS) from None


def _require_own_memory(state: Any) -> None:
    """Raise ``Violation`` where leaves of an initial state are views: a program takes nothing else after them."""
    seen: dict[int, str] = {}
    for name, leaf in named_leaves(state):
        if not leaf.numel():
            continue
        place = leaf.untyped_storage().data_ptr()
        repeats = any(size > 1 and not stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
        if repeats or place in seen:
            what = "repeats one row" if repeats else f"shares its memory with state.{seen[place]}"
            raise Violation(
                f"initial_state: state.{name} {what}", "use repeat, not expand, and clone what is used twice"
            )
        seen[place] = name


def _onnx_session(program: Any, step: ModelStep) -> Any:
    """Return a function that runs the program in onnxruntime, or why there is none."""
    if find_spec("onnxruntime") is None:
        return "it is not installed"
    try:
        session = open_onnx(to_onnx(program, step), step)
    except ValueError as error:
        return str(error)
    return lambda *tensors: [torch.as_tensor(out) for out in session([tensor.numpy() for tensor in tensors])]
