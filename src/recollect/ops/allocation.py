"""Memory that one training step frees is kept for the next.

A step allocates and frees the same tensors as the step before. glibc gives what is freed back to the system, and each
page that comes anew costs a fault: little on most machines, several microseconds on some virtual ones, where it was up
to half of a step with images (docs/log.md).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST = 32 << 20
"""Bytes of the largest block that glibc can be told to keep; what is larger is returned at once."""
SMALLEST = 1 << 18
"""Bytes of the smallest block that is returned at once where memory is measured."""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user decides this himself."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed blocks of up to :data:`LARGEST` bytes, for the whole process.

    Returns:
        Whether it was told: not on other systems than Linux with glibc, nor where one of :data:`SETTINGS` is set.
    """
    return _tell(LARGEST, _NEVER)


@contextmanager
def freed_memory_returned() -> Iterator[bool]:
    """Inside, freed blocks of :data:`SMALLEST` bytes and more go back to the system at once.

    What a process holds is then what it uses, without holes that wait to be used again: for measuring, since every
    step costs fresh pages. Afterwards memory is kept, as :func:`keep_freed_memory` has it.

    Yields:
        Whether the C library was told; see :func:`keep_freed_memory`.
    """
    told = _tell(SMALLEST, 0)
    if told:
        return_holes()
    try:
        yield told
    finally:
        keep_freed_memory()


def return_holes() -> bool:
    """Give the pages of blocks that were freed between others back to the system.

    A new block is laid into such a hole before the system is asked for memory, so a process in which much happened
    before would otherwise seem to need less than it does.

    Returns:
        Whether the C library can do it.
    """
    library = _glibc()
    if library is None:
        return False
    library.malloc_trim(0)
    return True


def _tell(mapped: int, trimmed: int) -> bool:
    library = _glibc()
    if library is None or any(name in os.environ for name in SETTINGS):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, mapped)) and bool(library.mallopt(_TRIM_THRESHOLD, trimmed))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
