"""Files that are whole or not there: written beside their target, synced, then renamed."""

import errno
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

UNFINISHED = ".writing-"
"""How the names of unfinished files and folders begin."""
BACKUP = ".aside-"
"""How the name of a folder begins while another takes its place."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a small file in one stroke; what stood there before survives any failure.

    Raises:
        OSError: it could not be written.
    """
    with new_file(path) as unfinished:
        write_synced(unfinished, content.encode() if isinstance(content, str) else content)


@contextmanager
def path_errors(field: str, place: Path, what: str = "written") -> Iterator[None]:
    """Whatever is done to a place that the user chose within this block.

    Raises:
        ValueError: the system refused it; names the field, the place, and what cannot be done there.
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"{field}={str(place)!r} cannot be {what} ({error.strerror}): give another folder") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Where to write a file that becomes ``path`` when the block ends well; else it is removed."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder that becomes ``path`` when the block ends well; else it is removed.

    What stood there before goes when the new one stands. A process that is killed between leaves it whole, under
    :func:`backup_path`.
    """
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
    """Where a folder lies while :func:`new_folder` puts another in its place."""
    return path.with_name(f"{BACKUP}{path.name}")


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def checksum(path: Path) -> str:
    """BLAKE2b of a file's content, in hexadecimal."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def replace_between(text: str, name: str, content: str) -> str:
    """A page with new content between its markers ``<!-- name:begin -->`` and ``<!-- name:end -->``.

    Where it has no such markers they stand at the end.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    block = f"{begin}\n{content}\n{end}"
    if begin in text and end in text:
        return text[: text.index(begin)] + block + text[text.index(end) + len(end) :]
    return text.rstrip("\n") + f"\n\n{block}\n"


def read_json(path: Path, remedy: str) -> Any:
    """The JSON data in a file.

    Raises:
        ValueError: it is none; names the file, and says what to do.
    """
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): {remedy}") from None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file.

    Raises:
        ValueError: there is none, or it is damaged; names the file.
        OSError: it may be whole, and could not be read: too many files are open, the disk failed, ...
        MemoryError: it is whole, and too large for the memory there is.
    """
    try:
        with open(path, "rb") as opened:
            found = np.load(opened, allow_pickle=False)
            return {name: found[name] for name in found.files}
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path}: there is no such file") from None
    except Exception as error:  # zipfile, zlib and NumPy raise whatever a damaged file leads them to
        if not _tells_of_damage(error, path):
            raise
        raise ValueError(f"{path}: it is damaged or no .npz file ({error})") from None


def _tells_of_damage(error: Exception, path: Path) -> bool:
    """Whether the file is to blame for what reading its arrays raised, and not the machine."""
    if isinstance(error, MemoryError):  # a damaged header can ask for any amount
        return not _has_its_checksums(path)
    if isinstance(error, OSError):  # a damaged table of contents sends the reader to where no file goes on
        missing = isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError))
        return missing or error.errno in (None, errno.EINVAL)
    return True


def _has_its_checksums(path: Path) -> bool:
    """Whether an ``.npz`` file's contents are those that were written; takes little memory, however large it is."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError):
        return False


def require_json_type(found: Any, kind: type, path: Path) -> None:
    """Raise ``ValueError``, with the name of the file, unless JSON data is a list or a dict, as asked for."""
    if not isinstance(found, kind):
        wanted = "an object {...}" if kind is dict else "a list [...]"
        raise ValueError(f"{path} holds {_shown(found)}, not {wanted}: it was not written by recollect")


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) < 60 else f"{text[:57]}..."


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names: a rename is lasting only then."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
