import pytest
import torch

from recollect.training import devices
from recollect.training.devices import peak_memory, reset_peak_memory


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([0, 0], 100.0),  # a run on the processor of a machine with accelerators
        ([0, 3 * 2**20], 3.0),  # a run on the second one
    ],
)
def test_peak_memory_is_that_of_the_device_of_the_run(monkeypatch, used, expected):
    reset = []
    monkeypatch.setattr(devices, "peak_bytes", lambda: 100 * 2**20)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(used))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index=0: used[index])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda index=0: reset.append(index))
    reset_peak_memory()
    assert reset == [0, 1]
    assert peak_memory() == expected


def test_measuring_memory_does_not_start_an_accelerator(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: pytest.fail("this starts CUDA"))
    reset_peak_memory()
    assert peak_memory() != 0
