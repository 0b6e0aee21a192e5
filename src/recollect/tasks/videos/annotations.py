"""Readers of published annotations of activities in videos: Charades' table and THUMOS'14's lists.

    Charades    id,...,actions,length           actions: "c092 11.90 21.20;c147 0.00 12.60"
    THUMOS'14   video_validation_0000051  67.5  75.9       one file per activity, named after it

Every error names the file and the line.
"""

import csv
import math
from pathlib import Path
from typing import NamedTuple


class Activity(NamedTuple):
    """An activity from ``start`` to ``stop``, both included, in seconds."""

    kind: int
    start: float
    stop: float


class Video(NamedTuple):
    """Activities in a video, with their times."""

    name: str
    seconds: float  # length; NaN where unknown
    activities: tuple[Activity, ...]


def read_charades(file: Path, num_classes: int) -> list[Video]:
    """Read the videos of ``Charades_v1_train.csv`` or ``Charades_v1_test.csv``.

    Raises:
        ValueError: the file is missing, empty, cut off or damaged; names the line.
    """
    videos: list[Video] = []
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            rows = csv.DictReader(opened, strict=True)
            missing = {"id", "actions", "length"} - set(rows.fieldnames or ())
            if missing:
                raise ValueError(f"{file}, line 1: no column {', '.join(sorted(missing))}: is it a table of Charades?")
            for row in rows:
                where = f"{file}, line {rows.line_num}"
                if any(row[name] is None for name in ("id", "actions", "length")) or not row["id"]:
                    raise ValueError(f"{where}: the line is cut off: download the file again")
                seconds = parse_seconds(row["length"], where, "length")
                if seconds <= 0:
                    raise ValueError(f"{where}: length={seconds}: a video has a positive length")
                videos.append(Video(row["id"], seconds, _parse_actions(row["actions"], num_classes, where)))
    except FileNotFoundError:
        raise ValueError(f"{file} does not exist: download it as docs/datasets.md says, or set path") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: damaged ({error}): download it again") from None
    if not videos:
        raise ValueError(f"{file}: it has no video: download it again")
    return videos


def _parse_actions(text: str, num_classes: int, where: str) -> tuple[Activity, ...]:
    found = []
    for part in filter(None, text.split(";")):
        words = part.split()
        if len(words) != 3 or not words[0].startswith("c") or not words[0][1:].isdecimal():
            raise ValueError(f"{where}: {part!r} is no action: c000 and two times are needed")
        kind = int(words[0][1:])
        if kind >= num_classes:
            raise ValueError(f"{where}: class {words[0]}; there are c000 to c{num_classes - 1:03d}")
        start, stop = parse_seconds(words[1], where, "start"), parse_seconds(words[2], where, "end")
        found.append(Activity(kind, start, stop))
    return tuple(found)


def read_thumos(folder: Path, class_names: tuple[str, ...], half: str) -> list[Video]:
    """Read the videos of ``<activity>_val.txt`` or ``<activity>_test.txt``, sorted by name.

    Raises:
        ValueError: a file is missing, or a line is damaged; names both.
    """
    found: dict[str, list[Activity]] = {}
    for kind, name in enumerate(class_names):
        file = folder / f"{name}_{half}.txt"
        if not file.is_file():
            raise ValueError(f"{file} does not exist: download it as docs/datasets.md says, or set path")
        for line, text in enumerate(file.read_text(errors="replace").splitlines(), 1):
            words = text.split()
            if not words:
                continue
            where = f"{file}, line {line}"
            if len(words) != 3:
                raise ValueError(f"{where}: {text!r}: a video and two times are needed")
            start, stop = parse_seconds(words[1], where, "start"), parse_seconds(words[2], where, "end")
            if stop < start:
                raise ValueError(f"{where}: it ends ({stop}) before it starts ({start})")
            found.setdefault(words[0], []).append(Activity(kind, start, stop))
    if not found:
        raise ValueError(f"{folder}: the files of {half} are empty: download them again")
    return [Video(name, math.nan, tuple(found[name])) for name in sorted(found)]


def select_part(videos: list[Video], part: str, every: int, file: Path) -> list[Video]:
    """Select the videos of a part: all for test, each ``every``-th for validation, the rest for train.

    Raises:
        ValueError: the part is empty.
    """
    found = videos if part == "test" else videos[::every]
    if part == "train":
        found = [video for place, video in enumerate(videos) if place % every]
    if not found:
        raise ValueError(f"{file}: part={part!r} has no video: there are {len(videos)} in all, give more")
    return found


def parse_seconds(text: str, where: str, field: str) -> float:
    """Parse a time in seconds that is finite and not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{where}: {field}={text!r}: give seconds")
    return value
