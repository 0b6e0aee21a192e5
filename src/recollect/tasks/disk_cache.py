"""A cache of computed arrays on disk: written atomically, checked by digest, recomputed where a file is damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from recollect.config import require
from recollect.files import UNFINISHED, read_arrays
from recollect.lazy import np
from recollect.machine import has_process_ended

FOLDER = "RECOLLECT_DATA"  # environment variable with the folder of cached and downloaded data


def data_folder() -> Path:
    """Return the folder of cached and downloaded data: ``$RECOLLECT_DATA``, or ``~/.cache/recollect``."""
    return expand_folder(os.environ.get(FOLDER) or "~/.cache/recollect", FOLDER)


def task_folder(path: str, name: str) -> Path:
    """Return the folder that a task's ``path`` means; empty is ``name`` below the data folder."""
    return expand_folder(path, "path") if path else data_folder() / name


def expand_folder(given: str, field: str) -> Path:
    """Expand a leading ``~`` of a folder.

    Raises:
        ValueError: that user has no home.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise ValueError(f"{field}={given!r}: there is no such home: give the whole path") from None


def cached_arrays(
    path: Path, make: Callable[[], Mapping[str, np.ndarray]], config: Sequence[int]
) -> dict[str, np.ndarray]:
    """Read arrays from a file; make them and write the file atomically where it is missing or damaged.

    Args:
        path: of the file.
        make: makes the arrays, deterministically.
        config: identifies the arrays. A file with another config, or none, is made again.

    Raises:
        ValueError: there is no such file and none can be written; found before anything is made.
    """
    description = json.dumps(config)
    if os.path.isfile(path):  # not path.is_file(), which raises where the folder may not be read
        try:
            return _read(path, description)
        except ValueError as error:
            warnings.warn(f"{error}: it is made again", stacklevel=2)
    unfinished = _create_unfinished(path)
    try:
        arrays = dict(make())
        written = {**arrays, "config": np.array(description)}
        with open(unfinished, "wb") as file:
            np.savez(file, digest=np.array(digest(written)), **written)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return arrays


def _read(path: Path, config: str) -> dict[str, np.ndarray]:
    arrays = read_arrays(path)
    expected = str(arrays.pop("digest", ""))
    if digest(arrays) != expected:
        raise ValueError(f"{path}: it is damaged (its contents do not match its digest)")
    found = str(arrays.pop("config", "no config"))
    if found != config:
        raise ValueError(f"{path}: it holds rows of {found}, not of {config}")
    return arrays


def _create_unfinished(path: Path) -> Path:
    """Create an empty file beside the target, which is written and renamed later: an unwritable folder fails early."""
    # Parallel runs may make the same file: each writes its own, and the last one wins. They may run on several machines
    # that share the folder, so the name holds the machine beside the process.
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    unfinished = path.with_name(f"{UNFINISHED}{os.getpid()}@{host}@{path.name}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder there")
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path, host)
        unfinished.touch()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        remedy = f"{reason}: give a folder that can be written (an empty one takes ${FOLDER})"
        require(False, "folder", str(path.parent), remedy)
    return unfinished


def _remove_stale(path: Path, host: str) -> None:
    """Remove unfinished files of processes of this machine that ended while they wrote."""
    old_style = f"-{re.escape(path.name)}"  # earlier versions wrote names without the machine
    ours = re.compile(rf"{re.escape(UNFINISHED)}(\d+)(@{re.escape(host)}@.+|{old_style})")
    for stale in path.parent.iterdir():
        match = ours.fullmatch(stale.name)
        if match and has_process_ended(int(match[1])):
            with suppress(OSError):  # another user's, or already removed
                stale.unlink()


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash names, dtypes, shapes and contents."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
