"""Charades: 157 overlapping activities of people at home, in videos of half a minute.

    path/Charades_v1_train.csv, Charades_v1_test.csv, Charades_v1_classes.txt
    path/Charades_v1_480/AO8RW.mp4 ...

Training draws pieces of videos of the training table. An evaluation during a run reads every twentieth of its videos;
a finished run is scored on the test table, each video once and from its beginning, by ``charades_v1_localize``: 25
moments per video, the i-th at (i / 25) of its length, i = 0..24; activities include their start and end. Frames after
the last moment are not read.

Data source: docs/datasets.md.
Paper:   Sigurdsson et al. 2016, Hollywood in homes; Ryoo et al. 2023, section 3.1.1.
Differs: frames are taken at ``rate`` a second, and the nearest one to each moment is scored; videos so short that two
moments would share a frame are read at a higher rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.streams.contract import Batch, Part, TaskSpec
from recollect.tasks.videos.annotations import Video, read_charades, select_part
from recollect.tasks.videos.contract import VideoTask, activity_labels, stack_rows
from recollect.tasks.videos.video_files import VideoReader

NUM_CLASSES = 157
MOMENTS = 25  # scored moments of a video
SHORT = 1.0  # seconds by which a video may be shorter than the table says
KEPT_OUT = 20  # each so many-th training video is for evaluations during a run


@dataclass(frozen=True, kw_only=True)
class Charades(VideoTask):
    """Activities of people at home, in videos (Charades, charades_v1_localize)."""

    path: str = ""
    """Folder with tables and videos; empty: charades below $RECOLLECT_DATA."""
    films: str = "Charades_v1_480"
    """Folder of the videos in it."""
    size: int = 224
    """Pixels along a side to which frames are resized."""
    rate: float = 6.0
    """Frames read per second."""
    length: int = 192
    """Frames of a training piece (six segments of 32 in Ryoo et al. 2023)."""
    part: Part = "train"
    """Part that videos are drawn from."""

    def __post_init__(self) -> None:
        for name in ("size", "rate", "length"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """Spec of frames with 157 activities."""
        return TaskSpec(num_classes=NUM_CLASSES, length=self.length)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names in the file of classes, else c000 to c156."""
        file = self._folder / "Charades_v1_classes.txt"
        if not file.is_file():
            return tuple(f"c{k:03d}" for k in range(NUM_CLASSES))
        lines = file.read_text().splitlines()
        require(len(lines) == NUM_CLASSES, "classes", str(file), f"{len(lines)} lines, not {NUM_CLASSES}")
        return tuple(line.partition(" ")[2] or line for line in lines)

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Rows, columns and 3 of a frame."""
        return self.size, self.size, 3

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw pieces of videos of this part, with replacement; short videos are padded with black."""
        videos, rows = self._videos, []
        for pick in torch.randint(len(videos), (batch_size,), generator=generator).tolist():
            video = videos[pick]
            spare = max(0.0, video.seconds - self.length / self.rate)
            start = spare * float(torch.rand((), generator=generator))
            rows.append(self._piece(video, start + torch.arange(self.length) / self.rate))
        return stack_rows(rows)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield every video of this part once, at most ``num_rows``, one at a time; 25 moments of each are scored."""
        for video in self._videos[:num_rows]:
            moments = torch.arange(MOMENTS, dtype=torch.float64) / MOMENTS * video.seconds
            rate = max(self.rate, MOMENTS / video.seconds)
            places = (moments * rate).round().long()
            segment = 32 if self.length % 32 == 0 else 1  # whole segments, for backbones that read 32 frames at once
            length = -(-(int(places[-1]) + 1) // segment) * segment
            batch = stack_rows([self._piece(video, torch.arange(length) / rate)])
            asked = torch.zeros_like(batch.score_mask)
            asked[0, places] = True
            targets = batch.targets.clone()
            targets[0, places] = activity_labels(video.activities, moments, NUM_CLASSES)
            yield batch._replace(targets=targets, score_mask=asked)

    def scored_on(self, *, final: bool) -> Self:
        """Return every twentieth training video, or the test videos for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _folder(self) -> Path:
        return task_folder(self.path, "charades")

    @property
    def _videos(self) -> list[Video]:
        half = "test" if self.part == "test" else "train"
        file = self._folder / f"Charades_v1_{half}.csv"
        return select_part(_read(file), self.part, KEPT_OUT, file)

    def _piece(self, video: Video, times: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Read inputs ``[t, y, x, 3]``, targets ``[t, k]`` and real steps ``[t]``, at times in seconds."""
        file = self._folder / self.films / f"{video.name}.mp4"
        frames = read_frames(file, times.tolist(), self.size)
        if len(frames) < len(times) and float(times[len(frames)]) < video.seconds - SHORT:
            raise ValueError(
                f"{file} ends before second {float(times[len(frames)]):.1f}, and the table says that it lasts "
                f"{video.seconds:.1f}: it is cut off, or another video: download it again"
            )
        inputs = torch.zeros(len(times), self.size, self.size, 3, dtype=torch.uint8)
        inputs[: len(frames)] = frames
        return inputs, activity_labels(video.activities, times, NUM_CLASSES), torch.arange(len(times)) < len(frames)


def read_frames(file: Path, times: list[float], size: int) -> torch.Tensor:
    """Read the frames of a video at increasing times, uint8 ``[t, size, size, 3]``; fewer where it ends.

    Raises:
        ValueError: the video is missing, empty, unreadable, or a frame cannot be decoded; names video and frame.
    """
    found: list[torch.Tensor] = []
    with VideoReader(file) as video:
        shown, end = None, 0.0
        for frame in video:
            if frame.pixels is None:
                raise ValueError(f"{file}, frame {frame.number}: it cannot be decoded: download the video again")
            while shown is not None and len(found) < len(times) and times[len(found)] < frame.seconds - 1e-6:
                found.append(_resize(shown, size))
            if len(found) == len(times):
                break
            shown, end = frame.pixels, frame.seconds + 1 / video.rate
        if shown is None:
            raise ValueError(f"{file}: no frame can be read: download the video again")
        while len(found) < len(times) and times[len(found)] < end:
            found.append(_resize(shown, size))
    if not found:
        raise ValueError(f"{file} ends before second {times[0]:.1f}, where the table says that it goes on")
    return torch.stack(found)


def _resize(pixels: np.ndarray, size: int) -> torch.Tensor:
    areas = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(areas, (size, size), mode="area")
    return small[0].round().to(torch.uint8).permute(1, 2, 0)


@lru_cache(maxsize=4)
def _read(file: Path) -> list[Video]:
    return read_charades(file, NUM_CLASSES)
