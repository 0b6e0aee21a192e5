"""Devices that runs compute on."""

import torch

from recollect.machine import peak_bytes, reset_peak_bytes


def choose_device(name: str) -> torch.device:
    """Return the device that a config names: cpu, cuda, cuda:1, ..., or auto for an accelerator when there is one.

    Raises:
        ValueError: torch has no such device, or none is visible here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: torch has no such device; use cpu, cuda or auto") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "mps" and torch.backends.mps.is_available():
        return device
    if device.type != "cuda":
        raise ValueError(f"device={name!r}: there is no such device here; use cpu, cuda or auto")
    if not torch.cuda.is_available():
        raise ValueError(f"device={name!r}: no accelerator is visible here; use cpu or auto")
    number = torch.cuda.device_count()
    if device.index is not None and device.index >= number:
        raise ValueError(f"device={name!r}: there are {number} accelerators here; use cuda:0 to cuda:{number - 1}")
    return device


def reset_peak_memory() -> None:
    """Restart the measurement of :func:`peak_memory`, so that earlier runs in this process do not count."""
    for index in _used_accelerators():
        torch.cuda.reset_peak_memory_stats(index)
    reset_peak_bytes()


def peak_memory() -> float | None:
    """Return the peak memory since :func:`reset_peak_memory` in MiB; None where unknown.

    It is that of the accelerator with the most tensors, or of the process where no accelerator had any.
    """
    most = max(map(torch.cuda.max_memory_allocated, _used_accelerators()), default=0) or peak_bytes()
    return None if most is None else round(most / 2**20, 1)


def _used_accelerators() -> range:
    """Return the numbers of the accelerators; none where this process has not used one. Starts none."""
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
