"""The files of CIFAR-10 and CIFAR-100, Python version: pickles, read without running anything that they name.

NumPy's own unpickling trusts its file: a damaged array can end the process. Here stand-ins take what NumPy wrote, and
make arrays of it by ``frombuffer``, which checks. pickle's fast reader trusts it too: one wrong byte can make it ask
for all memory there is. Its slow one, in Python, does not; a file takes it some hundredths of a second.
"""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recollect.files import checksum

PIXELS = 1024
"""Of a picture."""


class _Kind:
    """What is written of a ``numpy.dtype``."""

    order = "|"

    def __init__(self, name: str | bytes, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])


class _Numbers:
    """What is written of a ``numpy.ndarray``."""

    array: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, content = state
        self.array = _array(content, kind, shape, "F" if by_columns else "C").array


def _array(content: bytes, kind: _Kind, shape: tuple[int, ...], order: Any = "C") -> _Numbers:
    made = _Numbers()
    made.array = np.frombuffer(content, np.dtype(kind.order + kind.name)).reshape(shape, order=order)
    return made


def _text(found: str | bytes) -> str:
    return found.decode() if isinstance(found, bytes) else found


STAND_INS = {
    "_reconstruct": lambda *_: _Numbers(),
    "_frombuffer": _array,
    "ndarray": _Numbers,
    "dtype": _Kind,
    "encode": lambda text, _: text.encode("latin1"),
}
"""All that a file of pictures has to name, from numpy and _codecs."""


class _OnlyArrays(pickle._Unpickler):
    """Reads arrays and plain data, and runs nothing that a file may name."""

    # A bytearray is made as long as the file says; bytes are as long as they are.
    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],
    }

    def find_class(self, module: str, name: str) -> Any:
        if name in STAND_INS and module.partition(".")[0] in ("numpy", "_codecs"):
            return STAND_INS[name]
        raise ValueError(f"it names {module}.{name}")


def read_batch(file: Path, *, labels: str, classes: int, remedy: str) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels of one file.

    Args:
        file: of the unpacked archive.
        labels: name of the labels in it.
        classes: labels are 0 to one less.
        remedy: what to do where there is no such file.

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
        if not isinstance(data, _Numbers):
            raise ValueError(f"pictures are a {type(data).__name__}, no array")
        pictures, answers = data.array, _labels(given)
    except Exception as error:  # pickle raises whatever a damaged file leads it to
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
    """Labels as an array; a list is looked at first, as lists within lists may be as large as one likes."""
    if isinstance(given, _Numbers):
        return given.array
    if not isinstance(given, list):
        raise ValueError(f"labels are a {type(given).__name__}, no list")
    others = sorted({type(label).__name__ for label in given} - {"int"})
    if others:
        raise ValueError(f"labels are {' and '.join(others)}, not whole numbers")
    return np.array(given, dtype=np.int64)


def require_different(training: Sequence[Path], test: Sequence[Path]) -> None:
    """Raise ``ValueError`` where a test file is a copy of a training file: the score would be of what was learned.

    Args:
        training: files of the set; those that do not exist are left out.
        test: likewise.
    """
    known = {checksum(file): file for file in training if file.is_file()}
    for file in test:
        other = known.get(checksum(file)) if file.is_file() else None
        if other is not None:
            raise ValueError(f"{file} is the same as {other}: unpack the archive again")
