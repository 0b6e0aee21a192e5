"""Operations along a time axis of one step, in a form that every exporter knows."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Decompositions = dict[Any, Callable[..., Any]]


def single_step_decompositions() -> Decompositions:
    """For ``ExportedProgram.run_decompositions``, of a program whose time axis has length 1: ONNX has no ``cummax``."""
    return {torch.ops.aten.cummax.default: _largest_of_one}


def _largest_of_one(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    assert tensor.shape[dim] == 1
    return tensor.clone(), torch.zeros_like(tensor, dtype=torch.long)
