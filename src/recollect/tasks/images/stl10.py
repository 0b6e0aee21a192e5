"""STL-10: photographs of 96 x 96 pixels, most without a label, from binary files.

    train_X.bin, train_y.bin         5000 pictures and their labels, 1..10
    test_X.bin, test_y.bin           8000
    unlabeled_X.bin                  100 000, for learning without labels; 2.7 GB, memory-mapped

A picture is 3 x 96 x 96 bytes, channel by channel, column by column. Data source: docs/datasets.md.

Paper:    Coates et al. 2011; Didolkar et al. 2022, sections 3.1 and 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.images.contract import Pictures
from recollect.tasks.images.photographs import REMEDY, Photographs, PhotographTask, resize

SIDE = 96
BYTES = 3 * SIDE * SIDE


@dataclass(frozen=True, kw_only=True)
class STL10(PhotographTask):
    """Classify a photograph of STL-10 (files to download)."""

    size: int = 96
    validation: int = 500
    """Training pictures, the last ones, that evaluations during a run use."""
    unlabelled: bool = False
    """Train on the 100 000 pictures without labels instead (their label is 0), for self-supervised learning, which
    draws its own views: ``augment`` does not apply to them."""

    @property
    def num_classes(self) -> int:
        """Number of classes of pictures."""
        return 10

    def read(self, *, test: bool) -> Photographs:
        """Read the labelled training or test pictures."""
        return _read(task_folder(self.path, "stl10_binary"), "test" if test else "train")

    def pictures(self, batch_size: int, generator: torch.Generator) -> Pictures:
        """Draw pictures of this part, or of those without labels."""
        if not self.unlabelled or self.part != "train":
            return super().pictures(batch_size, generator)
        images = map_images(task_folder(self.path, "stl10_binary") / "unlabeled_X.bin")
        rows = torch.randint(len(images), (batch_size,), generator=generator)
        chosen = torch.from_numpy(np.ascontiguousarray(images[rows.numpy()]))
        return Pictures(resize(chosen.transpose(2, 3), self.size), torch.zeros(batch_size, dtype=torch.long))


@lru_cache(maxsize=3)
def map_images(file: Path) -> np.ndarray:
    """Memory-map pictures uint8 ``[n, 3, x, y]``.

    Raises:
        ValueError: there is no such file, it is empty, or it ends inside a picture; names file and picture.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist: {REMEDY}")
    count, left = divmod(file.stat().st_size, BYTES)
    if left:
        raise ValueError(f"{file}, picture {count}: the file ends after {left} of {BYTES} bytes: unpack it again")
    if not count:
        raise ValueError(f"{file} is empty: unpack the archive again")
    return np.memmap(file, np.uint8, "r", shape=(count, 3, SIDE, SIDE))


@lru_cache(maxsize=2)
def _read(folder: Path, half: str) -> Photographs:
    images, file = map_images(folder / f"{half}_X.bin"), folder / f"{half}_y.bin"
    if not file.is_file():
        raise ValueError(f"{file} does not exist: {REMEDY}")
    labels = np.frombuffer(file.read_bytes(), np.uint8).astype(np.int64)
    if len(labels) != len(images):
        raise ValueError(f"{file}: {len(labels)} labels for {len(images)} pictures: unpack the archive again")
    wrong = np.flatnonzero((labels < 1) | (labels > 10))
    if len(wrong):
        raise ValueError(f"{file}, picture {wrong[0]}: the label is {labels[wrong[0]]}; there are ten classes, 1..10")
    return Photographs(torch.from_numpy(np.array(images)).transpose(2, 3), torch.from_numpy(labels - 1))
