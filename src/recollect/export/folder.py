"""An exported model as a folder that needs no Recollect: program, manifest, self-test, clients."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recollect import __version__
from recollect.agents.normalization import ReturnNorm, RunningNorm, Standardization
from recollect.config import require
from recollect.export import cpp
from recollect.export.selftest import SAME_ACTIONS, STEPS, TOLERANCE, Agreement, open_program, record, replay
from recollect.export.step import IS_FIRST, NEXT, STATE, ModelStep, Port, one_step
from recollect.export.trace import Format, require_format, trace, write_program
from recollect.files import new_folder, path_errors, write_atomically
from recollect.ops.torch_internals import LOAD_COMPILED
from recollect.training.saved_models import load_model

MANIFEST, SELFTEST, README = "manifest.json", "selftest.npz", "README.md"
PROGRAMS: dict[Format, str] = {"onnx": "model.onnx", "pt2": "model.pt2", "aoti": "model.pt2"}
TORCH_CALL = (
    "[one.detach().numpy() for one in self.program(*(torch.as_tensor(feeds[n]) for n in self.order['inputs']))]"
)
CLIENTS: dict[Format, dict[str, str]] = {
    "onnx": {
        "module": "onnxruntime",
        "load": 'onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])',
        "run": 'self.program.run(self.order["outputs"], feeds)',
    },
    "pt2": {
        "module": "torch",
        "load": 'torch.export.load(folder / "model.pt2").module()',
        "run": TORCH_CALL,
    },
    "aoti": {
        "module": "torch",
        "load": f'{LOAD_COMPILED}(str(folder / "model.pt2"))',
        "run": TORCH_CALL,
    },
}
"""What differs in the client of a format: the package, how it loads a program and calls it."""
VERSION = 1  # of the manifest


class Exported(NamedTuple):
    """Paths and figures of an exported model."""

    folder: Path
    agreement: Agreement | None
    """Of the written program with the model; None where no runtime for it is installed."""

    def describe(self) -> str:
        """Return the agreement in words."""
        if self.agreement is None:
            return "written; onnxruntime is not installed, so it was not compared with the model: run its client.py"
        worst, same = self.agreement
        return f"{STEPS} steps agree with the model: largest relative difference {worst:.1e}, {same:.1%} equal actions"


def export_run(
    source: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    format: Format = "onnx",
    best: bool = False,
    trust: bool = False,
) -> Exported:
    """Export the model of a run or of a model folder.

    Args:
        source: run directory or model folder.
        folder: to write; an older export is replaced.
        format: onnx, pt2 (a program of torch.export) or aoti (compiled for this machine's processor).
        best: of a run, take the weights of its best evaluation instead of the newest.
        trust: import the modules of other packages that its config names.

    Raises:
        ValueError: there is no such model, or as :func:`export_model`.
    """
    require_format(format)
    require_replaceable(Path(folder))
    return export_model(load_model(source, best=best, trust=trust), folder, format=format)


def export_model(model: nn.Module, folder: str | PathLike[str], *, format: Format = "onnx") -> Exported:
    """Export one step of a model with its state, and compare the written program with the model.

    Args:
        model: a core, or an agent around one; it is switched to ``eval`` mode.
        folder: to write; an older export is replaced.
        format: as in :func:`export_run`.

    Raises:
        ValueError: the model has no step, cannot be traced or converted, or its program gives other numbers; or the
            folder cannot be written, or holds something else.
    """
    require_format(format)
    target = Path(folder)
    require_replaceable(target)
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    require(device.type == "cpu", "device", str(device), "move the model to the processor before it is exported")
    step = one_step(model)
    is_known = all(port.dtype != torch.bfloat16 for port in step.inputs)
    require(is_known, "dtype", "bfloat16", "NumPy, which all clients use, does not have it: export model.float()")
    program = trace(step)
    recorded, initial = record(step), initial_values(step)
    with path_errors("to", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as made:
            path = made / PROGRAMS[format]
            write_program(program, step, path, format)
            run = open_program(path, step, format)
            rows = recorded[f"inputs.{IS_FIRST}"].shape[1]
            starts = [broadcast(value, port, rows) for value, port in zip(initial, step.leaves, strict=True)]
            agreement = None if run is None else replay(run, step, recorded, starts)
            if agreement is not None and not agreement.holds:
                raise ValueError(
                    f"format={format!r}: the exported {type(model).__name__} differs from the model by "
                    f"{agreement.worst:.1e} of its outputs' size, {agreement.same:.1%} equal actions: try another one"
                )
            np.savez_compressed(made / SELFTEST, **recorded)  # type: ignore[arg-type]
            manifest = describe(step, format, initial, agreement)
            write_atomically(made / MANIFEST, json.dumps(manifest, indent=1) + "\n")
            _write_clients(made, step, format, manifest)
    return Exported(target, agreement)


def require_replaceable(folder: Path) -> None:
    """Raise ``ValueError`` where a path is taken by something that is no export."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file()):
        raise ValueError(f"to={str(folder)!r}: it exists and is no exported model: give a new folder")


def initial_values(step: ModelStep) -> list[Any]:
    """Return how a client makes each leaf of the state: a number that fills it, or one row.

    The first step has ``is_first``, which replaces the state; where zeros therefore give the same, they are the answer.
    """
    state, generator = step.initial(2), torch.Generator().manual_seed(0)
    given = [*(port.draw(2, generator) for port in step.form.inputs), torch.ones(2, dtype=torch.bool)]
    with torch.no_grad():
        want, got = step(*given, *state), step(*given, *(torch.zeros_like(leaf) for leaf in state))
    if all(_is_close(a, b) for a, b in zip(want, got, strict=True)):
        return [0] * len(state)
    rows = [leaf[0] for leaf in state]
    return [row.flatten()[0].item() if bool((row == row.flatten()[0]).all()) else row.tolist() for row in rows]


def broadcast(value: Any, port: Port, rows: int) -> np.ndarray:
    """Return a leaf of the initial state of some rows."""
    dtype = torch.zeros((), dtype=port.dtype).numpy().dtype
    return np.broadcast_to(np.asarray(value, dtype), (rows, *port.shape)).copy()


def describe(step: ModelStep, format: Format, initial: list[Any], agreement: Agreement | None) -> dict[str, Any]:
    """Return the manifest of an export."""
    with torch.no_grad():
        example = [port.draw(1, torch.Generator().manual_seed(0)) for port in step.inputs]
        found = dict(zip(step.outputs, step(*example), strict=True))
    states = [
        {
            "input": f"{STATE}{port.name}",
            "output": f"{NEXT}{port.name}",
            **_shape(port.shape, port.dtype),
            "initial": value,
        }
        for port, value in zip(step.leaves, initial, strict=True)
    ]
    return {
        "format": format,
        "version": VERSION,
        "model": type(step.model).__name__,
        "core": type(getattr(step.model, "core", step.model)).__name__,
        "spec": _spec(step.model),
        "file": PROGRAMS[format],
        "inputs": [_describe_input(port) for port in step.inputs if not port.name.startswith(STATE)],
        "state": states,
        "outputs": [
            {"name": name, **_shape(found[name].shape[1:], found[name].dtype)}
            for name in step.outputs
            if not name.startswith(NEXT)
        ],
        "order": {"inputs": [port.name for port in step.inputs], "outputs": list(step.outputs)},
        "normalisation": {"included": True, "statistics": _statistics(step.model)},
        "selftest": {"file": SELFTEST, "tolerance": TOLERANCE, "same_actions": SAME_ACTIONS}
        | ({} if agreement is None else {"worst": agreement.worst, "same": agreement.same}),
        "versions": _versions(),
        "machine": {"system": platform.system(), "architecture": platform.machine()},
    }


def _is_close(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)


def _shape(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> dict[str, Any]:
    return {"shape": ["batch", *shape], "dtype": str(dtype).removeprefix("torch.")}


def _describe_input(port: Port) -> dict[str, Any]:
    source = {} if port.source is None else {"previous_output": port.source}
    return {"name": port.name, **_shape(port.shape, port.dtype), "about": port.about, **source}


def _statistics(model: nn.Module) -> dict[str, Any]:
    """Return the buffers of all normalisations inside a model, for people: the program applies them itself."""
    kinds = (RunningNorm, ReturnNorm, Standardization)
    found = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    return {name: {own: one.tolist() for own, one in module.named_buffers()} for name, module in found.items()}


def _spec(model: nn.Module) -> dict[str, Any]:
    """Return names, units and provenance of a model, as far as they are known."""
    spec = getattr(model, "spec", None)
    return {} if spec is None else {name: value for name, value in asdict(spec).items() if value}


def _versions() -> dict[str, str]:
    found = {"recollect": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "onnx", "onnxscript", "onnxruntime"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _write_clients(folder: Path, step: ModelStep, format: Format, manifest: Mapping[str, Any]) -> None:
    """Write ``client.py``, for ONNX also ``client.cpp``, and a README that shows them."""
    templates = files("recollect.export") / "templates"
    python = Template((templates / "client.py.txt").read_text()).substitute(CLIENTS[format])
    write_atomically(folder / "client.py", python)
    section = ""
    if format == "onnx":
        write_atomically(folder / "client.cpp", cpp.client(step, manifest))
        section = (templates / "cpp.md.txt").read_text()
    rows = [
        f"| `{one['name']}` | {one['dtype']} `{[*one['shape']]}` | {one.get('about', '')} |".replace("'", "")
        for one in (*manifest["inputs"], *manifest["outputs"])
    ]
    text = Template((templates / "README.md.txt").read_text()).substitute(
        model=" with ".join(dict.fromkeys((manifest["model"], manifest["core"]))),
        file=manifest["file"],
        package=CLIENTS[format]["module"],
        table="\n".join(rows),
        leaves=len(manifest["state"]),
        client=python.rstrip("\n"),
        cpp=section,
        recollect=__version__,
    )
    write_atomically(folder / README, text)
