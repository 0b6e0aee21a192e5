"""Private interfaces of torch: whether operations are traced, operators by name, its compilers and their switches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Decompositions = dict[Any, Callable[..., Any]]


def is_traced() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or a transform of ``torch.func`` such as ``vmap`` is active.

    A hand-written kernel then falls back to its plain twin. A torch that cannot detect transforms counts as traced.
    """
    if torch.compiler.is_compiling():
        return True
    try:
        return torch._C._are_functorch_transforms_active()
    except AttributeError:
        return True


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` is active, outside of a compiler.

    For kernels that a compiler can take apart, because they are made of public operations and read no values.
    """
    return is_traced() and not torch.compiler.is_compiling()


def can_detect_transforms() -> bool:
    """Return whether this torch has the private function that :func:`is_traced` needs."""
    return hasattr(torch._C, "_are_functorch_transforms_active")


def learns_on_cpu(like: Tensor) -> bool:
    """Return whether a call with this tensor records gradients on a CPU, untraced: it may read values to save work.

    Elsewhere it may not: without gradients a step costs the same at every age of an episode, as streams promise, and
    reading a value from an accelerator waits for it.
    """
    return like.device.type == "cpu" and torch.is_grad_enabled() and not is_traced()


def backward_pass() -> int:
    """Return a number that tells the running backward pass from all others; -1 where none runs."""
    return torch._C._current_graph_task_id()


def find_operator(name: str) -> Any | None:
    """Return the operator ``namespace::name``, or None where this torch does not have it."""
    namespace, _, own = name.partition("::")
    return getattr(getattr(torch.ops, namespace), own, None)


@contextmanager
def allow_recurrent_layers() -> Iterator[None]:
    """Let ``torch.compile`` take nn.LSTM and nn.GRU, which it refuses by default."""
    config = torch._dynamo.config
    before, config.allow_rnn = config.allow_rnn, True
    try:
        yield
    finally:
        config.allow_rnn = before


def compile_ahead_of_time(program: torch.export.ExportedProgram, path: Path) -> None:
    """Compile an exported program with a C++ compiler, to a package ``path`` that ends in ``.pt2``."""
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))


LOAD_COMPILED = "torch._inductor.aoti_load_package"
"""Name of the function that loads such a package, for programs without this library."""


def load_compiled(path: Path) -> Callable[..., Any]:
    """Return the function in a package of :func:`compile_ahead_of_time`."""
    return torch._inductor.aoti_load_package(str(path))


def single_step_decompositions() -> Decompositions:
    """Return decompositions for ``ExportedProgram.run_decompositions`` of a program with one time step.

    ONNX has no ``cummax``; along an axis of length 1 it is the tensor itself.
    """
    return {torch.ops.aten.cummax.default: _cummax_of_one}


def _cummax_of_one(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    assert tensor.shape[dim] == 1
    return tensor.clone(), torch.zeros_like(tensor, dtype=torch.long)
