"""Files that are whole or not there: written beside their target, synced, then renamed."""

import os
from pathlib import Path

WRITING = ".writing-"
"""How the names of unfinished files and folders begin."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a small file in one stroke; what stood there before survives any failure.

    Raises:
        OSError: it could not be written.
    """
    beside = path.with_name(f"{WRITING}{path.name}")
    try:
        write_synced(beside, content.encode() if isinstance(content, str) else content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names: a rename is lasting only then."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
