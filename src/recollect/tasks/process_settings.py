"""Settings of this process that a user-defined world may change, put back after every call of its code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, ClassVar

from recollect.lazy import torch

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class kept_process_settings:  # noqa: N801  (a function of contextlib costs more, and this runs at every step)
    """A context after which the process is as before it.

    Kept are the working directory, signal handlers, torch's number of threads, its default dtype, and whether it
    records gradients. Environment variables and global random generators are not: worlds use them for themselves.
    """

    lock = threading.Lock()
    directories: ClassVar[dict[int, str]] = {}
    """Where the threads that are inside a block were before it: their worlds may be elsewhere for a moment.

    A signal may end a block before its last line. What it has left here is of this thread, and its next block replaces
    it.
    """
    given_up: ClassVar[set[int]] = set()
    """Threads whose block, if it ever ends, changes nothing (:meth:`give_up`)."""

    @classmethod
    def give_up(cls, thread: int) -> None:
        """Do not wait for the block of a thread that hangs: other blocks no longer return to where it began.

        Args:
            thread: its ``ident``.
        """
        with cls.lock:
            if cls.directories.pop(thread, None) is not None:
                cls.given_up.add(thread)

    def __enter__(self) -> None:
        cls, thread = kept_process_settings, threading.get_ident()
        with cls.lock:
            cls.directories.pop(thread, None)
            self.directory = next(iter(cls.directories.values()), "") or _working_directory()
            cls.directories[thread] = self.directory
        self.settings = _torch_settings()
        self.handlers = [signal.getsignal(number) for number in SIGNALS]

    def __exit__(self, *error: object) -> None:
        cls, thread = kept_process_settings, threading.get_ident()
        with cls.lock:
            cls.directories.pop(thread, None)
            if thread in cls.given_up:
                cls.given_up.remove(thread)
                return
        if self.directory and _working_directory() != self.directory:
            os.chdir(self.directory)
        if "torch" in sys.modules:  # help, which makes environments too, does not wait for torch
            self._restore_torch()
        if threading.current_thread() is threading.main_thread():
            for number, handler in zip(SIGNALS, self.handlers, strict=True):
                if handler is not None and signal.getsignal(number) != handler:  # None: not installed by Python
                    signal.signal(number, handler)

    def _restore_torch(self) -> None:
        if self.settings is None or _torch_settings() == self.settings:
            return
        threads, dtype, has_gradients = self.settings
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(has_gradients)


def _torch_settings() -> tuple[int, Any, bool] | None:
    """Return the settings of torch; None if it is not imported."""
    if "torch" not in sys.modules:
        return None
    return torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()


def _working_directory() -> str:
    """Return the working directory, or nothing if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
