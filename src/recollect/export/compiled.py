"""Streams whose step is one program, compiled ahead of time by torch with a C++ compiler and kept on disk.

    stream = compiled_stream(core, batch_size=1)        # compiles once: a minute or more; later calls read the file
    output = stream.step(frame)

A step of a small core is bound by the time in which torch starts its operations, a hundred of them in one step; a
compiled program has a few. It computes the step as a call of the core does, with a state that is a tree of tensors, so
it is for small cores: those with long windows or many chunks have streams that write into buffers, and a program that
copies its state would lose more than it gains.

It is a function of this package and no option of ``core.stream``: this package, which traces and compiles steps,
imports cores, and may not be imported by them.

The file holds a program without the weights, which are put into it when a stream is made: runs of one config share it,
and new weights need no compiler. Its key is the traced program itself, the versions and the processor.
"""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from recollect import machine
from recollect.cores.stream import Stream
from recollect.export.step import ModelStep, one_step
from recollect.export.trace import trace, write_program
from recollect.ops.torch_internals import load_compiled
from recollect.tasks.disk_cache import data_folder

FOLDER = "compiled"
"""Folder of the programs below that of cached data."""
TRIES = 3
"""Steps that are compared with the core before a program is used."""
TOLERANCE = 1e-4
"""Largest difference, relative to the largest number of a tensor, of a program that is used."""

Program = Callable[..., Any]


class CompiledStream(Stream):
    """Stream of a core whose steps a compiled program computes.

    Args:
        core: in ``eval`` mode from here on.
        batch_size: number of rows.
        folder: of the programs.

    Raises:
        ValueError: the step cannot be traced or compiled, or the program computes other numbers; one line.
    """

    def __init__(self, core: Any, batch_size: int, folder: Path) -> None:
        self._folder, self._step = folder, one_step(core)
        self._program = load_program(self._step, folder)
        super().__init__(core, batch_size)

    def advance(self, inputs: Tensor, is_first: Tensor) -> Tensor:
        """Take one step on checked inputs ``[b, *input_shape]``."""
        known = [leaf.contiguous() for leaf in self._step.pack(self._state)]  # as in the traced example
        outputs, *packed = self._program(inputs.contiguous(), is_first, *known)
        self._state = self._step.unpack(packed, len(inputs))
        return outputs

    def extra_arguments(self) -> dict[str, Any]:
        """Return the folder of compiled programs, which a copy of the stream needs."""
        return {"folder": self._folder}


def compiled_stream(core: nn.Module, batch_size: int, *, folder: str | os.PathLike[str] | None = None) -> Stream:
    """Make a stream of a core with compiled steps; the core's own stream, with a warning, where that is not possible.

    Args:
        core: on a CPU; goes to ``eval`` mode.
        batch_size: number of rows.
        folder: of the programs; None is ``compiled`` in ``$RECOLLECT_DATA`` or ``~/.cache/recollect``.
    """
    own: Any = core
    try:
        if any(weight.device.type != "cpu" for weight in core.parameters()):
            raise ValueError("it is not on a CPU")
        return CompiledStream(core, batch_size, data_folder() / FOLDER if folder is None else Path(folder))
    except (ValueError, OSError, RuntimeError) as error:  # the last of torch, which cannot load the program
        reason = " ".join(str(error).split())[:300]
        name = type(core).__name__
        warnings.warn(f"no compiled steps of {name} ({reason}): its stream is not compiled", stacklevel=2)
        return own.stream(batch_size)


def load_program(step: ModelStep, folder: Path) -> Program:
    """Return the compiled program of a step, with its weights; compile it where the folder does not have it.

    Raises:
        ValueError: it cannot be traced or compiled, or computes other numbers.
        OSError: the folder cannot be written.
    """
    traced = trace(step)
    path = folder / f"{program_key(traced)}.pt2"
    if path.exists():
        try:
            return _with_weights(path, step)
        except Exception:  # whatever torch raises for a damaged file: it is compiled again
            path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = Path(work) / "model.pt2"
        write_program(traced, step, made, "aoti")
        os.replace(made, path)
    return _with_weights(path, step)


def program_key(traced: ExportedProgram) -> str:
    """Return the name of a program's file: a digest of its operations and constants, and of where it runs."""
    weights = {name: [str(value.dtype), list(value.shape)] for name, value in traced.state_dict.items()}
    constants = {name: value.tolist() for name, value in traced.constants.items() if isinstance(value, Tensor)}
    where = [torch.__version__, machine.processor(), machine.matrix_extensions()]
    told = json.dumps([traced.graph_module.code, weights, constants, where, torch.get_num_threads() > 1])
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def _with_weights(path: Path, step: ModelStep) -> Program:
    """Load a program, put the weights of a step into it, and compare some steps with the core."""
    program: Any = load_compiled(path)
    known = dict(step.named_parameters()) | dict(step.named_buffers())
    wanted = {name: known[name].detach() for name in program.get_constant_fqns() if name in known}
    program.load_constants(wanted, check_full_update=False)
    generator = torch.Generator().manual_seed(0)
    inputs = step.form.inputs[0].draw(2, generator)
    mine = theirs = [leaf.clone() for leaf in step.initial(2)]
    with torch.no_grad():
        for turn in range(TRIES):
            first = torch.tensor([False, turn == 1])
            got, *mine = program(inputs, first, *mine)
            want, *theirs = step(inputs, first, *theirs)
            for one, other in zip((got, *mine), (want, *theirs), strict=True):
                scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
                if other.numel() and not float((one.double() - other.double()).abs().max()) <= TOLERANCE * scale:
                    raise ValueError("the compiled program computes other numbers than the core")
    return program
