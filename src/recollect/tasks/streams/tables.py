"""Files of others as arrays of rows: npz, CSV, Parquet, Hugging Face data sets.

An npz file has them already. A table becomes one of three things, whichever fits:

    lists       a line is a row: cells of the input columns hold lists of numbers (Parquet, Hugging Face)
    steps       a line is a step: a column ``sequence`` says which row it belongs to, lines are in order of time
    numbers     a line is a row: the input columns are its steps, one number each
"""

import csv
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from recollect.files import read_arrays

Table = Mapping[str, Sequence[Any]]


class Rows(NamedTuple):
    """n rows of at most t steps."""

    inputs: np.ndarray
    """``[n, t]`` or ``[n, t, d]``, zeros behind the end of a row."""
    targets: np.ndarray | None
    """``[n]``, ``[n, t]`` or ``[n, t, k]``: numbers or text; None where there are none."""
    lengths: np.ndarray
    """long ``[n]``: steps of each row."""
    split: np.ndarray | None
    """Text ``[n]``: part that each row belongs to; None where nobody says."""
    asked: np.ndarray | None
    """bool ``[n, t]``: steps at which an answer is wanted; None means all."""


def read_rows(path: str, *, sequence: str, inputs: Sequence[str], target: str) -> Rows:
    """The rows of a file.

    Args:
        path: of an npz, CSV or Parquet file, of a folder that ``datasets.save_to_disk`` wrote, or ``hf:NAME``.
        sequence: name of the column that says which row a step belongs to.
        inputs: names of the input columns; empty takes all that are nothing else.
        target: name of the column of answers.

    Raises:
        ValueError: no such file, a package is missing, or what is in it does not fit together.
    """
    if path.endswith(".npz"):
        return _from_npz(path)
    table = _read_table(path)
    names = list(inputs) or [name for name in table if name not in (sequence, target, "split")]
    missing = [name for name in names if name not in table]
    if missing or not names:
        raise ValueError(f"{path} has no input column {', '.join(missing)}: it has {', '.join(table)}")
    if isinstance(table[names[0]][0], (list, tuple, np.ndarray)):
        return _from_lists(table, names, target)
    if sequence in table:
        return _from_steps(table, names, sequence, target)
    columns = np.stack([_numbers(table[name], name) for name in names], 1)
    return _rows(list(columns), list(table[target]) if target in table else None, _split(table))


def _from_npz(path: str) -> Rows:
    arrays = read_arrays(_existing(path))
    if "inputs" not in arrays or arrays["inputs"].ndim not in (2, 3):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"{path} needs an array inputs [rows, steps] or [rows, steps, width]; it has {shapes}")
    inputs = arrays["inputs"]
    count, steps = inputs.shape[:2]
    lengths = arrays.get("lengths", np.full(count, steps))
    if lengths.shape != (count,) or not ((lengths >= 1) & (lengths <= steps)).all():
        raise ValueError(f"{path}: lengths must be {count} numbers from 1 to {steps}")
    for name, shapes in {"targets": [(count,), (count, steps)], "split": [(count,)], "asked": [(count, steps)]}.items():
        if name in arrays and arrays[name].shape[:2] not in shapes:
            expected = " or ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"{path}: {name} has shape {list(arrays[name].shape)}; it must be {expected}")
    split = arrays.get("split")
    return Rows(inputs, arrays.get("targets"), lengths.astype(np.int64), split, arrays.get("asked"))


def _read_table(path: str) -> Table:
    if path.startswith("hf:"):
        return _columns(_package("datasets").load_dataset(path.removeprefix("hf:"), split="train"))
    file = _existing(path)
    if file.is_dir():
        return _columns(_package("datasets").load_from_disk(path))
    if file.suffix == ".csv":
        with file.open(newline="") as lines:
            reader = csv.DictReader(lines)
            table: dict[str, list[Any]] = {name: [] for name in reader.fieldnames or ()}
            for line in reader:
                for name, column in table.items():
                    column.append(line[name])
    elif file.suffix == ".parquet":
        table = _package("pyarrow.parquet").read_table(path).to_pydict()
    else:
        raise ValueError(f"path={path!r}: give a file .npz, .csv or .parquet, a saved data set's folder, or hf:NAME")
    if not table or not len(next(iter(table.values()))):
        raise ValueError(f"{path} is empty: give a table with a line of names and at least three rows")
    return table


def _columns(data: Any) -> Table:
    if hasattr(data, "keys"):
        raise ValueError(f"this data set has the parts {', '.join(data.keys())}: save one of them, with a column split")
    return {name: data[name] for name in data.column_names}


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise ValueError(
            f"this file needs the package {package}: run pip install {package}, or use npz or CSV"
        ) from None


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise ValueError(f"path={path!r}: there is no such file")
    return Path(path)


def _from_lists(table: Table, names: Sequence[str], target: str) -> Rows:
    count = len(table[names[0]])
    rows = [np.stack([np.asarray(table[name][row]) for name in names], -1) for row in range(count)]
    rows = [row[..., 0] if len(names) == 1 else row for row in rows]
    return _rows(rows, list(table[target]) if target in table else None, _split(table))


def _from_steps(table: Table, names: Sequence[str], sequence: str, target: str) -> Rows:
    lines: dict[Any, list[int]] = {}
    for line, key in enumerate(table[sequence]):
        lines.setdefault(key, []).append(line)
    columns = np.stack([_numbers(table[name], name) for name in names], -1)
    columns = columns[:, 0] if len(names) == 1 and columns.dtype.kind == "i" else columns
    rows, answers = [columns[line] for line in lines.values()], None
    if target in table:
        answers = [[table[target][line] for line in group] for group in lines.values()]
        if all(len(set(group)) == 1 for group in answers):  # one answer for a row
            answers = [group[0] for group in answers]
    split = _split(table)
    return _rows(rows, answers, None if split is None else split[[group[0] for group in lines.values()]])


def _rows(rows: list[np.ndarray], targets: list[Any] | None, split: np.ndarray | None) -> Rows:
    """Rows of different length, padded."""
    lengths = np.array([len(row) for row in rows])
    found = None
    if targets is not None:
        several = isinstance(targets[0], (list, tuple, np.ndarray))
        wrong = [row for row, answers in enumerate(targets) if several and len(answers) != lengths[row]]
        if wrong:
            raise ValueError(f"row {wrong[0]} has {lengths[wrong[0]]} steps and {len(targets[wrong[0]])} targets")
        found = _pad([_answers(answers) for answers in targets]) if several else _answers(targets)
    return Rows(_pad(rows), found, lengths, split, None)


def _pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    longest = max(map(len, rows))
    return np.stack([np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]) for row in rows])


def _numbers(cells: Sequence[Any], name: str) -> np.ndarray:
    try:
        return _answers(cells, strict=True)
    except ValueError:
        raise ValueError(
            f"column {name!r} holds {cells[0]!r}: inputs are numbers; name the columns with inputs"
        ) from None


def _answers(cells: Any, *, strict: bool = False) -> np.ndarray:
    """Cells, which may be text, as integers where all are, else as floats, else (unless ``strict``) as text."""
    array = np.asarray(cells)
    for kind in (np.int64, np.float64):
        if array.dtype.kind in "US":
            try:
                return array.astype(kind)
            except ValueError:
                continue
    if strict and array.dtype.kind not in "iufb":
        raise ValueError("not numbers")
    return array


def _split(table: Table) -> np.ndarray | None:
    return np.asarray(table["split"]) if "split" in table else None
