"""What a task of pictures is: one label for each picture, whose patches are the steps of a row.

    inputs     the patches of a picture, row by row, each as 3 * p * p numbers: all red, all green, all blue values;
               brightness 0..1 becomes -2..2
    asked      at the last patch: the class

So whatever reads rows of vectors reads pictures: a Transformer over patches is a ViT, and a memory core sees a picture
patch by patch. ``pictures`` gives the same pictures as images, with their foreground where it is known.

Source: patches as tokens, Dosovitskiy et al., An Image is Worth 16x16 Words (2021), equation 1.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from recollect.config import require
from recollect.layers.positions import patches
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

MIDDLE, SPREAD = 0.5, 0.25
"""What brightness is normalised with."""


class Pictures(NamedTuple):
    """b pictures."""

    images: Tensor
    """float ``[b, 3, y, x]``, 0..1."""
    labels: Tensor
    """long ``[b]``."""
    foreground: Tensor | None = None
    """bool ``[b, y, x]``: pixels of the thing that the label names; None where nobody knows."""


@dataclass(frozen=True, kw_only=True)
class ImageTask(StreamTask):
    """Base of all tasks of pictures."""

    size: int = 64
    """Pixels of a side."""
    patch: int = 4
    """Pixels of a side of a patch; divides size."""

    def __post_init__(self) -> None:
        require(self.patch >= 1, "patch", self.patch, "give at least 1 pixel")
        whole = self.size >= self.patch and self.size % self.patch == 0
        require(whole, "size", self.size, f"give a multiple of patch={self.patch}")

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Labels are 0 to one less."""

    @abstractmethod
    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw pictures. All randomness comes from ``generator``."""

    def picture_batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Pictures]:
        """The pictures of an evaluation: ``num_rows`` fresh ones, or every one of a part once, if there are fewer."""
        for start in range(0, num_rows, batch_size):
            yield self.pictures(min(batch_size, num_rows - start), generator)

    def scored_on(self, *, final: bool) -> Self:
        """Itself: pictures are fresh. See :meth:`StreamTask.scored_on`."""
        return self

    def probed_on(self) -> Self:
        """The pictures, with labels, that a probe is trained on: fresh ones, or the training part as it is."""
        return self

    @property
    def spec(self) -> TaskSpec:
        """Patches in, one answer out."""
        return TaskSpec(
            vocabulary=None,
            input_dim=3 * self.patch**2,
            num_classes=self.num_classes,
            length=(self.size // self.patch) ** 2,
            chance=1 / self.num_classes,
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw pictures as rows of patches."""
        return rows_of(self.pictures(batch_size, generator), self.patch)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """The pictures of an evaluation as rows of patches."""
        for pictures in self.picture_batches(num_rows, batch_size, generator):
            yield rows_of(pictures, self.patch)


def rows_of(pictures: Pictures, patch: int) -> Batch:
    """Pictures as rows of normalised patches, whose class is asked at the last one."""
    inputs = patches(normalize(pictures.images), patch)
    b, t, _ = inputs.shape
    asked = torch.zeros(b, t, dtype=torch.bool)
    asked[:, -1] = True
    targets = torch.where(asked, pictures.labels[:, None], 0)
    return Batch(inputs, asked.roll(1, 1), targets, asked, asked.clone(), torch.full((b, t), -1))


def normalize(images: Tensor) -> Tensor:
    """Brightness 0..1 as what models read."""
    return (images - MIDDLE) / SPREAD
