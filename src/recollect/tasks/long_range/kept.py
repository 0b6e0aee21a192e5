"""Rows that were made once and are kept on disk: whole, checked by digest, made again where they are damaged."""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from recollect.files import WRITING, read_arrays

FOLDER = "RECOLLECT_DATA"
"""Environment variable that names the folder of kept and downloaded data."""


def data_folder() -> Path:
    """Where data is kept and looked for: ``$RECOLLECT_DATA``, or ``~/.cache/recollect``."""
    return Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "recollect")


def kept(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of a file; made, and written in one stroke, where there is none or it is damaged.

    Args:
        path: of the file.
        make: makes the arrays; always the same ones.
    """
    if path.is_file():
        try:
            return _read(path)
        except ValueError as error:
            warnings.warn(f"{error}: it is made again", stacklevel=2)
    arrays = dict(make())
    _write(path, arrays)
    return arrays


def _read(path: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(path)
    expected = str(arrays.pop("digest", ""))
    if digest(arrays) != expected:
        raise ValueError(f"{path}: it is damaged (its contents do not have the digest that it names)")
    return arrays


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Runs side by side may make the same file: each writes one of its own, and the last to be ready wins.
    unfinished = path.with_name(f"{WRITING}{os.getpid()}-{path.name}")
    try:
        with open(unfinished, "wb") as file:
            np.savez(file, digest=np.array(digest(arrays)), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Of names, kinds, shapes and contents."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
