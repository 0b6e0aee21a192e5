"""The files of CIFAR-10 and CIFAR-100, Python version: pickles, read with all names forbidden but NumPy's arrays."""

import codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

PIXELS = 1024
"""Of a picture."""

NAMED = {
    "_reconstruct": np.empty(0).__reduce__()[0],
    "ndarray": np.ndarray,
    "dtype": np.dtype,
    "encode": codecs.encode,
}
"""All that a file of pictures has to name."""


class _OnlyArrays(pickle.Unpickler):
    """Reads arrays and plain data, and runs nothing else that a file may name."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if global_name in NAMED and module_name.partition(".")[0] in ("numpy", "_codecs"):
            return NAMED[global_name]
        raise ValueError(f"it names {module_name}.{global_name}")


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
        with file.open("rb") as opened:
            found = _OnlyArrays(opened, encoding="bytes").load()
        pictures, answers = np.asarray(found[b"data"]), np.asarray(found[labels.encode()])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"{file} is damaged, or no batch of {kind} ({error}): unpack the archive again") from None
    if pictures.dtype != np.uint8 or pictures.ndim != 2 or pictures.shape[1] != 3 * PIXELS or not len(pictures):
        raise ValueError(f"{file}: pictures are {pictures.dtype} {list(pictures.shape)}, not uint8 [n, 3072]")
    if answers.shape != (len(pictures),) or answers.dtype.kind not in "iu":
        raise ValueError(f"{file}: {list(answers.shape)} labels for {len(pictures)} pictures")
    wrong = np.flatnonzero((answers < 0) | (answers >= classes))
    if len(wrong):
        number, label = "ten" if classes == 10 else str(classes), answers[wrong[0]]
        raise ValueError(
            f"{file}, picture {wrong[0]}: the label is {label}; there are {number} classes, 0..{classes - 1}"
        )
    return pictures, answers.astype(np.int64)
