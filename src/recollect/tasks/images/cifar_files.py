"""Reader of the files of CIFAR-10 and CIFAR-100, Python version: pickles, read without running what they name.

NumPy's own unpickling trusts its file: a damaged array can end the process. Here replacement classes take what NumPy
wrote and make arrays with ``frombuffer``, which checks. pickle's fast reader trusts the file too: one wrong byte can
make it allocate all memory. Its slow reader, in Python, does not; a file takes it some hundredths of a second.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from recollect.files import checksum
from recollect.lazy import np

PIXELS = 1024  # pixels of a picture


class _Dtype:
    """The pickled parts of a ``numpy.dtype``."""

    order = "|"

    def __init__(self, name: str | bytes, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])


class _Array:
    """The pickled parts of a ``numpy.ndarray``."""

    array: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, content = state
        self.array = _make_array(content, dtype, shape, "F" if is_fortran else "C").array


def _make_array(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any = "C") -> _Array:
    made = _Array()
    made.array = np.frombuffer(content, np.dtype(dtype.order + dtype.name)).reshape(shape, order=order)
    return made


def _text(found: str | bytes) -> str:
    return found.decode() if isinstance(found, bytes) else found


REPLACEMENTS = {
    "_reconstruct": lambda *_: _Array(),
    "_frombuffer": _make_array,
    "ndarray": _Array,
    "dtype": _Dtype,
    "encode": lambda text, _: text.encode("latin1"),
}  # all names from numpy and _codecs that a file of pictures needs


class _OnlyArrays(pickle._Unpickler):
    """Unpickler of arrays and plain data that runs nothing else that a file names."""

    # A bytearray is allocated at the length that the file states; bytes are as long as the data.
    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],
    }

    def find_class(self, module: str, name: str) -> Any:
        if name in REPLACEMENTS and module.partition(".")[0] in ("numpy", "_codecs"):
            return REPLACEMENTS[name]
        raise ValueError(f"it names {module}.{name}")


def read_batch(file: Path, *, labels: str, classes: int, remedy: str) -> tuple[np.ndarray, np.ndarray]:
    """Read pictures and labels of one file.

    Args:
        file: of the unpacked archive.
        labels: key of the labels in it.
        classes: number of labels.
        remedy: advice for a missing file.

    Returns:
        uint8 ``[n, 3072]``, all red, all green, all blue values; int64 ``[n]``.

    Raises:
        ValueError: the file is missing, damaged or of another kind, or a label is wrong; names file and picture.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist: {remedy}")
    kind = "CIFAR-10" if classes == 10 else "CIFAR-100"
    try:
        found = _OnlyArrays(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        data, given = found[b"data"], found[labels.encode()]
        if not isinstance(data, _Array):
            raise ValueError(f"pictures are a {type(data).__name__}, no array")
        pictures, answers = data.array, _labels(given)
    except Exception as error:  # pickle raises anything for a damaged file
        raise ValueError(f"{file} is damaged, or no batch of {kind} ({error}): unpack the archive again") from None
    if pictures.dtype != np.uint8 or pictures.ndim != 2 or pictures.shape[1] != 3 * PIXELS or not len(pictures):
        raise ValueError(f"{file}: pictures are {pictures.dtype} {list(pictures.shape)}, not uint8 [n, 3072]")
    if answers.shape != (len(pictures),):
        raise ValueError(f"{file}: {list(answers.shape)} labels for {len(pictures)} pictures")
    if answers.dtype.kind not in "iu":
        raise ValueError(f"{file}: labels are {answers.dtype}, not whole numbers: unpack the archive again")
    wrong = np.flatnonzero((answers < 0) | (answers >= classes))
    if len(wrong):
        number, label = "ten" if classes == 10 else str(classes), answers[wrong[0]]
        raise ValueError(
            f"{file}, picture {wrong[0]}: the label is {label}; there are {number} classes, 0..{classes - 1}"
        )
    return pictures, answers.astype(np.int64)


def _labels(given: Any) -> np.ndarray:
    """Convert labels to an array; a list is checked first, as nested lists may be of any size."""
    if isinstance(given, _Array):
        return given.array
    if not isinstance(given, list):
        raise ValueError(f"labels are a {type(given).__name__}, no list")
    others = sorted({type(label).__name__ for label in given} - {"int"})
    if others:
        raise ValueError(f"labels are {' and '.join(others)}, not whole numbers")
    return np.array(given, dtype=np.int64)


def require_different(training: Sequence[Path], test: Sequence[Path]) -> None:
    """Raise ``ValueError`` where a test file is a copy of a training file; missing files are ignored."""
    known = {checksum(file): file for file in training if file.is_file()}
    for file in test:
        other = known.get(checksum(file)) if file.is_file() else None
        if other is not None:
            raise ValueError(f"{file} is the same as {other}: unpack the archive again")
