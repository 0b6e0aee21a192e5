"""Writer of LeRobot's format; the folder is written atomically.

A row is an observation, its action, and the result (``next.reward``, ``next.done``, ``next.truncated``,
``next.score``). An episode of k actions has k rows: the format has no place for the observation after the last action.

Images become a lossless video, or PNG pictures in the table (``images="image"``); both are restored byte for byte.
Words stay as numbers (``observation.language``) and become the row's sentence too, where the vocabulary is known.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recollect.agents.spaces import LARGEST_GRID, SMALLEST_SIDE, space_to_json
from recollect.config import require
from recollect.evaluation.lerobot.layout import (
    ACTION,
    DATA,
    DATA_MB,
    DONE,
    EPISODES,
    FILES_PER_CHUNK,
    FPS,
    INDICES,
    INFO,
    OURS,
    REWARD,
    SCORE,
    STATS,
    TASKS,
    TRUNCATED,
    VERSION,
    VIDEO_MB,
    VIDEOS,
    FileNumber,
    LosslessVideoWriter,
    encode_png,
    load_packages,
)
from recollect.evaluation.recorded_parts import require_finite_parts
from recollect.files import new_folder, write_synced

LANGUAGE = "language"
MEGABYTE = 1 << 20
LEVELS = 256  # values of a pixel's channel
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def write(
    folder: str | Path,
    parts: Mapping[str, Any],
    *,
    fps: int = FPS,
    images: Literal["video", "image"] = "video",
    data_mb: float = DATA_MB,
    video_mb: float = VIDEO_MB,
) -> None:
    """Write the parts of a recording as a new dataset.

    Args:
        folder: must not exist.
        parts: of a :class:`~recollect.evaluation.recordings.Recording`, by name.
        fps: frames per second, for the time stamps.
        images: videos, or pictures in the table.
        data_mb: size at which a new file of rows begins.
        video_mb: size at which a new video begins.

    Raises:
        ValueError: the folder exists, there is no episode, one has no action, a part is empty or not finite or has a
            name that the format cannot hold, or a package is missing.
    """
    load_packages()
    root = Path(folder)
    require(fps >= 1, "fps", fps, "give at least one frame per second")
    require(not root.exists(), "record", f"lerobot:{folder}", "this folder exists already: name a new one")
    steps = np.asarray(parts["lengths"])
    remedy = "give at least one episode, each with an action and an observation after it"
    require(len(steps) > 0 and int(steps.min()) >= 2, "lengths", steps.tolist()[:8], remedy)
    _require_parts(parts, steps, f"lerobot:{folder}")
    root.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(root) as unfinished:
        _Dataset(unfinished, parts, fps, images, data_mb, video_mb).write()


def _require_parts(parts: Mapping[str, Any], lengths: np.ndarray, name: str) -> None:
    """Require parts that can be read again: named apart and inside the folder, not empty, and finite."""
    observed = {leaf: np.asarray(array) for leaf, array in parts["observation"].items()}
    features: dict[str, str] = {}
    for leaf, array in observed.items():
        feature = feature_name(leaf, holds_pictures(array))
        other = features.setdefault(feature, leaf)
        require(other == leaf, "observation", leaf, f"{name}: {other!r} too would be called {feature}: rename one")
        inside = ".." not in leaf.split("/")  # the name becomes that of a folder
        require(inside, "observation", leaf, f"{name}: this name leads out of the dataset: rename it")
        part = f"observation.{leaf}" if leaf else "observation"
        require(array.size > 0, part, list(array.shape), f"{name}: there is nothing in it: leave it out")
    require_finite_parts(parts, lengths, name)


def feature_name(leaf: str, is_image: bool) -> str:
    """Return the name of a part of the observation in the format."""
    if is_image:
        return f"observation.images.{leaf}" if leaf else "observation.image"
    return f"observation.{leaf}" if leaf else "observation.state"


def holds_pictures(array: np.ndarray) -> bool:
    """Return whether a column ``[n, ...]`` has coloured pictures, and not a small grid of symbols."""
    shape = array.shape[1:]
    large = len(shape) == 3 and shape[2] == 3 and min(shape[:2]) >= SMALLEST_SIDE and max(shape[:2]) > LARGEST_GRID
    return large and array.dtype == np.uint8


class _Dataset:
    """A dataset that is being written."""

    def __init__(
        self, root: Path, parts: Mapping[str, Any], fps: int, images: str, data_mb: float, video_mb: float
    ) -> None:
        self.root, self.parts, self.fps = root, parts, fps
        self.limits = (data_mb * MEGABYTE, video_mb * MEGABYTE)
        self.lengths = np.asarray(parts["lengths"]) - 1  # the observation after the last action has no row
        stops = np.cumsum(parts["lengths"])
        last = stops - 1
        acted = np.ones(int(stops[-1]), dtype=bool)
        acted[last] = False
        observed = parts["observation"]
        # A list, because a set has another order in every process.
        pictures = [leaf for leaf, array in observed.items() if holds_pictures(array)]
        self.videos = {feature_name(leaf, True): observed[leaf][acted] for leaf in pictures}
        self.in_table = images == "image"
        self.names = {feature_name(leaf, leaf in pictures): leaf for leaf in observed}
        self.columns = {name: observed[leaf][acted] for name, leaf in self.names.items() if name not in self.videos}
        self.columns[ACTION] = parts["action"][acted]
        self.scalars = [name for name, array in self.columns.items() if array.ndim == 1]
        ends = np.cumsum(self.lengths) - 1
        self.columns[REWARD] = np.delete(parts["reward"], stops - parts["lengths"])
        for name, values in ((DONE, np.ones(len(ends), bool)), (TRUNCATED, ~np.asarray(parts["terminated"]))):
            self.columns[name] = np.zeros(len(self.columns[REWARD]), bool)
            self.columns[name][ends] = values
        self.columns[SCORE] = np.zeros(len(self.columns[REWARD]), np.float32)
        self.columns[SCORE][ends] = parts["score"]
        self.sentences, self.tasks = _sentences(observed.get(LANGUAGE), acted, parts.get("words") or ())
        self.starts = np.cumsum(self.lengths) - self.lengths
        steps = np.arange(len(self.tasks))
        frame = steps - np.repeat(self.starts, self.lengths)
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)
        for name, values in zip(INDICES, (frame / fps, frame, episode, steps, self.tasks), strict=True):
            self.columns[name] = values.astype(INDICES[name])

    def write(self) -> None:
        """Write all files of a LeRobot dataset."""
        arrow, parquet, _ = load_packages()
        (self.root / "meta").mkdir()
        videos = {} if self.in_table else {key: self._write_videos(key, array) for key, array in self.videos.items()}
        places = self._write_rows()
        levels = {key: np.zeros((LEVELS, array.shape[-1]), np.int64) for key, array in self.videos.items()}
        rows = []
        for episode, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            sentences = dict.fromkeys(self.sentences[task] for task in self.tasks[start : start + length])
            row = {"episode_index": episode, "tasks": list(sentences), "length": int(length)}
            row |= {"data/chunk_index": places[episode].chunk, "data/file_index": places[episode].file}
            row |= {"dataset_from_index": int(start), "dataset_to_index": int(start + length)}
            for key, where in videos.items():
                place, begin = where[episode]
                row |= {f"videos/{key}/chunk_index": place.chunk, f"videos/{key}/file_index": place.file}
                for name, frame in (("from", begin), ("to", begin + int(length))):
                    row[f"videos/{key}/{name}_timestamp"] = frame / self.fps
            flat = {name: array[start : start + length] for name, array in self.columns.items() if array.ndim <= 2}
            found = {name: _statistics(array) for name, array in flat.items()}
            for key, array in self.videos.items():
                seen = _levels(array[start : start + length])
                found[key] = _picture_statistics(seen, int(length))
                levels[key] += seen
            row |= {f"stats/{name}/{what}": value for name, of in found.items() for what, value in of.items()}
            rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        path = self.root / FileNumber(0, 0).path(EPISODES)
        path.parent.mkdir(parents=True)
        parquet.write_table(arrow.Table.from_pylist(rows), path)
        parquet.write_table(_task_table(self.sentences), self.root / TASKS)
        stats = {name: _statistics(array) for name, array in self.columns.items()}
        frames = len(self.tasks)
        self._json(STATS, stats | {key: _picture_statistics(seen, frames) for key, seen in levels.items()})
        self._json(INFO, self._info())
        space = self.parts.get("action_space")
        kept = {"parts": self.names, "words": list(self.parts.get("words") or ()), "scalars": self.scalars}
        self._json(OURS, kept | {"action_space": None if space is None else space_to_json(space)})

    def _write_videos(self, key: str, images: np.ndarray) -> list[tuple[FileNumber, int]]:
        """Write the videos of one camera; return the video and frame at which every episode begins."""
        place, where, at = FileNumber(0, 0), [], 0
        writer = LosslessVideoWriter(self.root / place.path(VIDEOS, key), self.fps)
        try:
            for length in self.lengths:
                if writer.frames and writer.bytes >= self.limits[1]:
                    writer.close()
                    place = place.next()
                    writer = LosslessVideoWriter(self.root / place.path(VIDEOS, key), self.fps)
                where.append((place, writer.frames))
                for image in images[at : at + length]:
                    writer.add(image)
                at += length
        finally:
            writer.close()
        return where

    def _write_rows(self) -> list[FileNumber]:
        """Write the tables of rows, one row group per episode; return the file of each episode."""
        arrow, parquet, _ = load_packages()
        arrays = {name: _column(array) for name, array in self.columns.items()}
        if self.in_table:
            arrays |= {key: _pictures(array, key) for key, array in self.videos.items()}
        table = arrow.table(arrays)
        place, places, at, size, writer = FileNumber(0, 0), [], 0, 0, None
        try:
            for length in self.lengths:
                part = table.slice(at, int(length))
                if writer is not None and size >= self.limits[0]:
                    writer.close()
                    writer, place, size = None, place.next(), 0
                if writer is None:
                    path = self.root / place.path(DATA)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    writer = parquet.ParquetWriter(path, table.schema)
                writer.write_table(part)
                places.append(place)
                at, size = at + int(length), size + part.nbytes
        finally:
            if writer is not None:
                writer.close()
        return places

    def _info(self) -> dict[str, Any]:
        features: dict[str, Any] = {}
        for key, array in self.videos.items():
            y, x, c = array.shape[1:]
            dtype = "image" if self.in_table else "video"
            features[key] = {"dtype": dtype, "shape": [y, x, c], "names": ["height", "width", "channels"]}
            if not self.in_table:
                video = {"height": y, "width": x, "codec": "h264", "pix_fmt": "gbrp", "is_depth_map": False}
                video |= {"fps": self.fps, "channels": c}
                features[key]["info"] = {f"video.{name}": value for name, value in video.items()} | {"has_audio": False}
        for name, array in self.columns.items():
            features[name] = {"dtype": str(array.dtype), "shape": list(array.shape[1:] or (1,)), "names": None}
        return {
            "codebase_version": VERSION,
            "robot_type": None,
            "total_episodes": len(self.lengths),
            "total_frames": int(self.lengths.sum()),
            "total_tasks": len(self.sentences),
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": max(1, round(self.limits[0] / MEGABYTE)),
            "video_files_size_in_mb": max(1, round(self.limits[1] / MEGABYTE)),
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.lengths)}"},
            "data_path": DATA,
            "video_path": VIDEOS if self.videos and not self.in_table else None,
            "features": features,
        }

    def _json(self, path: str, content: Any) -> None:
        write_synced(self.root / path, json.dumps(content, indent=1).encode())


def _sentences(tokens: np.ndarray | None, acted: np.ndarray, words: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """Return the distinct sentences, and the number of each row's; one empty sentence without a vocabulary."""
    if tokens is None or not words:
        return [""], np.zeros(int(acted.sum()), np.int64)
    different, which = np.unique(tokens[acted], axis=0, return_inverse=True)
    return [" ".join(words[token] for token in row if token) for row in different], which.reshape(-1)


