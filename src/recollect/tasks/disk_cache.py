"""Rows that were made once and are kept on disk: whole, checked by digest, made again where they are damaged."""

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

import numpy as np

from recollect.config import require
from recollect.files import UNFINISHED, read_arrays
from recollect.machine import has_process_ended

FOLDER = "RECOLLECT_DATA"
"""Environment variable that names the folder of kept and downloaded data."""


def data_folder() -> Path:
    """Where data is kept and looked for: ``$RECOLLECT_DATA``, or ``~/.cache/recollect``."""
    return expand_folder(os.environ.get(FOLDER) or "~/.cache/recollect", FOLDER)


def expand_folder(given: str, field: str) -> Path:
    """The folder that a field means, which may begin with ``~``.

    Raises:
        ValueError: nobody knows where that user's home is.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise ValueError(f"{field}={given!r}: there is no such home: give the whole path") from None


def cached_arrays(
    path: Path, make: Callable[[], Mapping[str, np.ndarray]], config: Sequence[int]
) -> dict[str, np.ndarray]:
    """Arrays of a file; made, and written in one stroke, where there is none or it is damaged.

    Args:
        path: of the file.
        make: makes the arrays; always the same ones.
        config: which arrays they are. A file that names another config, or none, is made again.

    Raises:
        ValueError: there is no such file and none can be written; this is found before anything is made.
    """
    said = json.dumps(config)
    if os.path.isfile(path):  # not path.is_file(), which raises where a folder may not be looked into
        try:
            return _read(path, said)
        except ValueError as error:
            warnings.warn(f"{error}: it is made again", stacklevel=2)
    unfinished = _begun(path)
    try:
        arrays = dict(make())
        _write(unfinished, {**arrays, "config": np.array(said)})
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return arrays


def _read(path: Path, config: str) -> dict[str, np.ndarray]:
    arrays = read_arrays(path)
    expected = str(arrays.pop("digest", ""))
    if digest(arrays) != expected:
        raise ValueError(f"{path}: it is damaged (its contents do not have the digest that it names)")
    found = str(arrays.pop("config", "no config"))
    if found != config:
        raise ValueError(f"{path}: it holds rows of {found}, not of {config}")
    return arrays


def _begun(path: Path) -> Path:
    """An empty file beside the target, to be written and renamed: so a folder that cannot be written shows early."""
    # Runs side by side may make the same file: each writes one of its own, and the last to be ready wins. They may
    # also be on several machines that share the folder, where numbers of processes say nothing without the machine's.
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    unfinished = path.with_name(f"{UNFINISHED}{os.getpid()}@{host}@{path.name}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder there")
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path, host)
        unfinished.touch()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        remedy = f"{reason}: give a folder that can be written (an empty one takes ${FOLDER})"
        require(False, "folder", str(path.parent), remedy)
    return unfinished


def _sweep(path: Path, host: str) -> None:
    """Remove what processes of this machine left beside a file that were killed while they wrote."""
    of_old = f"-{re.escape(path.name)}"  # such names said nothing of the machine
    ours = re.compile(rf"{re.escape(UNFINISHED)}(\d+)(@{re.escape(host)}@.+|{of_old})")
    for stale in path.parent.iterdir():
        match = ours.fullmatch(stale.name)
        if match and has_process_ended(int(match[1])):
            with suppress(OSError):  # somebody else's, or already removed
                stale.unlink()


def _write(unfinished: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with open(unfinished, "wb") as file:
        np.savez(file, digest=np.array(digest(arrays)), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Of names, kinds, shapes and contents."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
