"""Base of tasks of published photographs: parts, sizes and augmentation.

    training      drawn with replacement from the training part; with ``augment`` shifted by up to an eighth of a side,
                  with black outside, and mirrored with probability 1/2
    evaluation    every picture of the validation part, or of the test part for a finished run, once

Source: shifts and mirroring, He et al. 2016, section 4.2. Pictures are resized bilinearly, as Didolkar et al. 2022
(section 7.1) enlarged CIFAR; their method is not described.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from recollect.config import require, require_one_of
from recollect.lazy import torch
from recollect.tasks.images.contract import ImageTask, Pictures
from recollect.tasks.streams.contract import Part, hold_out_last

REMEDY = "download it as docs/datasets.md says, or set path to its folder"


class Photographs(NamedTuple):
    """Training or test pictures of a published set."""

    images: torch.Tensor  # uint8 [n, 3, y, x]
    labels: torch.Tensor  # long [n]


@dataclass(frozen=True, kw_only=True)
class PhotographTask(ImageTask):
    """Base of tasks of published photographs."""

    path: str = ""
    """Folder of the unpacked archive; empty: its own name below $RECOLLECT_DATA."""
    augment: bool = True
    """Shift and mirror training pictures at random."""
    validation: int = 1000
    """Training pictures, the last ones, that evaluations during a run use."""
    part: Part = "train"
    """Part that pictures are drawn from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.validation >= 1, "validation", self.validation, "give at least one picture")
        require_one_of(self, "part")

    @abstractmethod
    def read(self, *, test: bool) -> Photographs:
        """Read the training or test pictures."""

    def scored_on(self, *, final: bool) -> Self:
        """Return the validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    def probed_on(self) -> Self:
        """Return the training part, without augmentation."""
        return replace(self, part="train", augment=False)

    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw pictures of this part, with replacement."""
        rows = self._rows
        found = self._pictures(rows[torch.randint(len(rows), (batch_size,), generator=generator)])
        if not self.augment or self.part != "train":
            return found
        return found._replace(images=shift_and_mirror(found.images, self.size // 8, generator))

    def picture_batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Pictures]:
        """Yield every picture of this part once, at most ``num_rows``."""
        for numbers in self._rows[:num_rows].split(batch_size):
            yield self._pictures(numbers)

    @property
    def _rows(self) -> torch.Tensor:
        count = len(self.read(test=self.part == "test").labels)
        return hold_out_last(count, self.validation, self.part)

    def _pictures(self, numbers: torch.Tensor) -> Pictures:
        images, labels = self.read(test=self.part == "test")
        return Pictures(resize(images[numbers], self.size), labels[numbers])


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize bytes ``[b, 3, y, x]`` to floats 0..1, ``[b, 3, size, size]``."""
    floats = images.float() / 255
    if images.shape[-1] == size:
        return floats
    interpolate = torch.nn.functional.interpolate
    return interpolate(floats, size=(size, size), mode="bilinear", align_corners=False, antialias=True)


def shift_and_mirror(images: torch.Tensor, most: int, generator: torch.Generator) -> torch.Tensor:
    """Shift every picture by up to ``most`` pixels each way, and mirror it with probability 1/2."""
    b, _, y, x = images.shape
    shifts = torch.randint(-most, most + 1, (2, b, 1), generator=generator)
    mirrored = torch.rand(b, 1, generator=generator) < 0.5
    columns = torch.arange(x).expand(b, x)
    rows, columns = torch.arange(y) + shifts[0], torch.where(mirrored, columns.flip(1), columns) + shifts[1]
    seen = ((rows >= 0) & (rows < y))[:, :, None] & ((columns >= 0) & (columns < x))[:, None]
    taken = images.gather(2, rows.clamp(0, y - 1)[:, None, :, None].expand_as(images))
    taken = taken.gather(3, columns.clamp(0, x - 1)[:, None, None].expand_as(images))
    return torch.where(seen[:, None], taken, 0.0)
