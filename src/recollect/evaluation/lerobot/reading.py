"""A dataset of LeRobot's format v3.0, looked through and read whole.

What the format promises is looked at before anything is believed: files are there and whole, every episode has as many
rows and frames as its record says, they count up, sentences have numbers. What is wrong is named with its file and row
or frame.

An episode of k rows becomes k + 1 steps: the format has no place for the observation behind the last action, so that
the last one stands there again. Nothing is learned at that step; only a value that is bootstrapped would read it.
Without ``next.done`` and ``next.truncated`` an episode counts as brought to its end.

Parts are named as in the datasets: ``observation.state`` is ``state``, ``observation.images.top`` is ``top``; datasets
of ours keep the names of their world. A dataset with sentences and without ``observation.language`` gets the part
``language``: numbers of the words that occur in its sentences, in alphabetical order, 0 behind the last.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recollect.agents.spaces import space_from_json
from recollect.evaluation.lerobot.layout import (
    ACTION,
    DONE,
    INDICES,
    INFO,
    OURS,
    REWARD,
    SCORE,
    TASKS,
    TRUNCATED,
    Place,
    film_frames,
    from_encoded,
    packages,
)

LANGUAGE = "language"
REMEDY = "give a folder of LeRobot's format v3.0"


def read(folder: str | Path) -> dict[str, Any]:
    """The parts of a recording.

    Raises:
        ValueError: a package is missing, or something in the folder is missing, damaged or contradicts itself; names
            the file, and the row or frame.
    """
    packages()
    return _Dataset(Path(folder)).read()


class _Dataset:
    """One dataset on its way from a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.info = _json(root / INFO)
        version = str(self.info.get("codebase_version"))
        if not version.startswith("v3."):
            raise ValueError(
                f"{root / INFO}: codebase_version={version!r}: {REMEDY}; lerobot converts older ones "
                "(python -m lerobot.scripts.convert_dataset_v21_to_v30)"
            )
        self.features = self._entry("features", dict)
        self.fps = self._entry("fps", (int, float))
        if ACTION not in self.features:
            raise ValueError(f"{root / INFO}: no feature {ACTION!r}: its episodes say nothing of what was done")
        self.ours = _json(root / OURS) if (root / OURS).is_file() else {}

    def read(self) -> dict[str, Any]:
        """All of it."""
        sentences = self._tasks()
        episodes = self._episodes()
        lengths = np.array([row["length"] for row in episodes])
        columns = self._rows(episodes, len(sentences))
        films = {key: self._film(key, episodes) for key, kind in self._kinds("video")}
        columns |= films
        again = np.repeat(np.arange(int(lengths.sum())), 1 + _marks(lengths, np.ones(len(lengths), int)))
        stops = np.cumsum(lengths + 1)
        action = columns[ACTION][again]
        action[stops - 1] = 0
        reward = np.insert(_flat(columns, REWARD, np.float32, lengths), np.cumsum(lengths) - lengths, 0)
        truncated = _flat(columns, TRUNCATED, bool, lengths)[np.cumsum(lengths) - 1]
        done = _flat(columns, DONE, bool, lengths, missing=True)[np.cumsum(lengths) - 1]
        score = columns.get(SCORE)
        returns = np.add.reduceat(_flat(columns, REWARD, np.float32, lengths), np.cumsum(lengths) - lengths)
        space = self.ours.get("action_space")
        observation, words = self._observation(columns, sentences, again)
        return {
            "observation": observation,
            "action": action.astype(np.float32) if action.dtype == np.float64 else action,
            "reward": reward,
            "lengths": lengths + 1,
            "terminated": done & ~truncated,
            "score": returns.astype(np.float32) if score is None else score.reshape(-1)[np.cumsum(lengths) - 1],
            "action_space": None if space is None else space_from_json(space),
            "words": words,
        }

    def _observation(
        self, columns: Mapping[str, np.ndarray], sentences: list[str], again: np.ndarray
    ) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """Parts of the observation by our names, and the words that numbers in ``language`` stand for."""
        keys = [name for name in self.features if name.startswith("observation.") and name in columns]
        if not keys:
            raise ValueError(f"{self.root / INFO}: no feature begins with 'observation.': there is nothing to see")
        known = self.ours.get("parts", {})
        parts = {known.get(key, _short(key)): columns[key][again] for key in keys}
        if len(parts) < len(keys):
            raise ValueError(f"{self.root / INFO}: {', '.join(keys)}: two of them would have one name")
        words = tuple(self.ours.get("words", ()))
        if LANGUAGE not in parts and any(sentences):
            words = ("", *sorted({word for sentence in sentences for word in sentence.split()}))
            number = {word: index for index, word in enumerate(words)}
            longest = max(len(sentence.split()) for sentence in sentences)
            table = np.zeros((len(sentences), longest), np.int64)
            for row, sentence in enumerate(sentences):
                told = [number[word] for word in sentence.split()]
                table[row, : len(told)] = told
            parts[LANGUAGE] = table[columns["task_index"].reshape(-1)][again]
        return parts, words

    def _kinds(self, *kinds: str) -> Iterator[tuple[str, str]]:
        """Features of some dtypes, with these."""
        for name, feature in self.features.items():
            if feature.get("dtype") in kinds:
                yield name, feature["dtype"]

    def _tasks(self) -> list[str]:
        """Sentences by their numbers."""
        path = self.root / TASKS
        table = self._table(path)
        text = next((name for name in ("task", "__index_level_0__") if name in table), None)
        if text is None or "task_index" not in table:
            raise ValueError(f"{path}: it has the columns {', '.join(table)}, and not task and task_index")
        found = dict(zip(table["task_index"], table[text], strict=True))
        if sorted(found) != list(range(len(found))):
            raise ValueError(f"{path}: task_index counts {sorted(found)[:8]}, and not 0, 1, 2 and on")
        return [str(found[index]) for index in range(len(found))]

    def _episodes(self) -> list[dict[str, Any]]:
        """Records of all episodes, in order."""
        folder = self.root / "meta" / "episodes"
        paths = sorted(folder.glob("chunk-*/file-*.parquet"))
        if not paths:
            raise ValueError(f"{folder}: there is no record of any episode: {REMEDY}")
        rows: list[dict[str, Any]] = []
        for path in paths:
            table = self._table(path, but="stats/")
            wanted = ["episode_index", "length", "dataset_from_index", "dataset_to_index"]
            wanted += ["data/chunk_index", "data/file_index"]
            for key, _ in self._kinds("video"):
                wanted += [f"videos/{key}/{what}" for what in ("chunk_index", "file_index", "from_timestamp")]
            missing = [name for name in wanted if name not in table]
            if missing:
                raise ValueError(f"{path}: the columns {', '.join(missing)} are missing")
            for number, values in enumerate(zip(*(table[name] for name in wanted), strict=True)):
                row = dict(zip(wanted, values, strict=True))
                self._check_episode(path, number, row, rows)
                rows.append(row)
        total = self._entry("total_episodes", int)
        if len(rows) != total or not rows:
            raise ValueError(f"{folder}: there are records of {len(rows)} episodes, and {INFO} says {total}")
        return rows

    def _check_episode(self, path: Path, number: int, row: dict[str, Any], before: list[dict[str, Any]]) -> None:
        at = f"{path}: row {number}"
        start = before[-1]["dataset_to_index"] if before else 0
        if any(value is None for value in row.values()):
            raise ValueError(f"{at}: {next(name for name, value in row.items() if value is None)} is empty")
        if row["episode_index"] != len(before):
            raise ValueError(f"{at}: episode_index={row['episode_index']}, and {len(before)} comes next")
        if row["length"] < 1 or (row["dataset_from_index"], row["dataset_to_index"]) != (start, start + row["length"]):
            raise ValueError(
                f"{at}: {row['length']} rows from {row['dataset_from_index']} to {row['dataset_to_index']}: "
                f"they begin at {start}, and are at least one"
            )

    def _rows(self, episodes: list[dict[str, Any]], tasks: int) -> dict[str, np.ndarray]:
        """Columns of all rows, in order; pictures as arrays."""
        parts: list[dict[str, np.ndarray]] = []
        for place, group in _by_file(episodes, "data"):
            path = self._path("data_path", place)
            table = self._table(path, arrays=True)
            columns = {name: self._values(path, name, column) for name, column in table.items()}
            self._check_rows(path, columns, group, tasks)
            parts.append(columns)
        names = [name for name in parts[0] if all(name in part for part in parts)]
        missing = [
            name
            for name, feature in self.features.items()
            if name not in names and feature.get("dtype") not in ("video", "string")
        ]
        if missing:
            raise ValueError(f"{self._path('data_path', Place(0, 0))}: the columns {', '.join(missing)} are missing")
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _check_rows(
        self, path: Path, columns: Mapping[str, np.ndarray], episodes: list[dict[str, Any]], tasks: int
    ) -> None:
        missing = [name for name in (*INDICES, ACTION) if name not in columns]
        if missing:
            raise ValueError(f"{path}: the columns {', '.join(missing)} are missing")
        rows, wanted = len(columns["index"]), sum(row["length"] for row in episodes)
        if rows != wanted:
            raise ValueError(
                f"{path}: it has {rows} rows, and its episodes ask for {wanted}: it is cut off, or mixed up"
            )
        first = episodes[0]["dataset_from_index"]
        lengths = [row["length"] for row in episodes]
        expected = {
            "index": first + np.arange(rows),
            "episode_index": np.repeat([row["episode_index"] for row in episodes], lengths),
            "frame_index": np.concatenate([np.arange(length) for length in lengths]),
        }
        for name, values in expected.items():
            _require_none(
                columns[name] != values, path, lambda at, n=name, v=values: f"{n}={columns[n][at]}, not {v[at]}"
            )
        late = np.abs(columns["timestamp"] - expected["frame_index"] / self.fps) > 0.5 / self.fps
        _require_none(
            late, path, lambda at: f"timestamp={columns['timestamp'][at]}: not frame by frame at {self.fps} fps"
        )
        strange = (columns["task_index"] < 0) | (columns["task_index"] >= tasks)
        _require_none(
            strange, path, lambda at: f"task_index={columns['task_index'][at]}: {TASKS} has {tasks} sentences"
        )
        for name, column in columns.items():
            if column.dtype.kind == "f" and name in self.features:
                wrong = ~np.isfinite(column.reshape(rows, -1)).all(1)
                _require_none(wrong, path, lambda at, n=name: f"{n} is not finite")

    def _values(self, path: Path, name: str, column: Any) -> np.ndarray:
        """One column as an array ``[rows, ...]``."""
        feature = self.features.get(name, {})
        if feature.get("dtype") == "image":
            return self._pictures(path, name, column, feature)
        if column.null_count:
            row = next(row for row, value in enumerate(column) if not value.is_valid)
            raise ValueError(f"{path}: row {row}: {name} is empty")
        arrow, _, _ = packages()
        shape: list[int] = []
        rows = len(column)
        flat = column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column
        while arrow.types.is_list(flat.type) or arrow.types.is_large_list(flat.type) or _fixed(flat.type):
            sizes = np.asarray(arrow.compute.list_value_length(flat))
            if len(sizes) and (sizes != sizes[0]).any():
                row = int((sizes != sizes[0]).argmax()) // max(1, int(np.prod(shape)))
                raise ValueError(f"{path}: row {row}: {name} has another number of entries than the rows before")
            shape.append(int(sizes[0]) if len(sizes) else 0)
            flat = flat.flatten()
        values = flat.to_numpy(zero_copy_only=False)
        wanted = tuple(feature.get("shape", ()))
        if wanted and wanted not in (tuple(shape), (1,) if not shape else ()):
            raise ValueError(f"{path}: {name} has the shape {shape}, and {INFO} says {list(wanted)}")
        dtype = feature.get("dtype")
        if dtype not in (None, "string", "language") and values.dtype != np.dtype(dtype):
            raise ValueError(f"{path}: {name} is {values.dtype}, and {INFO} says {dtype}")
        return values.reshape(rows, *shape)

    def _pictures(self, path: Path, name: str, column: Any, feature: Mapping[str, Any]) -> np.ndarray:
        images = []
        for row, value in enumerate(column):
            entry = value.as_py()
            data = entry.get("bytes") if isinstance(entry, dict) else entry
            if not data:
                raise ValueError(f"{path}: row {row}: {name} holds no picture")
            try:
                images.append(from_encoded(data))
            except ValueError as error:
                raise ValueError(f"{path}: row {row}: {name}: {error}") from None
            _require_shape(images[-1], feature, f"{path}: row {row}: {name}")
        return np.stack(images)

    def _film(self, key: str, episodes: list[dict[str, Any]]) -> np.ndarray:
        """All frames of a camera, in order: uint8 ``[rows, y, x, 3]``."""
        shots: list[np.ndarray] = []
        for place, group in _by_file(episodes, f"videos/{key}"):
            path = self._path("video_path", place, key)
            starts = [round(row[f"videos/{key}/from_timestamp"] * self.fps) for row in group]
            wanted = np.concatenate(
                [start + np.arange(row["length"]) for start, row in zip(starts, group, strict=True)]
            )
            if (np.diff(wanted) < 1).any():
                raise ValueError(f"{path}: its episodes lie over each other: from_timestamp is wrong in meta/episodes")
            frames = np.empty(0)
            needed, found = set(wanted.tolist()), []
            at = -1
            for at, frame in enumerate(film_frames(path)):
                if at in needed:
                    _require_shape(frame, self.features[key], f"{path}: frame {at}")
                    found.append(frame)
            if len(found) < len(wanted):
                raise ValueError(f"{path}: frame {at + 1} is missing: its episodes ask for {int(wanted[-1]) + 1}")
            frames = np.stack(found)
            shots.append(frames)
        return np.concatenate(shots)

    def _path(self, template: str, place: Place, key: str = "") -> Path:
        """A file of the dataset, below its folder."""
        text = self._entry(template, str)
        try:
            path = (self.root / place.path(text, key)).resolve()
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{self.root / INFO}: {template}={text!r} is no path ({error})") from None
        if not path.is_relative_to(self.root.resolve()):
            raise ValueError(f"{self.root / INFO}: {template}={text!r} leads out of the dataset")
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file, and meta/episodes names it")
        return path

    def _table(self, path: Path, *, arrays: bool = False, but: str | None = None) -> dict[str, Any]:
        """Columns of a parquet file: lists, or as pyarrow has them."""
        arrow, parquet, _ = packages()
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file: {REMEDY}")
        try:
            names = [name for name in parquet.read_schema(path).names if but is None or not name.startswith(but)]
            table = parquet.ParquetFile(path).read(columns=names)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{path}: it cannot be read ({str(error).splitlines()[0]}): damaged, or cut off") from None
        return {name: table[name] if arrays else table[name].to_pylist() for name in table.column_names}

    def _entry(self, name: str, kind: type | tuple[type, ...]) -> Any:
        found = self.info.get(name)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ValueError(f"{self.root / INFO}: {name}={found!r}: {REMEDY}")
        return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file: {REMEDY}") from None
    except (ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} is not JSON ({error}): {REMEDY}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: it holds no object {{...}}: {REMEDY}")
    return found


