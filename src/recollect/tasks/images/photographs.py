"""What tasks of published photographs have in common: parts, sizes, and pictures that are moved and mirrored.

    training      drawn with replacement from the training part; with ``augment`` moved by up to an eighth of a side,
                  with black where nothing is, and mirrored every other time
    evaluation    every picture of the validation part, or of the test part for a finished run, once

Source: moving and mirroring, He et al. 2016, section 4.2. Pictures are resized bilinearly, as Didolkar et al. 2022
(section 7.1) enlarged CIFAR; how they did is not said.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.config import require
from recollect.tasks.images.contract import ImageTask, Pictures

Part = Literal["train", "validation", "test"]
PARTS = ("train", "validation", "test")


class Photographs(NamedTuple):
    """One half of a published set, as it lies on the disk."""

    images: Tensor
    """uint8 ``[n, 3, y, x]``."""
    labels: Tensor
    """long ``[n]``."""


@dataclass(frozen=True, kw_only=True)
class PhotographTask(ImageTask):
    """Base of the tasks of published photographs."""

    path: str = ""
    """Folder of the unpacked archive; empty: its own name below $RECOLLECT_DATA."""
    augment: bool = True
    """Move and mirror the pictures that are trained on."""
    validation: int = 1000
    """Training pictures, the last ones, that evaluations during a run use."""
    part: Part = "train"
    """Part that pictures are drawn from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.validation >= 1, "validation", self.validation, "give at least one picture")
        require(self.part in PARTS, "part", self.part, f"choose one of {', '.join(PARTS)}")

    @abstractmethod
    def read(self, *, test: bool) -> Photographs:
        """One half of the set."""

    def scored_on(self, *, final: bool) -> Self:
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    def probed_on(self) -> Self:
        """The training part, with nothing moved."""
        return replace(self, part="train", augment=False)

    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw pictures of this part, with replacement."""
        rows = self._rows
        found = self._of(rows[torch.randint(len(rows), (batch_size,), generator=generator)])
        if not self.augment or self.part != "train":
            return found
        return found._replace(images=moved_and_mirrored(found.images, self.size // 8, generator))

    def picture_batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Pictures]:
        """Every picture of this part once, at most ``num_rows``."""
        for numbers in self._rows[:num_rows].split(batch_size):
            yield self._of(numbers)

    @property
    def _rows(self) -> Tensor:
        count = len(self.read(test=self.part == "test").labels)
        if self.part == "test":
            return torch.arange(count)
        fits = self.validation < count
        require(fits, "validation", self.validation, f"there are {count} training pictures: leave some")
        cut = count - self.validation
        return torch.arange(cut, count) if self.part == "validation" else torch.arange(cut)

    def _of(self, numbers: Tensor) -> Pictures:
        images, labels = self.read(test=self.part == "test")
        return Pictures(resized(images[numbers], self.size), labels[numbers])


def resized(images: Tensor, size: int) -> Tensor:
    """Bytes ``[b, 3, y, x]`` as floats 0..1, ``[b, 3, size, size]``."""
    floats = images.float() / 255
    if images.shape[-1] == size:
        return floats
    return F.interpolate(floats, size=(size, size), mode="bilinear", align_corners=False, antialias=True)


def moved_and_mirrored(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Every picture moved by up to ``most`` pixels each way, and mirrored every other time."""
    b, _, y, x = images.shape
    shifts = torch.randint(-most, most + 1, (2, b, 1), generator=generator)
    mirrored = torch.rand(b, 1, generator=generator) < 0.5
    columns = torch.arange(x).expand(b, x)
    rows, columns = torch.arange(y) + shifts[0], torch.where(mirrored, columns.flip(1), columns) + shifts[1]
    seen = ((rows >= 0) & (rows < y))[:, :, None] & ((columns >= 0) & (columns < x))[:, None]
    taken = images.gather(2, rows.clamp(0, y - 1)[:, None, :, None].expand_as(images))
    taken = taken.gather(3, columns.clamp(0, x - 1)[:, None, None].expand_as(images))
    return torch.where(seen[:, None], taken, 0.0)
