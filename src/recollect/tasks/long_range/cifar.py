"""CIFAR-10 in grey, pixel by pixel: what is to be seen? The task Image of Long Range Arena.

    inputs     1024 grey values 0..255, row by row: 0.2989 R + 0.587 G + 0.114 B of 0..1, times 255.5, rounded down
               (``size`` 16 or 8: the means of blocks of 2 or 4 pixels a side)
    asked      at the last pixel: one of ten classes

Where the data is from and what is generated instead: docs/datasets.md.

Paper:    Krizhevsky 2009; Tay et al. 2021, Long Range Arena: 45 000, 5000 and 10 000 rows, no augmentation.
Differs:  black pixels are pixels; the arena's code takes 0 for padding (``zero_is_padding=True``).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.config import require
from recollect.tasks.images.cifar_files import PIXELS, read_batch, require_different
from recollect.tasks.long_range.bytes import STAND_IN, asked_at_the_end, batches_of, where
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
REMEDY = "download it as docs/datasets.md says, or set path to its folder, or to 'stand-in' for made-up rows"
GREY = np.array([0.2989, 0.587, 0.114])


@dataclass(frozen=True, kw_only=True)
class GreyCIFAR(StreamTask):
    """What is on a small grey picture, pixel by pixel (Long Range Arena's Image)."""

    path: str = ""
    """Folder ``cifar-10-batches-py`` of the Python version; empty: below $RECOLLECT_DATA. ``stand-in`` makes pictures
    up, which are none of CIFAR's."""
    validation: int = 5000
    """Training rows, the last ones, that evaluations during a run use."""
    size: int = 32
    """Pixels a side: 32 as in the arena, or the means of larger blocks: 16 or 8."""
    zero_is_padding: bool = False
    """Take black pixels for padding, as the arena's code does."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.validation >= 1, "validation", self.validation, "give at least one row")
        require(self.size in (32, 16, 8), "size", self.size, "choose 32, 16 or 8")
        parts = ("train", "validation", "test")
        require(self.part in parts, "part", self.part, f"choose one of {', '.join(parts)}")

    @property
    def spec(self) -> TaskSpec:
        """256 grey values, ten answers."""
        return TaskSpec(vocabulary=256, input_dim=None, num_classes=10, length=self.size**2, chance=0.1)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        rows = self._rows
        return self._batch(rows[torch.randint(len(rows), (batch_size,), generator=generator)])

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every row of this part once, at most ``num_rows``."""
        return batches_of(self._rows[:num_rows], batch_size, self._batch)

    def scored_on(self, *, final: bool) -> "GreyCIFAR":
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _pictures(self) -> "Pictures":
        half = "test" if self.part == "test" else "train"
        return _made_up(half) if self.path == STAND_IN else _read(where(self.path, "cifar-10-batches-py"), half)

    @property
    def _rows(self) -> Tensor:
        count = len(self._pictures.labels)
        if self.part == "test":
            return torch.arange(count)
        fits = self.validation < count
        require(fits, "validation", self.validation, f"there are {count} training rows: leave some")
        cut = count - self.validation
        return torch.arange(cut, count) if self.part == "validation" else torch.arange(cut)

    def _batch(self, numbers: Tensor) -> Batch:
        inputs = coarse(self._pictures.grey[numbers], self.size).long()
        padding = inputs == 0 if self.zero_is_padding else torch.zeros_like(inputs, dtype=torch.bool)
        return asked_at_the_end(inputs, padding, self._pictures.labels[numbers])


class Pictures(NamedTuple):
    """One half of the data."""

    grey: Tensor
    """uint8 ``[n, 1024]``."""
    labels: Tensor
    """long ``[n]``: 0..9."""


def grey(colours: np.ndarray) -> np.ndarray:
    """Grey values uint8 ``[n, 1024]`` of pictures uint8 ``[n, 3072]``, all red, all green, all blue values.

    Source: TensorFlow's ``rgb_to_grayscale``, which the arena's code calls; it goes back to integers by 255.5.
    """
    planes = colours.reshape(len(colours), 3, PIXELS).astype(np.float32) / 255
    return np.floor(np.einsum("ncp,c->np", planes, GREY.astype(np.float32)) * 255.5).astype(np.uint8)


def coarse(pictures: Tensor, side: int) -> Tensor:
    """Means of square blocks, ``[n, side * side]``, of pictures uint8 ``[n, 1024]``, rounded down."""
    block = 32 // side
    if block == 1:
        return pictures
    return pictures.view(-1, side, block, side, block).int().sum((2, 4)).div(block**2, rounding_mode="floor").flatten(1)


@lru_cache(maxsize=2)
def _read(folder: Path, half: str) -> Pictures:
    files = [read_batch(folder / name, labels="labels", classes=10, remedy=REMEDY) for name in FILES[half]]
    require_different(*([folder / name for name in FILES[half]] for half in ("train", "test")))
    pictures, labels = zip(*files, strict=True)
    return Pictures(torch.from_numpy(grey(np.concatenate(pictures))), torch.from_numpy(np.concatenate(labels)))


@lru_cache(maxsize=2)
def _made_up(half: str) -> Pictures:
    """Pictures that are none of CIFAR's: stripes of ten directions in noise, shifted by at most a quarter.

    As in photographs, a place's brightness alone says something of the class: with any shift only products of pixels
    would, which no encoder here begins to learn in 1500 steps.
    """
    random = np.random.default_rng(0 if half == "train" else 1)
    labels = np.arange(6000 if half == "train" else 1000) % 10
    y, x = np.mgrid[:32, :32].reshape(2, 1, PIXELS)
    angle, phase = labels[:, None] * np.pi / 10, random.uniform(0, np.pi / 2, (len(labels), 1))
    waves = np.sin(0.4 * (np.cos(angle) * x + np.sin(angle) * y) + phase)
    pixels = 127.5 + 60 * waves + random.normal(0, 40, waves.shape)
    return Pictures(torch.from_numpy(pixels.clip(0, 255).astype(np.uint8)), torch.from_numpy(labels.astype(np.int64)))
