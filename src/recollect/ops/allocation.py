"""Keep the memory that one training step frees for the next step.

A step allocates and frees the same tensors as the step before. glibc returns freed memory to the system, and each new
page costs a fault: little on most machines, several microseconds on some virtual ones, where it was up to half of a
step with images (docs/log.md).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST = 32 << 20
"""Bytes of the largest block that glibc can keep; larger ones are returned at once."""
SMALLEST = 1 << 18
"""Bytes of the smallest block that is returned at once while memory is measured."""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which users choose this themselves."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks of up to :data:`LARGEST` bytes, for the whole process.

    Returns:
        Whether it does: only on Linux with glibc, and unless one of :data:`SETTINGS` is set.
    """
    return _set_thresholds(LARGEST, _NEVER)


@contextmanager
def return_freed_memory() -> Iterator[bool]:
    """Within this context, return freed blocks of :data:`SMALLEST` bytes and more to the system at once.

    The memory of a process is then the memory in use, for measuring; every step costs fresh pages. Afterwards
    :func:`keep_freed_memory` holds.

    Yields:
        Whether the C library does so.
    """
    is_set = _set_thresholds(SMALLEST, 0)
    if is_set:
        trim_heap()
    try:
        yield is_set
    finally:
        keep_freed_memory()


def trim_heap() -> bool:
    """Return the pages of free blocks between used ones to the system, and return whether the C library can do so.

    New blocks go into such holes first, so a process with many of them would seem to need less memory than it does.
    """
    library = _glibc()
    if library is None:
        return False
    library.malloc_trim(0)
    return True


def _set_thresholds(mapped: int, trimmed: int) -> bool:
    library = _glibc()
    if library is None or any(name in os.environ for name in SETTINGS):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, mapped)) and bool(library.mallopt(_TRIM_THRESHOLD, trimmed))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
