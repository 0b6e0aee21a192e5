"""All random generators of a process, seeded, saved and restored together."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class RandomStates(NamedTuple):
    """States of the generators of torch (processor and accelerators), Python and NumPy."""

    tensors: dict[str, Tensor]
    """uint8 states of torch's generators."""
    data: dict[str, Any]
    """JSON data: states of Python's and NumPy's generators."""


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch, Python and NumPy; learners of the same seed with another rank draw other numbers."""
    if rank:
        seed = int(np.random.SeedSequence(seed % 2**32, spawn_key=(rank,)).generate_state(1)[0])
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_states() -> RandomStates:
    """Return a copy of all states."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return RandomStates(
        tensors,
        {
            "python": [version, list(words), gauss],
            "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        },
    )


def restore_random_states(tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
    """Set the random generators of torch, NumPy and Python to states that :func:`random_states` returned.

    States of accelerators that this machine does not have are ignored.
    """
    torch.set_rng_state(tensors["torch"])
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda.{index}" in tensors:
            torch.cuda.set_rng_state(tensors[f"cuda.{index}"], index)
    version, words, gauss = data["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = data["numpy"]
    np.random.set_state((name, np.asarray(keys, dtype=np.uint32), position, has_gauss, cached))
