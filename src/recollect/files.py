"""Atomic files and folders: written beside their target, synced, then renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recollect.lazy import np

UNFINISHED = ".writing-"
"""Prefix of unfinished files and folders."""
BACKUP = ".aside-"
"""Prefix of a folder while another takes its place."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a small file atomically; after a failure the old one is unchanged."""
    with new_file(path) as unfinished:
        write_synced(unfinished, content.encode() if isinstance(content, str) else content)


@contextmanager
def path_errors(field: str, place: Path, what: str = "written") -> Iterator[None]:
    """Turn an ``OSError`` of this block into a ``ValueError`` that names the field and the path that the user chose."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{field}={str(place)!r} cannot be {what} ({error.strerror}): give another folder") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; the file becomes ``path`` when the block succeeds, and is removed otherwise."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` when the block succeeds, and is removed otherwise.

    A folder that exists at ``path`` is removed after the new one is in place; a process that is killed in between
    leaves it at :func:`backup_path`. Where ``path`` is a link, this happens to the folder that it names.
    """
    path = path.resolve() if path.is_symlink() else path
    unfinished, aside = path.with_name(f"{UNFINISHED}{path.name}"), backup_path(path)
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed while it wrote
    try:
        unfinished.mkdir()
        yield unfinished
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed before it removed it
            path.rename(aside)
        unfinished.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def backup_path(path: Path) -> Path:
    """Return where :func:`new_folder` moves an existing folder until the new one is in its place."""
    return path.with_name(f"{BACKUP}{path.name}")


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def checksum(path: Path) -> str:
    """Return the BLAKE2b hash of a file, in hexadecimal."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def replace_between(text: str, name: str, content: str) -> str:
    """Replace the text between ``<!-- name:begin -->`` and ``<!-- name:end -->``; add both at the end if missing."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    block = f"{begin}\n{content}\n{end}"
    if begin in text and end in text:
        return text[: text.index(begin)] + block + text[text.index(end) + len(end) :]
    return text.rstrip("\n") + f"\n\n{block}\n"


def read_json(path: Path, remedy: str) -> Any:
    """Read JSON data from a file.

    Raises:
        ValueError: no JSON; the message has the file and the remedy.
    """
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): {remedy}") from None


def without_nan(value: Any) -> Any:
    """Return data with null in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(name): without_nan(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file.

    Raises:
        ValueError: the file is missing or damaged.
        OSError: the file could not be read (too many open files, a disk error, ...).
        MemoryError: the file is intact and too large for the memory.
    """
    try:
        with open(path, "rb") as opened:
            found = np.load(opened, allow_pickle=False)
            return {name: found[name] for name in found.files}
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path}: there is no such file") from None
    except Exception as error:  # zipfile, zlib and NumPy raise whatever a damaged file leads them to
        if not _is_damage(error, path):
            raise
        raise ValueError(f"{path}: it is damaged or no .npz file ({error})") from None


def _is_damage(error: Exception, path: Path) -> bool:
    """Return whether an error in reading arrays is due to the file, and not to the machine."""
    if isinstance(error, MemoryError):  # a damaged header can ask for any amount
        return not _has_valid_checksums(path)
    if isinstance(error, OSError):  # offsets in a damaged table of contents can lie beyond the end of the file
        missing = isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError))
        return missing or error.errno in (None, errno.EINVAL)
    return True


def _has_valid_checksums(path: Path) -> bool:
    """Return whether the contents of an ``.npz`` file match their checksums, in little memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError):
        return False


def require_json_type(found: Any, kind: type, path: Path) -> None:
    """Raise ``ValueError``, with the name of the file, unless its JSON data is a ``kind``: list or dict."""
    if not isinstance(found, kind):
        wanted = "an object {...}" if kind is dict else "a list [...]"
        raise ValueError(f"{path} holds {_shown(found)}, not {wanted}: it was not written by recollect")


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) < 60 else f"{text[:57]}..."


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, without which a rename may be lost."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
