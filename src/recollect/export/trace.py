"""A step as a program of torch.export whose batch is free, and that program as ONNX or compiled ahead of time."""

import logging
import re
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.fx.experimental.symbolic_shapes
from torch.export import Dim, ExportedProgram

from recollect.config import require
from recollect.export.step import ModelStep
from recollect.ops.torch_internals import compile_ahead_of_time, single_step_decompositions

Format = Literal["onnx", "pt2", "aoti"]
FORMATS: tuple[Format, ...] = get_args(Format)
ONNX_PACKAGES = ("onnx", "onnxscript")
TRACED_ROWS = 3  # rows of the example; 1 and 2 have meanings of their own in broadcasts


class FixedBatchError(ValueError):
    """A model can be traced for some batch sizes only."""


def require_format(format: str) -> None:
    """Raise ``ValueError`` for an unknown format, or one whose packages are missing."""
    require(format in FORMATS, "format", format, f"choose one of {', '.join(FORMATS)}")
    absent = [name for name in ONNX_PACKAGES if find_spec(name) is None] if format == "onnx" else []
    if absent:
        raise ValueError(f"format='onnx' needs {' and '.join(absent)}: pip install 'recollect-torch[export]'")


def trace(step: ModelStep) -> ExportedProgram:
    """Trace a step with a batch of any size.

    Raises:
        FixedBatchError: the model can be traced for some batch sizes only; one line, with the place in the code.
        ValueError: it cannot be traced; one line, with torch's reason.
    """
    example = _example(step, TRACED_ROWS)
    name = type(step.model).__name__
    # A named Dim must hold for all sizes when it is declared, and fails where torch assumes 2 rows or more. It does not
    # enforce that assumption: programs run with 1 row as well.
    free = ({0: Dim.DYNAMIC},) * len(example)
    try:
        with torch.no_grad(), quiet():
            program = torch.export.export(step, example, dynamic_shapes=(free,), strict=False)
    except Exception as error:  # whatever a model's own code raises under the tracer
        if "specialized it to be a constant" in str(error):
            raise FixedBatchError(f"model={name}: only a batch of fixed size{_branch(step, example, free)}") from error
        raise ValueError(f"model={name}: torch.export fails: {_reason(error)}") from error
    if bounds := batch_bounds(program):
        raise FixedBatchError(f"model={name}: only {bounds}{_branch(step, example, free)}")
    return program


def trace_fixed(step: ModelStep, rows: int) -> ExportedProgram:
    """Trace a step with a batch of one size.

    Raises:
        ValueError: the model cannot be traced; one line, with torch's reason.
    """
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(step, _example(step, rows), strict=False)
    except Exception as error:  # as above
        raise ValueError(f"model={type(step.model).__name__}: torch.export fails: {_reason(error)}") from error


def _example(step: ModelStep, rows: int) -> tuple[torch.Tensor, ...]:
    generator, states = torch.Generator().manual_seed(0), step.initial(rows)
    return (*(port.draw(rows, generator) for port in step.inputs[: len(step.inputs) - len(states)]), *states)


class _Guards(logging.Handler):
    """Collects what torch decides from sizes, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a comparison of a size with a number, and its place."""
        told = re.search(r"eval (.+?) \[guard added\] \((\S+:\d+) in", record.getMessage())
        if told and re.search(r"\d", re.sub(r"s\d+", "", told[1])):
            self.found.append((told[1], told[2]))


def _branch(step: ModelStep, example: tuple[torch.Tensor, ...], free: Any) -> str:
    """Trace again, and return the first place where a size decides, as the end of a message."""
    log, guards = logging.getLogger(torch.fx.experimental.symbolic_shapes.__name__), _Guards()
    before, disabled = (log.level, log.propagate, log.handlers), logging.root.manager.disable
    log.propagate, log.handlers = False, [guards]
    log.setLevel(logging.INFO)
    try:
        with torch.no_grad(), quiet():
            logging.disable(logging.NOTSET)
            torch.export.export(step, example, dynamic_shapes=(free,), strict=False)
    except Exception:  # the one that is being explained
        pass
    finally:
        log.propagate, log.handlers = before[1:]
        log.setLevel(before[0])
        logging.disable(disabled)
    where = f" at {guards.found[0][1]} ({guards.found[0][0]})" if guards.found else ""
    return f": a branch depends on the number of rows{where}"


def batch_bounds(program: ExportedProgram) -> str:
    """Return the batch sizes that a program is restricted to, in words; empty where it takes all.

    A lower bound of 2 is torch's own assumption in tracing, which it does not enforce.
    """
    given = set(program.graph_signature.user_inputs)
    places = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]
    sizes = [node.meta["val"].shape[0] for node in places]
    fixed = [size for size in sizes if isinstance(size, int)]
    if fixed:
        return f"a batch of {fixed[0]}"
    for interval in program.range_constraints.values():
        if interval.lower > 2 or interval.upper < 2**31:
            return f"a batch from {interval.lower} to {interval.upper}"
    return ""


def to_onnx(program: ExportedProgram, step: ModelStep) -> bytes:
    """Convert a program to ONNX, with the names of the step and the batch as the axis ``batch``.

    Raises:
        ValueError: there is no ONNX operation for a part of the model; one line.
    """
    require_format("onnx")
    names, single = [port.name for port in step.inputs], single_step_decompositions()
    try:
        with torch.no_grad(), quiet():
            # The exporter decomposes again, so this is left out where nothing needs it.
            lowered = program.run_decompositions(single) if _has_any(program, single) else program
            made = torch.onnx.export(
                lowered, (), dynamo=True, verbose=False, input_names=names, output_names=list(step.outputs)
            )
    except Exception as error:  # the exporter wraps errors of many types
        raise ValueError(f"format='onnx': {type(step.model).__name__}: {_reason(error)}") from error
    assert made is not None
    model = made.model_proto
    (size,) = {str(symbol) for symbol in program.range_constraints}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = re.sub(rf"\b{size}\b", "batch", axis.dim_param)
    return model.SerializeToString()


def _has_any(program: ExportedProgram, operators: Container[Any]) -> bool:
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    return any(node.target in operators for graph in graphs for node in graph.nodes if node.op == "call_function")


def write_program(program: ExportedProgram, step: ModelStep, path: Path, format: Format) -> None:
    """Write a program to a file in one of :data:`FORMATS`.

    Raises:
        ValueError: it cannot be converted; one line.
    """
    if format == "onnx":
        path.write_bytes(to_onnx(program, step))
    elif format == "pt2":
        with quiet():
            torch.export.save(program, path)
    else:
        try:
            with torch.no_grad(), quiet():
                compile_ahead_of_time(program, path)
        except Exception as error:  # of the compiler, or of the C++ compiler that it starts
            raise ValueError(f"format='aoti': {type(step.model).__name__}: {_reason(error)}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters, which warn of optional packages and print whole graphs on failure."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _reason(error: BaseException) -> str:
    """Return the innermost cause of an exporter's error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0][:240]}"