def _task_table(sentences: list[str]) -> Any:
    """Make a table with the sentences as the index of a pandas frame, as the format requires."""
    arrow, _, _ = load_packages()
    columns = [("task_index", "int64", "int64"), ("task", "unicode", "object")]
    described = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for name, kind, numpy in columns
    ]
    frame = {"index_columns": ["task"], "column_indexes": [], "columns": described, "pandas_version": "2.0.0"}
    table = arrow.table({"task_index": arrow.array(range(len(sentences)), arrow.int64()), "task": sentences})
    return table.replace_schema_metadata({"pandas": json.dumps(frame)})


def _column(array: np.ndarray) -> Any:
    """Make a column of numbers, or of nested lists for more axes; a vector of one becomes a number."""
    arrow, _, _ = load_packages()
    array = array[:, 0] if array.shape[1:] == (1,) else array
    column = arrow.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        column = arrow.FixedSizeListArray.from_arrays(column, size)
    return column


def _pictures(images: np.ndarray, key: str) -> Any:
    """Make a column of PNG pictures."""
    arrow, _, _ = load_packages()
    coded = [{"bytes": encode_png(image), "path": f"{key}-{number:06d}.png"} for number, image in enumerate(images)]
    return arrow.array(coded, arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))


def _statistics(array: np.ndarray) -> dict[str, Any]:
    """Compute statistics of every number of a column."""
    numbers = array.reshape(len(array), *(array.shape[1:] or (1,))).astype(np.float64)
    found = {"min": numbers.min(0), "max": numbers.max(0), "mean": numbers.mean(0), "std": numbers.std(0)}
    found |= {name: np.quantile(numbers, share, axis=0) for name, share in QUANTILES.items()}
    return {name: value.tolist() for name, value in found.items()} | {"count": [len(array)]}


def _levels(images: np.ndarray) -> np.ndarray:
    """Count the values of each channel: ``[256, c]``."""
    channels = images.reshape(-1, images.shape[-1]).T
    return np.stack([np.bincount(channel, minlength=LEVELS) for channel in channels], 1)


def _picture_statistics(levels: np.ndarray, frames: int) -> dict[str, Any]:
    """Compute statistics of each channel, scaled to 0..1 and of shape [3, 1, 1], from counts of values."""
    value, total = np.arange(LEVELS)[:, None] / (LEVELS - 1), levels.sum(0)
    mean = (levels * value).sum(0) / total
    below = levels.cumsum(0)
    found = {"mean": mean, "std": np.sqrt((levels * (value - mean) ** 2).sum(0) / total)}
    for name, share in {"min": 0.0, "max": 1.0, **QUANTILES}.items():
        place = share * (total - 1)
        low, high = ((below <= edge).sum(0) / (LEVELS - 1) for edge in (np.floor(place), np.ceil(place)))
        found[name] = low + (high - low) * (place % 1)
    return {name: part[:, None, None].tolist() for name, part in found.items()} | {"count": [frames]}