def _by_file(episodes: list[dict[str, Any]], what: str) -> list[tuple[Place, list[dict[str, Any]]]]:
    """Episodes by the file that they are in."""
    groups: dict[Place, list[dict[str, Any]]] = {}
    for row in episodes:
        groups.setdefault(Place(row[f"{what}/chunk_index"], row[f"{what}/file_index"]), []).append(row)
    return list(groups.items())


def _short(key: str) -> str:
    return key.removeprefix("observation.").removeprefix("images.")


def _fixed(kind: Any) -> bool:
    arrow, _, _ = packages()
    return arrow.types.is_fixed_size_list(kind)


def _marks(lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Zeros, and ``values`` at the last row of every episode."""
    marked = np.zeros(int(lengths.sum()), values.dtype)
    marked[np.cumsum(lengths) - 1] = values
    return marked


def _flat(
    columns: Mapping[str, np.ndarray], name: str, dtype: Any, lengths: np.ndarray, *, missing: bool = False
) -> np.ndarray:
    """A column of single numbers; where it is missing, one value for all."""
    if name not in columns:
        return np.full(int(lengths.sum()), missing, dtype)
    return columns[name].reshape(-1).astype(dtype)


def _require_none(wrong: Any, path: Path, what: Any) -> None:
    """Raise ``ValueError`` at the first row that is wrong."""
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{path}: row {row}: {what(row)}")


def _require_shape(image: np.ndarray, feature: Mapping[str, Any], at: str) -> None:
    shape = tuple(feature.get("shape", ()))
    if image.shape != shape and image.shape != (*shape[1:], *shape[:1]):
        raise ValueError(f"{at} has {list(image.shape)} pixels and channels, and {INFO} says {list(shape)}")
