"""NumPy arrays and lists as inputs and outputs of a live model.

Tensors in give tensors out. Arrays, lists or numbers in give arrays out; floats are computed in the dtype of the
weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Numbers = np.ndarray | Sequence[Any] | float
"""Inputs that are converted to a tensor."""
First = Tensor | np.ndarray | Sequence[bool] | bool | None
"""``is_first`` of a step."""


def to_tensor(values: Any, like: Tensor, what: str = "inputs", *, floats: bool = False) -> Tensor:
    """Return an array, a list or a number as a new tensor; a tensor as it is.

    Args:
        values: numbers.
        like: has the device, and the dtype of floats.
        what: name for errors.
        floats: convert integers to floats too.

    Raises:
        ValueError: not numbers, or rows of different length.
    """
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}; give an array, or lists of the same length") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} are {array.dtype}, no numbers: give an array of floats or integers")
    as_float = array.dtype.kind == "f" or (floats and array.dtype.kind in "iu")
    if not as_float and array.dtype in (np.uint16, np.uint32, np.uint64):  # torch has few operators for these
        array = array.astype(np.int64)
    return torch.tensor(array, dtype=like.dtype if as_float else None, device=like.device)


def to_tensors(tree: Any, like: Tensor, what: str) -> Any:
    """Apply :func:`to_tensor` to all leaves of dicts, and of tuples that hold dicts, tuples or arrays."""
    if isinstance(tree, Mapping):
        return {name: to_tensors(part, like, str(name)) for name, part in tree.items()}
    if isinstance(tree, tuple) and any(isinstance(part, (Mapping, tuple, np.ndarray, Tensor)) for part in tree):
        return tuple(to_tensors(part, like, f"{what}[{place}]") for place, part in enumerate(tree))
    return to_tensor(tree, like, what)


def all_tensors(tree: Any) -> bool:
    """Whether all leaves of dicts and tuples are tensors."""
    if isinstance(tree, Tensor):
        return True
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, tuple) else ()
    return bool(parts) and all(map(all_tensors, parts))


def to_first(is_first: First, batch_size: int, device: torch.device) -> Tensor:
    """Return ``is_first`` as a tensor, from one bool for all rows, or a list or array of bools.

    Raises:
        ValueError: something else.
    """
    if isinstance(is_first, Tensor):
        return is_first
    array = np.asarray(False if is_first is None else is_first)
    if array.dtype != np.bool_ or array.shape not in ((), (batch_size,)):
        raise ValueError(
            f"is_first is {array.dtype} {list(array.shape)}; it must be bool [{batch_size}], or one bool for all rows"
        )
    return torch.tensor(array, device=device).expand(batch_size)


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array; bfloat16, which NumPy does not have, as float32."""
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return tensor.cpu().numpy()
