"""Readers of single files of a dataset: JSON, and tables whose columns are checked against ``info.json``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recollect.evaluation.lerobot.layout import INFO, decode_picture, load_packages
from recollect.files import read_json

REMEDY = "give a folder of LeRobot's format v3.0"


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: it is missing or invalid.
    """
    try:
        found = read_json(path, REMEDY)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file: {REMEDY}") from None
    except OSError as error:
        raise ValueError(f"{path} is not JSON ({error}): {REMEDY}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: it holds no object {{...}}: {REMEDY}")
    return found


def read_table(path: Path, is_read: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Read the columns of a parquet file whose names pass ``is_read``, as pyarrow arrays.

    Raises:
        ValueError: it is missing, damaged or cut off.
    """
    arrow, parquet, _ = load_packages()
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file: {REMEDY}")
    try:
        names = [name for name in parquet.read_schema(path).names if is_read(name)]
        table = parquet.ParquetFile(path).read(columns=names)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: it cannot be read ({str(error).splitlines()[0]}): damaged, or cut off") from None
    return {name: table[name] for name in table.column_names}


def column_values(path: Path, name: str, column: Any, feature: Mapping[str, Any]) -> np.ndarray:
    """Convert a column of pyarrow to an array ``[rows, ...]``.

    Args:
        path: of the file, for messages.
        name: of the column.
        column: of pyarrow.
        feature: expected ``dtype`` and ``shape``.

    Raises:
        ValueError: a row is empty, or the column differs from the feature.
    """
    if feature["dtype"] == "image":
        return _decode_pictures(path, name, column, feature)
    if column.null_count:
        row = next(row for row, value in enumerate(column) if not value.is_valid)
        raise ValueError(f"{path}: row {row}: {name} is empty")
    arrow, _, _ = load_packages()
    shape: list[int] = []
    rows = len(column)
    flat = column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column
    while (
        arrow.types.is_list(flat.type)
        or arrow.types.is_large_list(flat.type)
        or arrow.types.is_fixed_size_list(flat.type)
    ):
        sizes = np.asarray(arrow.compute.list_value_length(flat))
        if len(sizes) and (sizes != sizes[0]).any():
            row = int((sizes != sizes[0]).argmax()) // max(1, int(np.prod(shape)))
            raise ValueError(f"{path}: row {row}: {name} has another number of entries than the rows before")
        shape.append(int(sizes[0]) if len(sizes) else 0)
        flat = flat.flatten()
    found = flat.to_numpy(zero_copy_only=False)
    wanted = feature["shape"]
    if wanted not in (tuple(shape), tuple(shape) or (1,)):
        raise ValueError(f"{path}: {name} has the shape {shape}, and {INFO} says {list(wanted)}")
    if found.dtype != np.dtype(feature["dtype"]):
        raise ValueError(f"{path}: {name} is {found.dtype}, and {INFO} says {feature['dtype']}")
    return found.reshape(rows, *wanted)


def _decode_pictures(path: Path, name: str, column: Any, feature: Mapping[str, Any]) -> np.ndarray:
    images = []
    for row, value in enumerate(column):
        entry = value.as_py()
        data = entry.get("bytes") if isinstance(entry, dict) else entry
        if not data:
            raise ValueError(f"{path}: row {row}: {name} holds no picture")
        try:
            images.append(decode_picture(data))
        except ValueError as error:
            raise ValueError(f"{path}: row {row}: {name}: {error}") from None
        require_shape(images[-1], feature, f"{path}: row {row}: {name}")
    return np.stack(images)


def is_dtype(name: str) -> bool:
    """Return whether this names a type of numbers."""
    try:
        return np.dtype(name).kind in "biuf"
    except TypeError:
        return False


def require_none(wrong: Any, path: Path, what: Any) -> None:
    """Raise ``ValueError`` at the first row that is wrong."""
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{path}: row {row}: {what(row)}")


def require_shape(image: np.ndarray, feature: Mapping[str, Any], at: str) -> None:
    """Raise ``ValueError`` unless a picture has the shape of its feature, which may have the channels first."""
    shape = feature["shape"]
    if image.shape != shape and image.shape != (*shape[1:], *shape[:1]):
        raise ValueError(f"{at} has {list(image.shape)} pixels and channels, and {INFO} says {list(shape)}")
