"""Memory that one training step frees is kept for the next.

A step allocates and frees the same tensors as the step before. glibc gives what is freed back to the system, and each
page that comes anew costs a fault: little on most machines, several microseconds on some virtual ones, where it was up
to half of a step with images (docs/log.md).
"""

import ctypes
import os
import sys

LARGEST = 32 << 20
"""Bytes of the largest block that glibc can be told to keep; what is larger is returned at once."""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user decides this himself."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed blocks of up to :data:`LARGEST` bytes, for the whole process.

    Returns:
        Whether it was told: not on other systems than Linux with glibc, nor where one of :data:`SETTINGS` is set.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in SETTINGS):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, LARGEST)) and bool(library.mallopt(_TRIM_THRESHOLD, _NEVER))


def return_freed_memory() -> bool:
    """Give what the C library keeps of freed memory back to the system, so that the process's memory is what it uses.

    Returns:
        Whether it was asked to: not on other systems than Linux with glibc.
    """
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if library is None or not hasattr(library, "malloc_trim"):
        return False
    library.malloc_trim(0)
    return True
