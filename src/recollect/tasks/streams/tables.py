"""Readers of user files as arrays of rows: npz, CSV, Parquet, Hugging Face data sets.

An npz file holds the arrays. A table is read in one of three ways:

    lists       a line is a row: cells of the input columns hold lists of numbers (Parquet, Hugging Face)
    steps       a line is a step: the column sequence names its row, lines are in order of time
    numbers     a line is a row: the input columns are its steps, one number each
"""

from __future__ import annotations

import csv
import difflib
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TextIO

from recollect.config import require
from recollect.files import read_arrays
from recollect.lazy import np

SEQUENCE, TARGET = "sequence", "target"  # default names of columns
SEPARATORS = ",;\t|"  # of CSV files; the first where a file has none


MOST_EXACT = 2**53  # whole numbers up to this are floats without loss
PLAIN_INTEGER = re.compile(r"0|-?[1-9]\d*")
PADDED = re.compile(r"\s|\+|-?0\d")
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class Table(NamedTuple):
    """A file with named columns."""

    path: str
    columns: Mapping[str, Sequence[Any]]
    lines: Sequence[int] = ()  # line of each row in the file; empty where files have no lines

    def where(self, row: int) -> str:
        """Name the place of a row, for errors."""
        return f"{self.path}, line {self.lines[row]}" if self.lines else f"{self.path}, row {row}"


class Rows(NamedTuple):
    """n rows of at most t steps."""

    inputs: np.ndarray  # [n, t] or [n, t, d], zeros behind the end of a row
    targets: np.ndarray | None  # [n], [n, t] or [n, t, k]: numbers or text; None where there are none
    lengths: np.ndarray  # long [n]: steps of each row
    split: np.ndarray | None  # text [n]: part that each row belongs to; None where the file has no split
    asked: np.ndarray | None  # bool [n, t]: steps at which an answer is wanted; None means all
    input_names: tuple[str, ...] = ()  # columns of the d inputs; empty where they have no names
    target_names: tuple[str, ...] = ()  # column of the target, if it is one number
    row_names: tuple[Any, ...] = ()  # of the n rows: cells of the column ``sequence``; empty without one
    from_cells: bool = False  # whether each number had a cell of a table, not one of an array or of a list


def read_rows(path: str, *, sequence: str, inputs: Sequence[str], target: str) -> Rows:
    """Read the rows of a file.

    Args:
        path: of an npz, CSV or Parquet file, of a folder that ``datasets.save_to_disk`` wrote, or ``hf:NAME``.
        sequence: column with the row that a step belongs to.
        inputs: input columns; empty takes all that have no other role.
        target: column of answers.

    Raises:
        ValueError: no such file, a package is missing, or the contents are inconsistent.
    """
    if path.endswith(".npz"):
        for field, given in (("sequence", sequence != SEQUENCE), ("inputs", inputs), ("target", target != TARGET)):
            if given:
                raise ValueError(
                    f"{field}: {path} is no table and has no columns: leave it out, and name its arrays so"
                )
        return _from_npz(path)
    table = _read_table(path)
    columns = table.columns
    for field, name, default in (("sequence", sequence, SEQUENCE), ("target", target, TARGET)):
        near = _similar_name(name, columns)
        if near is not None and near not in inputs:
            raise ValueError(
                f"{path} has a column {near!r}, and no {name!r}: rename it, or set {field}={near!r}; if it is an "
                "input, list the inputs"
            )
        if name != default and name not in columns:
            raise ValueError(f"{field}={name!r}: {path} has no such column: it has {', '.join(columns)}")
    names = list(inputs) or [name for name in columns if name not in (sequence, target, "split")]
    index = next((name for name in names if PANDAS_INDEX.fullmatch(name) and name not in inputs), None)
    if index is not None:
        raise ValueError(
            f"{path}: column {index!r} is the index of a pandas table, mostly row numbers: write it with index=False, "
            "or list the inputs"
        )
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"{path} has no input column {', '.join(missing)}: it has {', '.join(columns)}")
    if not names:
        raise ValueError(f"{path} has no inputs: add a column of numbers beside {', '.join(columns)}")
    for name in (sequence, target):
        _require_filled(table, name)
    rows = _from_table(table, names, sequence, target)
    lists = any(_is_list(cell) for cell in columns[names[0]])
    per_step = sequence in columns or lists
    width = rows.inputs.shape[2] if rows.inputs.ndim == 3 else 1
    several = rows.targets is None or rows.targets.ndim > 2
    return rows._replace(
        input_names=tuple(names) if per_step and width == len(names) else (),
        target_names=() if several else (target,),
        from_cells=not lists,
    )


