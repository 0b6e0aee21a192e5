"""Threads of one step of a stream.

A step of a millisecond is divided into dozens of operations, and between two of them all threads wait for the slowest.
A second thread then saves little on an idle machine, and where another process takes its processor for a moment, every
operation waits for it. So small steps run on one thread, whatever number the caller has chosen for larger work.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 2**23
"""Floating-point operations of a step up to which it runs on one thread: about a millisecond of one processor core."""


@contextmanager
def threads_for(operations: int) -> Iterator[None]:
    """Run a block of so many floating-point operations on one thread if they are few; then restore the number."""
    before = torch.get_num_threads()
    if operations > SMALL or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
