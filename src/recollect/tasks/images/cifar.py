"""CIFAR-10 and CIFAR-100 in colour, at any size: classify a small photograph.

    pictures    32 x 32 pixels, enlarged to ``size``
    asked       one of ten classes, or of a hundred ("fine" labels)

Data source: docs/datasets.md. The task Image of Long Range Arena has the same pictures in grey, pixel by
pixel (tasks/long_range/cifar.py).

Paper:    Krizhevsky 2009; Didolkar et al. 2022, section 7.1: 64 pixels to train, 128 to test.
Differs:  the paper does not say which pictures its evaluations during training used: here 5000 of the 50 000.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from recollect.config import require
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.images.cifar_files import read_batch, require_different
from recollect.tasks.images.photographs import REMEDY, Photographs, PhotographTask

FOLDERS = {10: "cifar-10-batches-py", 100: "cifar-100-python"}
TRAINING = {10: [f"data_batch_{number}" for number in range(1, 6)], 100: ["train"]}
TEST = {10: ["test_batch"], 100: ["test"]}
LABELS = {10: "labels", 100: "fine_labels"}


@dataclass(frozen=True, kw_only=True)
class CIFAR(PhotographTask):
    """Classify a small photograph: CIFAR-10 or CIFAR-100 (files to download)."""

    classes: Literal[10, 100] = 10
    """CIFAR-10 or CIFAR-100."""
    validation: int = 5000
    """Training pictures, the last ones, that evaluations during a run use."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.classes in FOLDERS, "classes", self.classes, "choose 10 or 100")

    @property
    def num_classes(self) -> int:
        """Number of classes of pictures."""
        return self.classes

    def read(self, *, test: bool) -> Photographs:
        """Read the training or test pictures."""
        return _read(task_folder(self.path, FOLDERS[self.classes]), self.classes, test)


@lru_cache(maxsize=4)
def _read(folder: Path, classes: int, test: bool) -> Photographs:
    names = (TEST if test else TRAINING)[classes]
    found = [read_batch(folder / name, labels=LABELS[classes], classes=classes, remedy=REMEDY) for name in names]
    require_different(*([folder / name for name in half[classes]] for half in (TRAINING, TEST)))
    images, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Photographs(torch.from_numpy(images).unflatten(1, (3, 32, 32)), torch.from_numpy(labels))
