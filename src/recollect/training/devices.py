"""Where a run computes."""

import torch


def choose_device(name: str) -> torch.device:
    """The device that a config names: cpu, cuda, cuda:1, ..., or auto for an accelerator when there is one.

    Raises:
        ValueError: torch knows no such device, or none is visible here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: torch knows no such device; use cpu, cuda or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}: no accelerator is visible here; use cpu or auto")
    return device
