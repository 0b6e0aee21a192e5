"""Reader of LeRobot's format v3.0, which checks a dataset and reads all of it.

The reader checks that files exist and are complete, that every episode has as many rows and frames as its record
states, that indices count up, and that sentences have numbers. Errors name the file and the row or frame.

An episode of k rows becomes k + 1 steps: the format has no place for the observation after the last action, so the last
one is repeated. Nothing is learned at that step; only a bootstrapped value would read it. Without ``next.done`` and
``next.truncated`` an episode counts as terminated.

Parts keep their short names: ``observation.state`` is ``state``, ``observation.images.top`` is ``top``; our own
datasets keep the names of their world. A single real number is a vector of one. Texts, and columns other than
observations, actions, rewards and ends, are not read. A dataset with sentences and without ``observation.language``
gets the part ``language``: numbers of the words of its sentences, in alphabetical order, padded with 0.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from recollect.agents.spaces import space_from_json
from recollect.evaluation.lerobot.layout import (
    ACTION,
    DATA,
    DONE,
    INDICES,
    INFO,
    OURS,
    REWARD,
    SCORE,
    TASKS,
    TRUNCATED,
    VIDEOS,
    FileNumber,
    load_packages,
    video_frames,
)
from recollect.evaluation.lerobot.tables import (
    REMEDY,
    column_values,
    is_dtype,
    read_object,
    read_table,
    require_none,
    require_shape,
)

LANGUAGE = "language"
SINGLE = (*INDICES, REWARD, DONE, TRUNCATED, SCORE)  # columns of one number per row
PICTURES = ("video", "image")
PATHS = {"data_path": DATA, "video_path": VIDEOS}  # default paths of info.json
EARLY = 0.25  # share of a frame's duration by which it may come early in a video


def read(folder: str | Path) -> dict[str, Any]:
    """Read the parts of a recording.

    Raises:
        ValueError: a package is missing, or a file is missing, damaged or inconsistent; names the file, and the row or
            frame.
    """
    load_packages()
    return _Dataset(Path(folder)).read()


class _Ours(NamedTuple):
    """Data of our own datasets beside the format."""

    parts: dict[str, str]  # our names of features
    words: tuple[str, ...]  # words of the numbers in language
    scalars: tuple[str, ...] | None  # columns that are single numbers, and no vectors of one; None where unknown
    action_space: gymnasium.Space[Any] | None


class _Dataset:
    """A dataset that is being read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.info = read_object(root / INFO)
        version = str(self.info.get("codebase_version"))
        if not version.startswith("v3."):
            raise ValueError(
                f"{root / INFO}: codebase_version={version!r}: {REMEDY}; lerobot converts older ones "
                "(python -m lerobot.scripts.convert_dataset_v21_to_v30)"
            )
        self.features = self._features()
        self.fps = self._entry("fps", (int, float))
        if not 0 < self.fps < math.inf:
            raise ValueError(f"{root / INFO}: fps={self.fps}: give a positive number")
        self.ours = _read_ours(root / OURS)

    def _features(self) -> dict[str, dict[str, Any]]:
        """Return the features to read, by name, with a valid dtype and shape."""
        at = self.root / INFO
        found = {}
        for name, feature in self._entry("features", dict).items():
            if name not in (*SINGLE, ACTION) and not name.startswith("observation."):
                continue
            dtype, shape = (feature.get("dtype"), feature.get("shape")) if isinstance(feature, dict) else (None, None)
            if dtype in ("string", "language"):
                continue
            if not (isinstance(dtype, str) and (dtype in PICTURES or is_dtype(dtype))):
                raise ValueError(f"{at}: feature {name!r}: dtype={dtype!r}: {REMEDY}")
            if not (isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape)):
                raise ValueError(f"{at}: feature {name!r}: shape={shape!r}: {REMEDY}")
            if name in SINGLE and shape != [1]:
                raise ValueError(f"{at}: feature {name!r}: shape={shape}, and [1] is required")
            found[name] = {"dtype": dtype, "shape": tuple(shape)}
        if ACTION not in found:
            raise ValueError(f"{at}: no feature {ACTION!r}: its episodes have no actions")
        return found

    def read(self) -> dict[str, Any]:
        """Read all tables of a LeRobot dataset."""
        sentences = self._tasks()
        episodes = self._episodes()
        lengths = np.array([row["length"] for row in episodes])
        columns = self._rows(episodes, len(sentences))
        for key in self._videos():
            columns[key] = self._read_video(key, episodes)
        stops = np.cumsum(lengths)
        starts, last = stops - lengths, stops - 1
        again = np.insert(np.arange(stops[-1]), stops, last)
        action = columns[ACTION][again]
        action[np.cumsum(lengths + 1) - 1] = 0
        rows = int(stops[-1])
        gained = columns.get(REWARD, np.zeros(rows)).astype(np.float32)
        done = columns.get(DONE, np.ones(rows)).astype(bool)[last]
        truncated = columns.get(TRUNCATED, np.zeros(rows)).astype(bool)[last]
        score = columns[SCORE][last] if SCORE in columns else np.add.reduceat(gained, starts)
        observation, words = self._observation(columns, sentences, again)
        return {
            "observation": observation,
            "action": action.astype(np.float32 if action.dtype.kind == "f" else np.int64),
            "reward": np.insert(gained, starts, 0),
            "lengths": lengths + 1,
            "terminated": done & ~truncated,
            "score": score,
            "action_space": self.ours.action_space,
            "words": words,
        }

    def _observation(
        self, columns: Mapping[str, np.ndarray], sentences: list[str], again: np.ndarray
    ) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """Return the parts of the observation by our names, and the words of the numbers in ``language``."""
        keys = [name for name in self.features if name.startswith("observation.")]
        if not keys:
            raise ValueError(f"{self.root / INFO}: no feature begins with 'observation.': there are no observations")
        short = {key: key.removeprefix("observation.").removeprefix("images.") for key in keys}
        parts = {self.ours.parts.get(key, short[key]): columns[key][again] for key in keys}
        if len(parts) < len(keys):
            raise ValueError(f"{self.root / INFO}: {', '.join(keys)}: two of them would have one name")
        words = self.ours.words
        if LANGUAGE not in parts and any(sentences):
            words = ("", *sorted({word for sentence in sentences for word in sentence.split()}))
            number = {word: index for index, word in enumerate(words)}
            longest = max(len(sentence.split()) for sentence in sentences)
            table = np.zeros((len(sentences), longest), np.int64)
            for row, sentence in enumerate(sentences):
                tokens = [number[word] for word in sentence.split()]
                table[row, : len(tokens)] = tokens
            parts[LANGUAGE] = table[columns["task_index"]][again]
        return parts, words

    def _videos(self) -> list[str]:
        """Return the features that are videos."""
        return [name for name, feature in self.features.items() if feature["dtype"] == "video"]

    def _tasks(self) -> list[str]:
        """Read the sentences, ordered by number."""
        path = self.root / TASKS
        table = read_table(path)
        text = next((name for name in ("task", "__index_level_0__") if name in table), None)
        if text is None or "task_index" not in table:
            raise ValueError(f"{path}: it has the columns {', '.join(table)}, and not task and task_index")
        numbers, texts = table["task_index"].to_pylist(), table[text].to_pylist()
        if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(range(len(numbers))):
            raise ValueError(f"{path}: task_index counts {numbers[:8]}, and not 0, 1, 2 and on")
        if not all(isinstance(sentence, str) for sentence in texts):
            raise ValueError(f"{path}: {text} holds {texts[:8]}: sentences are required")
        return [sentence for _, sentence in sorted(zip(numbers, texts, strict=True))]

    def _episodes(self) -> list[dict[str, Any]]:
        """Read the records of all episodes, in order."""
        folder = self.root / "meta" / "episodes"
        paths = sorted(folder.glob("chunk-*/file-*.parquet"))
        if not paths:
            raise ValueError(f"{folder}: there is no record of any episode: {REMEDY}")
        rows: list[dict[str, Any]] = []
        for path in paths:
            table = read_table(path, lambda name: not name.startswith(("stats/", "tasks")))
            wanted = ["episode_index", "length", "dataset_from_index", "dataset_to_index"]
            wanted += ["data/chunk_index", "data/file_index"]
            for key in self._videos():
                wanted += [f"videos/{key}/{what}" for what in ("chunk_index", "file_index", "from_timestamp")]
            missing = [name for name in wanted if name not in table]
            if missing:
                raise ValueError(f"{path}: the columns {', '.join(missing)} are missing")
            for number, cells in enumerate(zip(*(table[name].to_pylist() for name in wanted), strict=True)):
                row = dict(zip(wanted, cells, strict=True))
                self._check_episode(path, number, row, rows)
                rows.append(row)
        total = self._entry("total_episodes", int)
        if len(rows) != total or not rows:
            raise ValueError(f"{folder}: there are records of {len(rows)} episodes, and {INFO} says {total}")
        frames, total = rows[-1]["dataset_to_index"], self.info.get("total_frames")
        if total not in (None, frames):
            raise ValueError(f"{folder}: its episodes have {frames} rows, and {INFO} says total_frames={total}")
        return rows

    def _check_episode(self, path: Path, number: int, row: dict[str, Any], before: list[dict[str, Any]]) -> None:
        at = f"{path}: row {number}"
        start = before[-1]["dataset_to_index"] if before else 0
        for name, value in row.items():
            kinds = (int, float) if name.endswith("timestamp") else int
            if value is None:
                raise ValueError(f"{at}: {name} is empty")
            if not (isinstance(value, kinds) and 0 <= value < math.inf):
                raise ValueError(f"{at}: {name}={value!r}: a number of 0 or more is required")
        if row["episode_index"] != len(before):
            raise ValueError(f"{at}: episode_index={row['episode_index']}, and {len(before)} comes next")
        if row["length"] < 1 or (row["dataset_from_index"], row["dataset_to_index"]) != (start, start + row["length"]):
            raise ValueError(
                f"{at}: {row['length']} rows from {row['dataset_from_index']} to {row['dataset_to_index']}: "
                f"they begin at {start}, and are at least one"
            )

    def _rows(self, episodes: list[dict[str, Any]], tasks: int) -> dict[str, np.ndarray]:
        """Read the columns of all rows, in the order of episodes; pictures as arrays."""
        names = [*INDICES, *(name for name in self.features if name not in (*INDICES, *self._videos()))]
        parts: list[dict[str, np.ndarray]] = []
        for place, group in _by_file(episodes, "data"):
            path = self._path("data_path", place)
            table = read_table(path, lambda name: name in names)
            missing = [name for name in names if name not in table]
            if missing:
                raise ValueError(f"{path}: the columns {', '.join(missing)} are missing")
            columns = {name: self._values(path, name, table[name]) for name in names}
            self._check_rows(path, columns, group, tasks)
            parts.append(columns)
        order = np.argsort(np.concatenate([part["index"] for part in parts]))
        return {name: np.concatenate([part[name] for part in parts])[order] for name in names}

    def _check_rows(
        self, path: Path, columns: Mapping[str, np.ndarray], episodes: list[dict[str, Any]], tasks: int
    ) -> None:
        rows, wanted = len(columns["index"]), sum(row["length"] for row in episodes)
        if rows != wanted:
            raise ValueError(f"{path}: it has {rows} rows, and its episodes need {wanted}: it is cut off, or mixed up")
        lengths = [row["length"] for row in episodes]
        expected = {
            "index": np.concatenate([row["dataset_from_index"] + np.arange(row["length"]) for row in episodes]),
            "episode_index": np.repeat([row["episode_index"] for row in episodes], lengths),
            "frame_index": np.concatenate([np.arange(length) for length in lengths]),
        }
        for name, wants in expected.items():
            require_none(columns[name] != wants, path, lambda at, n=name, v=wants: f"{n}={columns[n][at]}, not {v[at]}")
        late = np.abs(columns["timestamp"] - expected["frame_index"] / self.fps) > 0.5 / self.fps
        wrong_rate = f"not frame by frame at {self.fps} fps"
        require_none(late, path, lambda at: f"timestamp={columns['timestamp'][at]}: {wrong_rate}")
        strange = (columns["task_index"] < 0) | (columns["task_index"] >= tasks)
        require_none(strange, path, lambda at: f"task_index={columns['task_index'][at]}: {TASKS} has {tasks} sentences")
        for name, column in columns.items():
            if column.dtype.kind == "f":
                wrong = ~np.isfinite(column.reshape(rows, -1)).all(1)
                require_none(wrong, path, lambda at, n=name: f"{n} is not finite")

    def _values(self, path: Path, name: str, column: Any) -> np.ndarray:
        """Convert a column to an array; the format's shapes do not distinguish a number from a vector of one."""
        feature = self.features.get(name) or {"dtype": INDICES[name], "shape": (1,)}
        found = column_values(path, name, column, feature)
        scalars = self.ours.scalars
        known = found.dtype.kind != "f" if scalars is None else name in scalars
        return found.reshape(-1) if feature["shape"] == (1,) and (known or name in SINGLE) else found

    def _read_video(self, key: str, episodes: list[dict[str, Any]]) -> np.ndarray:
        """Read a camera's picture of every row, uint8 ``[rows, y, x, 3]``, by the time stamps of frames."""
        images: np.ndarray | None = None
        for place, group in _by_file(episodes, f"videos/{key}"):
            path = self._path("video_path", place, key)
            rows: dict[int, int] = {}  # by the number of the frame that shows them
            for episode in group:
                first = round(episode[f"videos/{key}/from_timestamp"] * self.fps)
                shown = {first + step: episode["dataset_from_index"] + step for step in range(episode["length"])}
                if not rows.keys().isdisjoint(shown):
                    raise ValueError(f"{path}: its episodes overlap: from_timestamp is wrong in meta/episodes")
                rows |= shown
            for seconds, image in video_frames(path):
                number = math.floor(seconds * self.fps + EARLY)
                row = rows.pop(number, None)
                if row is not None:
                    require_shape(image, self.features[key], f"{path}: frame {number}")
                    if images is None:
                        images = np.empty((episodes[-1]["dataset_to_index"], *image.shape), np.uint8)
                    images[row] = image
                if not rows:
                    break
            if rows:
                raise ValueError(
                    f"{path}: frame {min(rows)} is missing, and {len(rows)} in all: it is cut off, or has another "
                    f"rate than {self.fps} frames per second"
                )
        assert images is not None
        return images

    def _path(self, template: str, place: FileNumber, key: str = "") -> Path:
        """Return the path of an existing file below the dataset's folder."""
        text = self._entry(template, str, missing=PATHS[template])
        try:
            path = Path(os.path.normpath(self.root / place.path(text, key)))  # files may be links, as in a cache
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{self.root / INFO}: {template}={text!r} is no path ({error})") from None
        if not path.is_relative_to(os.path.normpath(self.root)):
            raise ValueError(f"{self.root / INFO}: {template}={text!r} leads out of the dataset")
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file, and meta/episodes names it")
        return path

    def _entry(self, name: str, kind: type | tuple[type, ...], *, missing: Any = None) -> Any:
        found = self.info.get(name, missing)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ValueError(f"{self.root / INFO}: {name}={found!r}: {REMEDY}")
        return found


def _read_ours(path: Path) -> _Ours:
    found = read_object(path) if path.is_file() else {}
    parts, words, scalars = found.get("parts", {}), found.get("words", []), found.get("scalars")
    lists = [list(parts.values()) if isinstance(parts, dict) else None, words, [] if scalars is None else scalars]
    if not all(isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in lists):
        raise ValueError(f"{path}: parts, words or scalars are no texts: remove the file, or write the dataset again")
    try:
        space = None if found.get("action_space") is None else space_from_json(found["action_space"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: action_space is none ({error!r}): remove the file, or write it again") from None
    return _Ours(parts, tuple(words), None if scalars is None else tuple(scalars), space)


def _by_file(episodes: list[dict[str, Any]], what: str) -> list[tuple[FileNumber, list[dict[str, Any]]]]:
    """Group episodes by file."""
    groups: dict[FileNumber, list[dict[str, Any]]] = {}
    for row in episodes:
        groups.setdefault(FileNumber(row[f"{what}/chunk_index"], row[f"{what}/file_index"]), []).append(row)
    return list(groups.items())
