"""Threads of one step of a stream.

A step of a millisecond is divided into dozens of operations, and between two of them all threads wait for the slowest.
A second thread then saves little on an idle machine, and where another process takes its processor for a moment, every
operation waits for it. So small steps run on one thread, whatever number the caller has chosen for larger work.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

SMALL = 2**23
"""Floating-point operations of a step up to which it runs on one thread: about a millisecond of one processor core."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread inside the block."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(operations: int) -> AbstractContextManager[None]:
    """Return the context of a block of so many floating-point operations: one thread if they are few."""
    return one_thread() if operations <= SMALL else nullcontext()
