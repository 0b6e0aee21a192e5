"""Image classification tasks: one label for each picture, whose patches are the steps of a row.

    inputs     the patches of a picture, row by row, each as 3 * p * p numbers: all red, all green, all blue values;
               brightness 0..1 becomes -2..2
    asked      at the last patch: the class

So every model of vectors reads pictures: a Transformer over patches is a ViT, and a memory core sees a picture patch by
patch. ``pictures`` returns the same pictures as images, with their foreground where it is known.

Source: patches as tokens, Dosovitskiy et al., An Image is Worth 16x16 Words (2021), equation 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from recollect.config import require
from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec, single_episode_batch

MEAN, DEVIATION = 0.5, 0.25  # constants that normalize brightness


class Pictures(NamedTuple):
    """A batch of b pictures with their labels."""

    images: torch.Tensor
    """float ``[b, 3, y, x]``, 0..1."""
    labels: torch.Tensor
    """long ``[b]``."""
    foreground: torch.Tensor | None = None
    """bool ``[b, y, x]``: pixels of the object that the label names; None where unknown."""


@dataclass(frozen=True, kw_only=True)
class ImageTask(StreamTask):
    """Base of all image tasks."""

    size: int = 64
    """Pixels of a side."""
    patch: int = 4
    """Pixels of a side of a patch; must divide size."""

    def __post_init__(self) -> None:
        require(self.patch >= 1, "patch", self.patch, "give at least 1 pixel")
        whole = self.size >= self.patch and self.size % self.patch == 0
        require(whole, "size", self.size, f"give a multiple of patch={self.patch}")

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Number of classes of pictures."""

    @abstractmethod
    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw pictures. All randomness comes from ``generator``."""

    def picture_pairs(self, batch_size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw two images of each of ``batch_size`` objects, for learning without labels: here one picture, twice."""
        images = self.pictures(batch_size, generator).images
        return images, images

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids of its pairs in a few words each, for tables."""
        return ()

    def picture_batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Pictures]:
        """Yield the pictures of an evaluation: ``num_rows`` fresh ones, or a part once, if it has fewer."""
        for start in range(0, num_rows, batch_size):
            yield self.pictures(min(batch_size, num_rows - start), generator)

    def probed_on(self) -> Self:
        """Return the task whose pictures train a probe: itself, or the training part without augmentation."""
        return self

    @property
    def spec(self) -> TaskSpec:
        """Patches in, one answer out."""
        return TaskSpec(
            input_dim=3 * self.patch**2,
            num_classes=self.num_classes,
            length=(self.size // self.patch) ** 2,
            chance=1 / self.num_classes,
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw pictures as rows of patches."""
        return rows_of(self.pictures(batch_size, generator), self.patch)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the pictures of an evaluation as rows of patches."""
        for pictures in self.picture_batches(num_rows, batch_size, generator):
            yield rows_of(pictures, self.patch)


def rows_of(pictures: Pictures, patch: int) -> Batch:
    """Turn pictures into rows of normalized patches, whose class is asked at the last one."""
    from recollect.layers.positions import patches

    inputs = patches(normalize(pictures.images), patch)
    asked = torch.zeros(inputs.shape[:2], dtype=torch.bool)
    asked[:, -1] = True
    return single_episode_batch(inputs, torch.where(asked, pictures.labels[:, None], 0), asked)


def normalize(images: torch.Tensor) -> torch.Tensor:
    """Shift and scale brightness 0..1 to the range -2..2 that models read."""
    return (images - MEAN) / DEVIATION
