"""Lock of a folder: one process at a time works on a run directory.

The library filelock holds the lock, which the operating system releases when the process ends, however it ends. The
file ``lock`` also names its holder: process, host, and since when.
"""

import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, SoftFileLock, Timeout

NAME = "lock"


class InUseError(ValueError):
    """Another process works on a folder."""


class FolderLock:
    """Lock of an existing folder; a context in which this process holds it.

    Args:
        folder: to lock.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = FileLock(self.path, thread_local=False)

    def check(self) -> None:
        """Raise :class:`InUseError` if another process holds the lock. Writes nothing."""
        if self.path.is_file():
            with suppress(PermissionError):  # a folder that cannot be written is reported later
                self._acquire()
                self._lock.release()

    def acquire(self) -> None:
        """Lock the folder.

        Raises:
            InUseError: another process holds the lock; names it, and the remedy.
        """
        self._acquire()
        if not isinstance(self._lock, SoftFileLock):  # used where the file system has no locks; names its own holder
            since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
            self.path.write_text(json.dumps(holder) + "\n")

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock.is_locked:
            with suppress(OSError):  # Windows does not remove open files
                self.path.unlink()
            self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _acquire(self) -> None:
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            self._refuse(self._holder())
        holder = self._holder()
        if holder and holder.get("host") != socket.gethostname():  # not every network file system shares its locks
            self._lock.release()
            self._refuse(holder)

    def _holder(self) -> dict[str, Any]:
        try:
            holder = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return holder if isinstance(holder, dict) else {}

    def _refuse(self, holder: dict[str, Any]) -> None:
        who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}, since {holder.get('since', '?')}"
        remedy = "wait for it, end it, or choose another directory"
        if holder.get("host") != socket.gethostname():
            remedy += f"; if that process is gone, remove {self.path}"
        raise InUseError(f"run directory {self.path.parent} is in use by {who}: {remedy}")