def _similar_name(name: str, given: Iterable[str]) -> str | None:
    """Return a name that is nearly the wanted one, such as ``Targets`` for ``target``, unless this is given too."""
    plain = {str(one).strip().lower(): one for one in given}
    if name in plain.values():
        return None
    near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.85)
    return plain[near[0]] if near else None


def _from_table(table: Table, names: Sequence[str], sequence: str, target: str) -> Rows:
    columns = table.columns
    if any(_is_list(cell) for cell in columns[names[0]]):
        return _from_lists(table, names, target)
    if sequence in columns:
        return _from_steps(table, names, sequence, target)
    numbers = np.stack([_numbers(table, name) for name in names], 1)
    return _rows(table, list(numbers), list(columns[target]) if target in columns else None, _split(table))


def _from_npz(path: str) -> Rows:
    arrays = {name: _decode(array, f"{path}: {name}") for name, array in read_arrays(_existing(path)).items()}
    if "inputs" not in arrays or arrays["inputs"].ndim not in (2, 3):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"{path} needs an array inputs [rows, steps] or [rows, steps, width]; it has {shapes}")
    for name in ("targets", "lengths", "split", "asked"):
        near = _similar_name(name, arrays)
        if near is not None:
            raise ValueError(f"{path} has an array {near!r}, and no {name!r}: rename it, or take it out")
    inputs = arrays["inputs"]
    require(0 not in inputs.shape[1:], "inputs", list(inputs.shape), "give rows of at least one step and one number")
    if inputs.dtype.kind not in "iufb":
        raise ValueError(f"{path}: inputs are {inputs.dtype}: give numbers, such as a number for each word")
    count, steps = inputs.shape[:2]
    if inputs.dtype.kind in "iu":
        _warn_of_rounding(inputs, inputs, lambda row: f"{path}: inputs of row {row}")
    lengths = arrays.get("lengths", np.full(count, steps))
    if lengths.shape != (count,) or lengths.dtype.kind not in "iuf":
        found = f"{lengths.dtype} {list(lengths.shape)}"
        raise ValueError(f"{path}: lengths must be {count} whole numbers from 1 to {steps}, and are {found}")
    wrong = np.flatnonzero((lengths != np.floor(lengths)) | ~((lengths >= 1) & (lengths <= steps)))
    if len(wrong):
        raise ValueError(
            f"{path}: lengths must be {count} whole numbers from 1 to {steps}, and that of row {wrong[0]} is "
            f"{lengths[wrong[0]]}: leave out rows without steps"
        )
    for name, shapes in {"targets": [(count,), (count, steps)], "split": [(count,)], "asked": [(count, steps)]}.items():
        if name in arrays and arrays[name].shape[: 2 if name == "targets" else None] not in shapes:
            expected = " or ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"{path}: {name} has shape {list(arrays[name].shape)}; it must be {expected}")
    asked = arrays.get("asked")
    if asked is not None:
        wrong = asked[~np.isin(asked, (0, 1))]
        if len(wrong):
            raise ValueError(f"{path}: asked holds {wrong[0]}: give True and False, or 1 and 0")
        asked = asked.astype(bool)
    return Rows(inputs, arrays.get("targets"), lengths.astype(np.int64), arrays.get("split"), asked)


