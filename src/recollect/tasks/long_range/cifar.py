"""CIFAR-10 in grey, classified pixel by pixel: the task Image of Long Range Arena.

    inputs     1024 grey values 0..255, row by row: 0.2989 R + 0.587 G + 0.114 B of 0..1, times 255.5, rounded down
               (``size`` 16 or 8: the means of blocks of 2 or 4 pixels a side)
    asked      at the last pixel: one of ten classes

Data source and synthetic replacement: docs/datasets.md.

Paper:    Krizhevsky 2009; Tay et al. 2021, Long Range Arena: 45 000, 5000 and 10 000 rows, no augmentation.
Differs:  black pixels are pixels; the arena's code reads 0 as padding (``zero_is_padding=True``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.images.cifar_files import PIXELS, read_batch, require_different
from recollect.tasks.long_range.bytes import REMEDY, STAND_IN, ask_at_last_step
from recollect.tasks.streams.contract import Batch, DatasetTask, Part, TaskSpec, hold_out_last

FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
GREY = (0.2989, 0.587, 0.114)


@dataclass(frozen=True, kw_only=True)
class GreyCIFAR(DatasetTask):
    """Classify a small grey picture, pixel by pixel (Long Range Arena's Image)."""

    path: str = ""
    """Folder ``cifar-10-batches-py`` of the Python version; empty: below $RECOLLECT_DATA. ``stand-in`` takes synthetic
    pictures, which are none of CIFAR's."""
    validation: int = 5000
    """Training rows, the last ones, that evaluations during a run use."""
    size: int = 32
    """Pixels a side: 32 as in the arena, or the means of larger blocks: 16 or 8."""
    zero_is_padding: bool = False
    """Read black pixels as padding, as the arena's code does."""
    part: Part = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.validation >= 1, "validation", self.validation, "give at least one row")
        require(self.size in (32, 16, 8), "size", self.size, "choose 32, 16 or 8")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """256 grey values, ten answers."""
        return TaskSpec(vocabulary=256, num_classes=10, length=self.size**2, chance=0.1)

    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows."""
        return hold_out_last(len(self._pictures.labels), self.validation, self.part)

    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the pictures with these numbers."""
        inputs = downsample(self._pictures.grey[rows], self.size).long()
        padding = (inputs == 0) & self.zero_is_padding
        return ask_at_last_step(inputs, padding, self._pictures.labels[rows])

    @property
    def _pictures(self) -> Pictures:
        half = "test" if self.part == "test" else "train"
        return (
            _synthesize(half) if self.path == STAND_IN else _read(task_folder(self.path, "cifar-10-batches-py"), half)
        )


class Pictures(NamedTuple):
    """Training or test pictures."""

    grey: torch.Tensor
    """uint8 ``[n, 1024]``."""
    labels: torch.Tensor
    """long ``[n]``: 0..9."""


def to_grey(colours: np.ndarray) -> np.ndarray:
    """Convert pictures uint8 ``[n, 3072]``, all red, all green, all blue values, to grey uint8 ``[n, 1024]``.

    Source: TensorFlow's ``rgb_to_grayscale``, which the arena's code calls; it converts back to integers by 255.5.
    """
    planes = colours.reshape(len(colours), 3, PIXELS).astype(np.float32) / 255
    return np.floor(np.einsum("ncp,c->np", planes, np.array(GREY, np.float32)) * 255.5).astype(np.uint8)


def downsample(pictures: torch.Tensor, side: int) -> torch.Tensor:
    """Average pictures uint8 ``[n, 1024]`` over square blocks, rounded down: ``[n, side * side]``."""
    block = 32 // side
    if block == 1:
        return pictures
    return pictures.view(-1, side, block, side, block).int().sum((2, 4)).div(block**2, rounding_mode="floor").flatten(1)


@lru_cache(maxsize=2)
def _read(folder: Path, half: str) -> Pictures:
    files = [read_batch(folder / name, labels="labels", classes=10, remedy=REMEDY) for name in FILES[half]]
    require_different(*([folder / name for name in FILES[half]] for half in ("train", "test")))
    pictures, labels = zip(*files, strict=True)
    return Pictures(torch.from_numpy(to_grey(np.concatenate(pictures))), torch.from_numpy(np.concatenate(labels)))


@lru_cache(maxsize=2)
def _synthesize(half: str) -> Pictures:
    """Draw synthetic pictures: stripes of ten directions in noise, shifted by at most a quarter of a wave.

    As in photographs, single pixels carry information about the class: with any shift only products of pixels would,
    which no encoder here begins to learn in 1500 steps.
    """
    random = np.random.default_rng(0 if half == "train" else 1)
    labels = np.arange(6000 if half == "train" else 1000) % 10
    y, x = np.mgrid[:32, :32].reshape(2, 1, PIXELS)
    angle, phase = labels[:, None] * np.pi / 10, random.uniform(0, np.pi / 2, (len(labels), 1))
    waves = np.sin(0.4 * (np.cos(angle) * x + np.sin(angle) * y) + phase)
    pixels = 127.5 + 60 * waves + random.normal(0, 40, waves.shape)
    return Pictures(torch.from_numpy(pixels.clip(0, 255).astype(np.uint8)), torch.from_numpy(labels.astype(np.int64)))
