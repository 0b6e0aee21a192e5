"""Recorded steps of a model, with resets, and their replay by an exported program."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch

from recollect.export.step import IS_FIRST, ModelStep
from recollect.export.trace import Format
from recollect.ops.torch_internals import load_compiled

STEPS = 200
ROWS = 3
RESETS = 0.05  # share of steps that begin an episode
MOST_BYTES = 4_000_000  # of inputs; a self-test of large frames has one row
TOLERANCE = 1e-4
"""Largest difference of an exported program, relative to the largest number of that output in all recorded steps.

A value of one row crosses zero, so its own size at one step is no measure.
"""
SAME_ACTIONS = 0.999
"""Least share of equal whole numbers, which are actions: two almost equal logits may change places."""
MASKED = 1e29
"""Logits of actions that an action mask excludes are below its negative; infinity and NaN are no sizes either."""
INPUT, OUTPUT = "inputs.", "outputs."

Arrays = dict[str, np.ndarray]
Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
"""A program: all inputs in order, all outputs in order."""


class Agreement(NamedTuple):
    """How a program's outputs compare with those of the model."""

    worst: float
    """Largest relative difference of a number."""
    same: float
    """Share of equal whole numbers; 1 without any."""

    @property
    def holds(self) -> bool:
        """Whether both are within their bounds."""
        return self.worst <= TOLERANCE and self.same >= SAME_ACTIONS


def record(step: ModelStep, *, steps: int = STEPS, rows: int | None = None, resets: float = RESETS) -> Arrays:
    """Run a model and return ``inputs.NAME`` and ``outputs.NAME``, each ``[steps, rows, ...]``, without the state.

    Inputs are random within their ranges, or the outputs of the step before; all rows begin with ``is_first``, which
    a share ``resets`` of the later steps has too.
    """
    if rows is None:
        size = sum(int(np.prod(port.shape)) * port.dtype.itemsize for port in step.form.inputs) * steps
        rows = max(1, min(ROWS, MOST_BYTES // max(size, 1)))
    generator, number = torch.Generator().manual_seed(0), len(step.form.outputs)
    names = [*(port.name for port in step.form.inputs), IS_FIRST]
    state, before, taken = step.initial(rows), {}, []
    for t in range(steps):
        is_first = torch.rand(rows, generator=generator) < resets
        is_first |= torch.tensor(t == 0)
        given = [
            before[port.source] if port.source in before else port.draw(rows, generator) for port in step.form.inputs
        ]
        with torch.no_grad():
            found = step(*given, is_first, *state)
        state, outputs = list(found[number:]), found[:number]
        before = dict(zip(step.form.outputs, outputs, strict=True))
        taken.append([tensor.numpy() for tensor in (*given, is_first, *outputs)])
    columns = [*(f"{INPUT}{name}" for name in names), *(f"{OUTPUT}{name}" for name in step.form.outputs)]
    return {name: np.stack(column) for name, column in zip(columns, zip(*taken, strict=True), strict=True)}


def replay(run: Run, step: ModelStep, recorded: Arrays, initial: Sequence[np.ndarray]) -> Agreement:
    """Compare a program with recorded steps; it carries its own state from ``initial``."""
    number, worst, same = len(step.form.outputs), 0.0, []
    names = [*(port.name for port in step.form.inputs), IS_FIRST]
    state, sizes = list(initial), {name: _size(recorded[f"{OUTPUT}{name}"]) for name in step.form.outputs}
    for t in range(len(recorded[f"{INPUT}{IS_FIRST}"])):
        found = run([*(recorded[f"{INPUT}{name}"][t] for name in names), *state])
        state = list(found[number:])
        for name, got in zip(step.form.outputs, found, strict=False):
            want = recorded[f"{OUTPUT}{name}"][t]
            if np.issubdtype(want.dtype, np.integer):
                same.append(np.mean(got == want))
            elif not (np.isfinite(got) == (known := np.isfinite(want))).all():
                worst = np.inf
            elif known.any():  # a difference of two NaN would hide those of the other numbers
                worst = max(worst, float(np.abs(got[known] - want[known]).max()) / sizes[name])
    return Agreement(worst, float(np.mean(same)) if same else 1.0)


def _size(array: np.ndarray) -> float:
    """Return the largest number of an array, without the logits of actions that are not allowed."""
    sizes = np.abs(array)
    return float(sizes[sizes < MASKED].max(initial=1e-30))


def open_program(path: Path, step: ModelStep, format: Format) -> Run | None:
    """Return the program in a file as a function of arrays; None where its runtime is not installed."""
    if format == "onnx":
        return None if find_spec("onnxruntime") is None else open_onnx(path.read_bytes(), step)
    program = torch.export.load(path).module() if format == "pt2" else load_compiled(path)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            return [tensor.numpy() for tensor in program(*map(torch.as_tensor, arrays))]

    return run


def open_onnx(model: bytes, step: ModelStep) -> Run:
    """Return an ONNX model in onnxruntime as a function of arrays, on as many threads as torch has.

    Raises ``ValueError`` where onnxruntime has no kernel for an operation or a type of number.
    """
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, NotImplemented) as error:
        raise ValueError(f"onnxruntime cannot run the program: {error}") from None
    names = [port.name for port in step.inputs]
    return lambda arrays: cast(Sequence[np.ndarray], session.run(None, dict(zip(names, arrays, strict=True))))