def _decode(array: np.ndarray, what: str) -> np.ndarray:
    """Return an array of bytes as text, and any other one unchanged."""
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} holds bytes that are not in UTF-8 ({error}): save it as an array of text") from None


def _read_table(path: str) -> Table:
    if path.startswith("hf:"):
        return _columns(path, _package("datasets").load_dataset(path.removeprefix("hf:"), split="train"))
    file = _existing(path)
    if file.is_dir():
        saved = any((file / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))
        require(saved, "path", path, "this folder holds no data set of datasets.save_to_disk: name a file in it")
        return _columns(path, _package("datasets").load_from_disk(path))
    if file.suffix == ".csv":
        table = _read_csv(path)
    elif file.suffix == ".parquet":
        parquet = _package("pyarrow.parquet")
        try:
            table = Table(path, parquet.read_table(path).to_pydict())
        except (ValueError, OSError, RuntimeError) as error:  # pyarrow raises any of these for a damaged file
            raise ValueError(f"{path}: it is damaged or no Parquet file ({error}): write it again") from None
    else:
        raise ValueError(f"path={path!r}: give a file .npz, .csv or .parquet, a saved data set's folder, or hf:NAME")
    if not table.columns or not len(next(iter(table.columns.values()))):
        raise ValueError(f"{path} is empty: give a table with a line of names and at least three rows")
    return table


def _read_csv(path: str) -> Table:
    lines: list[int] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as opened:  # spreadsheets write a byte order mark
            reader = csv.DictReader(opened, delimiter=_find_separator(opened), strict=True)
            names = list(reader.fieldnames or ())
            if not all(name.strip() for name in names):
                place = [name.strip() for name in names].index("") + 1
                raise ValueError(
                    f"{path}, line 1: column {place} has no name: give it one, or take it out (pandas writes such a "
                    "column of row numbers unless index=False)"
                )
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise ValueError(f"{path}, line 1: two columns are called {twice[0]!r}: give each its own name")
            columns: dict[str, list[Any]] = {name: [] for name in names}
            for cells in reader:
                lines.append(reader.line_num)
                if None in cells:
                    raise ValueError(
                        f"{path}, line {reader.line_num}: it has more cells than there are names in the first line: "
                        f"quote cells that contain {reader.reader.dialect.delimiter!r}"
                    )
                for name, column in columns.items():
                    column.append(cells[name])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: it is not in UTF-8 ({error}): save it as CSV in UTF-8") from None
    except csv.Error as error:
        line = lines[-1] if lines else 1
        raise ValueError(f"{path}: no valid CSV after line {line} ({error}): look there for an open quote") from None
    return Table(path, columns, lines)


def _find_separator(opened: TextIO) -> str:
    """Return the separator that is most frequent in the first line, a comma if there is none, and rewind the file."""
    names = opened.readline()
    opened.seek(0)
    return max(SEPARATORS, key=names.count)


def _columns(path: str, data: Any) -> Table:
    if hasattr(data, "keys"):
        parts = ", ".join(data.keys())
        raise ValueError(f"{path}: this data set has the parts {parts}: save one of them, with a column split")
    return Table(path, {name: data[name] for name in data.column_names})


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.split(".")[0]
        remedy = f"run pip install {package}, or use npz or CSV"
        raise ValueError(f"this file needs the package {package}: {remedy}") from None


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise ValueError(f"path={path!r}: there is no such file")
    return Path(path)


def _require_filled(table: Table, name: str) -> None:
    """Raise ``ValueError`` where a cell of this column is empty: it would become a class, or a sequence."""
    for row, cell in enumerate(table.columns.get(name, ())):
        if _is_empty(cell):
            raise ValueError(f"{table.where(row)}: column {name!r} is empty: fill the cell, or remove the row")


def _is_list(cell: Any) -> bool:
    return isinstance(cell, (list, tuple, np.ndarray))


