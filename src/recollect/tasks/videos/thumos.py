"""THUMOS'14 from published features: detect 20 sports at every step.

    path/annotations/BaseballPitch_val.txt ...       lines: video, start, end
    path/features/video_validation_0000051.npy       float [t, d]; or .npz with one array

Training draws pieces of the validation videos (THUMOS'14's training clips are cut to the activity), an evaluation
during a run reads every tenth of them from beginning to end, and a finished run is scored on the test videos:
mean average precision over all steps.

Data source: docs/datasets.md.
Paper:   Idrees et al. 2017, The THUMOS challenge on action recognition for videos "in the wild".
Differs: steps marked as ambiguous are scored like others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.streams.contract import Batch, Part, TaskSpec
from recollect.tasks.videos.annotations import Video, read_thumos, select_part
from recollect.tasks.videos.contract import VideoTask, activity_labels, stack_rows

CLASSES = (
    "BaseballPitch", "BasketballDunk", "Billiards", "CleanAndJerk", "CliffDiving", "CricketBowling", "CricketShot",
    "Diving", "FrisbeeCatch", "GolfSwing", "HammerThrow", "HighJump", "JavelinThrow", "LongJump", "PoleVault",
    "Shotput", "SoccerPenalty", "TennisSwing", "ThrowDiscus", "VolleyballSpiking",
)  # fmt: skip
KEPT_OUT = 10  # each so many-th validation video is for evaluations during a run


@dataclass(frozen=True, kw_only=True)
class Thumos(VideoTask):
    """Sports in videos, from published features (THUMOS'14)."""

    path: str = ""
    """Folder with annotations and features; empty: thumos14 below $RECOLLECT_DATA."""
    feature_dim: int = 2048
    """Width of a feature (2048 for I3D, both streams)."""
    seconds_per_step: float = 4 / 30
    """Time from one feature to the next (I3D: every 4 frames of 30 a second)."""
    length: int = 128
    """Steps of a training piece."""
    part: Part = "train"
    """Part that videos are drawn from."""

    def __post_init__(self) -> None:
        for name in ("feature_dim", "length", "seconds_per_step"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give a positive number")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """Spec of features with 20 activities."""
        return TaskSpec(input_dim=self.feature_dim, num_classes=len(CLASSES), length=self.length)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the twenty sports."""
        return CLASSES

    @property
    def frame_shape(self) -> None:
        """None: steps are features."""
        return

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw pieces of videos of this part, with replacement; short videos are padded with zeros."""
        videos, rows = self._videos, []
        for pick in torch.randint(len(videos), (batch_size,), generator=generator).tolist():
            features = self._features(videos[pick])
            start = int(torch.randint(max(1, len(features) - self.length + 1), (), generator=generator))
            rows.append(self._piece(videos[pick], features, start, self.length))
        return stack_rows(rows)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield every video of this part once, whole, at most ``num_rows``; one at a time, as they differ in length."""
        for video in self._videos[:num_rows]:
            features = self._features(video)
            yield stack_rows([self._piece(video, features, 0, len(features))])

    def scored_on(self, *, final: bool) -> Self:
        """Return every tenth validation video, or the test videos for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _folder(self) -> Path:
        return task_folder(self.path, "thumos14")

    @property
    def _videos(self) -> list[Video]:
        folder = self._folder / "annotations"
        return select_part(_read(folder, "test" if self.part == "test" else "val"), self.part, KEPT_OUT, folder)

    def _features(self, video: Video) -> np.ndarray:
        return read_features(self._folder / "features", video.name, self.feature_dim)

    def _piece(
        self, video: Video, features: np.ndarray, start: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return inputs ``[t, d]``, targets ``[t, k]`` and real steps ``[t]``."""
        part = torch.from_numpy(features[start : start + length].astype(np.float32))
        times = (start + torch.arange(len(part))) * self.seconds_per_step
        targets = torch.zeros(length, len(CLASSES))
        targets[: len(part)] = activity_labels(video.activities, times, len(CLASSES))
        inputs = torch.zeros(length, self.feature_dim)
        inputs[: len(part)] = part
        return inputs, targets, torch.arange(length) < len(part)


def read_features(folder: Path, name: str, width: int) -> np.ndarray:
    """Read the features ``[t, width]`` of a video.

    Raises:
        ValueError: the file is missing, cut off, of another width, empty or not finite; names file and step.
    """
    files = [folder / f"{name}{ending}" for ending in (".npy", ".npz")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise ValueError(f"{files[0]} does not exist: download the features as docs/datasets.md says, or set path")
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.lib.npyio.NpzFile):
            with found:
                arrays = {array: found[array] for array in found.files}
            found = arrays.popitem()[1] if len(arrays) == 1 else arrays
    except (OSError, EOFError, BadZipFile, zlib.error, ValueError) as error:
        raise ValueError(f"{file} is cut off or damaged ({error}): download it again") from None
    if isinstance(found, dict):
        raise ValueError(f"{file} holds the arrays {', '.join(found) or 'none'}, and one is needed")
    if found.ndim != 2 or found.dtype.kind != "f" or not len(found):
        raise ValueError(f"{file}: features are {found.dtype} {list(found.shape)}, not floats [steps, width]")
    if found.shape[1] != width:
        raise ValueError(f"{file}: features have width {found.shape[1]}, not {width}: set feature_dim")
    if not np.isfinite(found).all():
        raise ValueError(f"{file}: step {np.argwhere(~np.isfinite(found))[0][0]} is not finite: download it again")
    return found


@lru_cache(maxsize=4)
def _read(folder: Path, half: str) -> list[Video]:
    return read_thumos(folder, CLASSES, half)
