"""One process at a time works on a run directory.

The file ``lock`` names the process that does: its number, host, and since when. The operating system holds the lock
itself (flock) and lets go of it when the process ends, however it ends; what a killed one leaves is taken over.
"""

import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recollect.machine import has_process_ended

try:
    import fcntl
except ImportError:  # no flock on Windows: the file's content alone decides
    fcntl = None

NAME = "lock"


class InUseError(ValueError):
    """Another process works on a folder."""


class Lock:
    """The lock of a folder, held from :meth:`take` to :meth:`release`.

    Args:
        folder: that is owned.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._handle: int | None = None

    def check(self) -> None:
        """Raise :class:`InUseError` if another process owns the folder. Writes nothing."""
        if not self.path.is_file():
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            if not _flock(handle) or _is_elsewhere(_read(handle)):
                self._refuse(_read(handle))
        finally:
            os.close(handle)  # which also lets go of it

    def take(self) -> None:
        """Own the folder, which exists.

        Raises:
            InUseError: another process does; says which one, and what to do.
        """
        while self._handle is None:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            held, owner = _flock(handle), _read(handle)
            if (held and _is_elsewhere(owner)) or (not held and not _is_dead(owner)):
                os.close(handle)
                self._refuse(owner)
            if not held:  # a worker of a dead owner inherited it and lives on: it can have the old file
                os.close(handle)
                self.path.unlink(missing_ok=True)
            elif not self._is_current(handle):  # somebody removed the file in between
                os.close(handle)
            else:
                now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                content = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now}) + "\n"
                os.ftruncate(handle, 0)
                os.pwrite(handle, content.encode(), 0)
                self._handle = handle

    def release(self) -> None:
        """Let others have the folder."""
        if self._handle is not None:
            with suppress(OSError):
                if self._is_current(self._handle):
                    self.path.unlink()
            os.close(self._handle)
            self._handle = None

    def _is_current(self, handle: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False

    def _refuse(self, owner: dict[str, Any]) -> None:
        who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}, since {owner.get('since', '?')}"
        raise InUseError(
            f"run directory {self.path.parent} is in use by {who}: wait for it, end it, or choose another directory"
            + (f"; if that process is gone, remove {self.path}" if _is_elsewhere(owner) or not owner else "")
        )


def _flock(handle: int) -> bool:
    if fcntl is None:
        return not _is_alive(_read(handle))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the file's content alone decides
        return not _is_alive(_read(handle))
    return True


def _read(handle: int) -> dict[str, Any]:
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        found = json.loads(os.read(handle, 4096))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_elsewhere(owner: dict[str, Any]) -> bool:
    return bool(owner) and owner.get("host") != socket.gethostname()


def _is_alive(owner: dict[str, Any]) -> bool:
    return bool(owner) and not _is_dead(owner)


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine and is gone."""
    pid = owner.get("pid")
    return not _is_elsewhere(owner) and isinstance(pid, int) and pid >= 1 and has_process_ended(pid)