def _is_empty(cell: Any) -> bool:
    if _is_list(cell):
        return getattr(cell, "dtype", np.dtype(object)).kind in "OUS" and any(map(_is_empty, cell))
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _from_lists(table: Table, names: Sequence[str], target: str) -> Rows:
    rows = []
    for row in range(len(table.columns[names[0]])):
        parts = [_list(table, name, row) for name in names]
        for name, part in zip(names, parts, strict=True):
            if part.shape != parts[0].shape:
                raise ValueError(
                    f"{table.where(row)}: column {name!r} has a list {list(part.shape)} and {names[0]!r} one "
                    f"{list(parts[0].shape)}: a row has one number of each at every step"
                )
        rows.append(parts[0] if len(names) == 1 else np.stack(parts, -1))
    targets = list(table.columns[target]) if target in table.columns else None
    return _rows(table, rows, targets, _split(table))


def _list(table: Table, name: str, row: int) -> np.ndarray:
    cell = table.columns[name][row]
    try:
        array = np.asarray(cell)
    except ValueError:  # lists in it differ in length
        array = np.empty(0)
    if not _is_list(cell) or not array.size or array.dtype.kind not in "iufb":
        raise ValueError(f"{table.where(row)}: column {name!r} holds {str(cell)[:60]}: give a list of numbers")
    return array


def _from_steps(table: Table, names: Sequence[str], sequence: str, target: str) -> Rows:
    lines: dict[Any, list[int]] = {}
    for line, key in enumerate(table.columns[sequence]):
        lines.setdefault(key, []).append(line)
    columns = np.stack([_numbers(table, name) for name in names], -1)
    columns = columns[:, 0] if len(names) == 1 and columns.dtype.kind == "i" else columns
    rows, answers = [columns[line] for line in lines.values()], None
    if target in table.columns:
        cells = table.columns[target]
        answers = [[cells[line] for line in group] for group in lines.values()]
        if not _is_list(cells[0]) and all(len(set(group)) == 1 for group in answers):  # one per row
            answers = [group[0] for group in answers]
    split = _split(table)
    if split is not None:
        for group in lines.values():
            other = next((line for line in group if split[line] != split[group[0]]), None)
            if other is not None:
                raise ValueError(
                    f"{table.where(other)}: column 'split' holds {str(split[other])!r}, and {str(split[group[0]])!r} "
                    "earlier in the same sequence: a sequence belongs to one part"
                )
        split = split[[group[0] for group in lines.values()]]
    return _rows(table, rows, answers, split)._replace(row_names=tuple(lines))


def _rows(table: Table, rows: list[np.ndarray], targets: list[Any] | None, split: np.ndarray | None) -> Rows:
    """Pad rows to one length, and check their targets."""
    lengths = np.array([len(row) for row in rows])
    found = None
    if targets is not None:
        several = _is_list(targets[0])
        wrong = [row for row, answers in enumerate(targets) if several and len(answers) != lengths[row]]
        if wrong:
            raise ValueError(
                f"{table.path}: row {wrong[0]} has {lengths[wrong[0]]} steps and {len(targets[wrong[0]])} targets: "
                "give one for each step, or one for the row"
            )
        found = _parse_answers(table, targets, several)
    return Rows(_pad(table, rows, "inputs"), found, lengths, split, None)


def _pad(table: Table, rows: Sequence[np.ndarray], what: str) -> np.ndarray:
    for number, row in enumerate(rows):
        if row.shape[1:] != rows[0].shape[1:]:
            raise ValueError(
                f"{table.path}: {what} of row {number} are {list(row.shape)}, those of row 0 {list(rows[0].shape)}: "
                "give every step equally many numbers"
            )
    longest = max(map(len, rows))
    return np.stack([np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]) for row in rows])


