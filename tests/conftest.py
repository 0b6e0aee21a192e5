"""Every test starts from the same seed, with one thread and with fresh memory full of NaN."""

from collections.abc import Iterator

import pytest
import torch
from torch.utils import deterministic


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seed torch, and let `torch.empty` return NaN so that reading unwritten memory shows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fill = deterministic.fill_uninitialized_memory
    deterministic.fill_uninitialized_memory = True
    yield
    deterministic.fill_uninitialized_memory = fill
    torch.set_num_threads(threads)
