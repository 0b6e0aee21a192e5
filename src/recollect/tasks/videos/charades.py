"""Charades: what people do at home, 157 activities that overlap, in films of half a minute.

    path/Charades_v1_train.csv, Charades_v1_test.csv, Charades_v1_classes.txt
    path/Charades_v1_480/AO8RW.mp4 ...

Training draws pieces of films of the training table. An evaluation during a run goes through every twentieth of its
films, a finished run is scored on the test table, each film once and from its beginning, by ``charades_v1_localize``:
25 moments per film, the i-th at (i / 25) of its length, i = 0..24, and an activity goes on from its start to its end,
both included. Frames after which nothing is asked are not read.

Where the data is from: docs/datasets.md.
Paper:   Sigurdsson et al. 2016, Hollywood in homes; Ryoo et al. 2023, section 3.1.1.
Differs: frames are taken at ``rate`` a second, and the nearest one to each moment is the one that is scored; of a film
so short that two moments would share a frame, as many are taken as keep them apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recollect.config import require
from recollect.tasks.long_range.bytes import where
from recollect.tasks.streams.contract import Batch, TaskSpec
from recollect.tasks.videos.annotations import Video, part_of, read_charades
from recollect.tasks.videos.contract import VideoTask
from recollect.tasks.videos.thumos import stacked
from recollect.tasks.videos.video_files import VideoReader

NUM_CLASSES = 157
MOMENTS = 25
"""Of a film that are scored."""
SHORT = 1.0
"""Seconds by which a film may be shorter than the table says."""
KEPT_OUT = 20
"""Every so many-th training film is for evaluations during a run."""


@dataclass(frozen=True, kw_only=True)
class Charades(VideoTask):
    """What people do at home, in films (Charades, charades_v1_localize)."""

    path: str = ""
    """Folder with tables and films; empty: charades below $RECOLLECT_DATA."""
    films: str = "Charades_v1_480"
    """Folder of the films in it."""
    size: int = 224
    """Pixels along a side to which frames are brought."""
    rate: float = 6.0
    """Frames that are taken per second."""
    length: int = 192
    """Frames of a piece that is trained on (six segments of 32 in Ryoo et al. 2023)."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that films are drawn from."""

    def __post_init__(self) -> None:
        for name in ("size", "rate", "length"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        parts = ("train", "validation", "test")
        require(self.part in parts, "part", self.part, f"choose one of {', '.join(parts)}")

    @property
    def spec(self) -> TaskSpec:
        """Frames, 157 activities."""
        return TaskSpec(vocabulary=None, input_dim=None, num_classes=NUM_CLASSES, length=self.length)

    @property
    def class_names(self) -> tuple[str, ...]:
        """As the file of classes says, else c000 to c156."""
        file = self._folder / "Charades_v1_classes.txt"
        if not file.is_file():
            return tuple(f"c{k:03d}" for k in range(NUM_CLASSES))
        lines = file.read_text().splitlines()
        require(len(lines) == NUM_CLASSES, "classes", str(file), f"{len(lines)} lines, not {NUM_CLASSES}")
        return tuple(line.partition(" ")[2] or line for line in lines)

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Square."""
        return self.size, self.size, 3

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw pieces of films of this part, with replacement; short films are filled up with black."""
        videos, rows = self._videos, []
        for pick in torch.randint(len(videos), (batch_size,), generator=generator).tolist():
            video = videos[pick]
            spare = max(0.0, video.seconds - self.length / self.rate)
            start = spare * float(torch.rand((), generator=generator))
            rows.append(self._piece(video, start + torch.arange(self.length) / self.rate))
        return stacked(rows)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every film of this part once, at most ``num_rows``, one at a time; 25 moments of each are scored."""
        for video in self._videos[:num_rows]:
            moments = torch.arange(MOMENTS, dtype=torch.float64) / MOMENTS * video.seconds
            rate = max(self.rate, MOMENTS / video.seconds)
            places = (moments * rate).round().long()
            f = 32 if self.length % 32 == 0 else 1  # whole segments, for backbones that read 32 frames at once
            length = -(-(int(places[-1]) + 1) // f) * f
            batch = stacked([self._piece(video, torch.arange(length) / rate)])
            asked = torch.zeros_like(batch.score_mask)
            asked[0, places] = True
            targets = batch.targets.clone()
            targets[0, places] = labels(video, moments)
            yield batch._replace(targets=targets, score_mask=asked)

    def scored_on(self, *, final: bool) -> "Charades":
        """Every twentieth training film, or the test films for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _folder(self) -> Path:
        return where(self.path, "charades")

    @property
    def _videos(self) -> list[Video]:
        half = "test" if self.part == "test" else "train"
        file = self._folder / f"Charades_v1_{half}.csv"
        return part_of(_read(file), self.part, KEPT_OUT, file)

    def _piece(self, video: Video, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs ``[t, y, x, 3]``, targets ``[t, k]`` and what is real ``[t]``, at times in seconds."""
        file = self._folder / self.films / f"{video.name}.mp4"
        frames = read_frames(file, times.tolist(), self.size)
        if len(frames) < len(times) and float(times[len(frames)]) < video.seconds - SHORT:
            raise ValueError(
                f"{file} ends before second {float(times[len(frames)]):.1f}, and the table says that it lasts "
                f"{video.seconds:.1f}: it is cut off, or another film: download it again"
            )
        inputs = torch.zeros(len(times), self.size, self.size, 3, dtype=torch.uint8)
        inputs[: len(frames)] = frames
        return inputs, labels(video, times), torch.arange(len(times)) < len(frames)


def labels(video: Video, times: Tensor) -> Tensor:
    """1 where an activity goes on at times ``[t]`` in seconds, float ``[t, 157]``."""
    targets = torch.zeros(len(times), NUM_CLASSES)
    for kind, begin, end in video.activities:
        targets[(times >= begin) & (times <= end), kind] = 1.0
    return targets


def read_frames(file: Path, times: list[float], size: int) -> Tensor:
    """The frames of a film that are shown at rising times, uint8 ``[t, size, size, 3]``; fewer where it ends.

    Raises:
        ValueError: the film is missing, empty, no film, or a frame cannot be decoded; names film and frame.
    """
    found: list[Tensor] = []
    with VideoReader(file) as film:
        shown, end = None, 0.0
        for frame in film:
            if frame.pixels is None:
                raise ValueError(f"{file}, frame {frame.number}: it cannot be decoded: download the film again")
            while shown is not None and len(found) < len(times) and times[len(found)] < frame.seconds - 1e-6:
                found.append(_square(shown, size))
            if len(found) == len(times):
                break
            shown, end = frame.pixels, frame.seconds + 1 / film.rate
        if shown is None:
            raise ValueError(f"{file}: not one frame can be read: download the film again")
        while len(found) < len(times) and times[len(found)] < end:
            found.append(_square(shown, size))
    if not found:
        raise ValueError(f"{file} ends before second {times[0]:.1f}, where the table says that it goes on")
    return torch.stack(found)


def _square(pixels: np.ndarray, size: int) -> Tensor:
    areas = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(areas, (size, size), mode="area")
    return small[0].round().to(torch.uint8).permute(1, 2, 0)


@lru_cache(maxsize=4)
def _read(file: Path) -> list[Video]:
    return read_charades(file, NUM_CLASSES)