def _numbers(table: Table, name: str) -> np.ndarray:
    cells = table.columns[name]
    array = _parse(cells)
    if array.dtype.kind in "iufb" and array.ndim == 1:
        _warn_of_rounding(array, cells, lambda row: f"{table.where(row)}: column {name!r}")
        return array
    row = next((row for row, cell in enumerate(cells) if not _is_number(cell)), 0)
    remedy = (
        "inputs are numbers: name the other columns (--task.inputs), or write a column of 0 and 1 for each of its texts"
    )
    if _is_empty(cells[row]):
        remedy = "fill the cell, and if it matters say where it was empty in another column, of 0 and 1"
    if re.fullmatch(r"\s*[-+]?\d*,\d+\s*", str(cells[row])):
        remedy = "write numbers with a decimal point, and without other separators"
    raise ValueError(f"{table.where(row)}: column {name!r} holds {cells[row]!r}: {remedy}")


def _warn_of_rounding(array: np.ndarray, cells: Any, describe: Callable[[int], str]) -> None:
    """Warn where a whole number among inputs is too large for a float to hold exactly."""
    for index in np.argwhere((array > MOST_EXACT) | (array < -MOST_EXACT)):
        cell = str(cells[index[0]]) if array.ndim == 1 else str(array[tuple(index)])
        if PLAIN_INTEGER.fullmatch(cell) and len(cell) < 400 and int(float(cell)) != int(cell):
            warnings.warn(
                f"{describe(int(index[0]))} holds {cell}, which becomes {float(cell):.0f} as an input: subtract a "
                "constant, or split it into columns of smaller numbers, if the last digits matter",
                RuntimeWarning,
                stacklevel=2,
            )
            return


def _is_number(cell: Any) -> bool:
    if isinstance(cell, str) and "_" in cell:  # Python reads 1_2 as 12
        return False
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _parse(cells: Any) -> np.ndarray:
    """Turn cells, which may be text, into integers where all are, else floats, else text."""
    array = np.asarray(cells)
    is_text = array.dtype.kind in "US" and not any("_" in cell for cell in cells)  # Python reads 1_2 as 12
    for kind in (np.int64, np.float64):
        if is_text and array.dtype.kind in "US":
            try:
                return array.astype(kind)
            except (ValueError, OverflowError):
                continue
    return array


def _parse_answers(table: Table, answers: list[Any], several: bool) -> np.ndarray:
    """Turn answers, which may be text, into numbers where that loses nothing; with ``several``, a list for each row."""
    texts = [cell for group in answers for cell in group] if several else answers
    if not all(isinstance(text, str) for text in texts):
        return _pad(table, [np.asarray(group) for group in answers], "targets") if several else np.asarray(answers)
    kind = _kind_of_answers(table, sorted(set(texts)))
    if several:
        return _pad(table, [np.asarray(group, dtype=kind) for group in answers], "targets")
    return np.asarray(answers, dtype=kind)


def _kind_of_answers(table: Table, texts: list[str]) -> type:
    """Return int, float or str: numbers only where no two different texts become one number.

    Raises:
        ValueError: whole numbers are written in several ways, so that they may be names or values.
    """
    if all(PLAIN_INTEGER.fullmatch(text) and len(text) < 20 and abs(int(text)) < 2**63 for text in texts):
        return np.int64
    if not all(map(_is_number, texts)) or any(PADDED.match(text) for text in texts):
        return np.str_  # leading zeros distinguish names
    plain = [text for text in texts if PLAIN_INTEGER.fullmatch(text)]
    if len(plain) == len(texts):  # too large for an integer of 64 bits
        return np.str_
    if not all(float(text).is_integer() for text in texts):
        return np.float64
    if plain:
        other = next(text for text in texts if text not in plain)
        raise ValueError(
            f"{table.path}: answers are whole numbers that are written in two ways, {plain[0]!r} and {other!r}: write "
            "them as integers for classes, or all with a decimal point for values"
        )
    return np.float64


def _split(table: Table) -> np.ndarray | None:
    return np.asarray(table.columns["split"]) if "split" in table.columns else None
