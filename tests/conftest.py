"""Every test starts from the same seed, with one thread and with fresh memory full of NaN."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch.utils import deterministic


@pytest.fixture(autouse=True, scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Data that tests make and keep goes where nobody else looks."""
    os.environ["RECOLLECT_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seed torch, and let `torch.empty` return NaN so that reading unwritten memory shows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    strict = torch.are_deterministic_algorithms_enabled()
    fill = deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)  # the filling works only with it
    deterministic.fill_uninitialized_memory = True
    yield
    deterministic.fill_uninitialized_memory = fill
    torch.use_deterministic_algorithms(strict)
    torch.set_num_threads(threads)
