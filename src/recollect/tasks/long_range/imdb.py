"""IMDB reviews as bytes: is the reviewer pleased? The task Text of Long Range Arena.

    inputs     bytes + 1 of the review, up to ``length``; then padding (0)       256 kinds of token
    asked      at the last byte: 0 (negative) or 1 (positive)

Where the data is from and what is generated instead: docs/datasets.md.

Paper:    Maas et al. 2011; Tay et al. 2021, Long Range Arena: 25 000 rows to train, and 25 000 that validate and test.
Differs:  a part of the training rows validates, the last 2500 of a fixed order, so that the test part is seen once;
          ``validation=0`` validates on the test part, as the arena does: its score is then no score of unseen rows.
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
from recollect.tasks.long_range import bytes as byte_rows
from recollect.tasks.long_range.bytes import STAND_IN, VOCABULARY, asked_at_the_end, encode, filled, split_words, where
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

REMEDY = "download it as docs/datasets.md says, or set path to its folder, or to 'stand-in' for made-up rows"
POINTS = {"neg": ("1", "2", "3", "4"), "pos": ("7", "8", "9", "10")}
"""Classes, 0 and 1, and what the reviewer gave of 10 points."""


@dataclass(frozen=True, kw_only=True)
class IMDB(StreamTask):
    """Is a film review positive, byte by byte (Long Range Arena's Text)."""

    path: str = ""
    """Folder ``aclImdb`` with train/pos, train/neg, test/pos and test/neg; empty: below $RECOLLECT_DATA. ``stand-in``
    makes rows up, which are no reviews."""
    length: int = 4000
    """Bytes of a review that are read, and steps of a row."""
    validation: int = 2500
    """Training rows that evaluations during a run use. 0 takes the test part, the very same rows in the same order: who
    then picks a checkpoint by these evaluations picks it on the rows whose score is reported."""
    split_words: int = 0
    """Put spaces in so that every word lies over the border of two chunks of this length; 0 leaves the text alone."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", self.length, "read at least one byte")
        require(self.validation >= 0, "validation", self.validation, "give 0 or more rows")
        require(self.split_words >= 0, "split_words", self.split_words, "give the length of a chunk, or 0")
        parts = ("train", "validation", "test")
        require(self.part in parts, "part", self.part, f"choose one of {', '.join(parts)}")

    @property
    def spec(self) -> TaskSpec:
        """257 tokens with the padding, two answers."""
        return TaskSpec(vocabulary=VOCABULARY, input_dim=None, num_classes=2, length=self.length, chance=0.5)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        rows = self._rows
        return self._batch(rows[torch.randint(len(rows), (batch_size,), generator=generator)])

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every row of this part once, at most ``num_rows``."""
        return byte_rows.batches_of(self._rows[:num_rows], batch_size, self._batch)

    def scored_on(self, *, final: bool) -> "IMDB":
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _reviews(self) -> "Reviews":
        test = self.part == "test" or (self.part == "validation" and self.validation == 0)
        if self.path == STAND_IN:
            return _made_up(test)
        return _read(where(self.path, "aclImdb"), "test" if test else "train")

    @property
    def _rows(self) -> Tensor:
        count = len(self._reviews.texts)
        order = torch.from_numpy(np.random.default_rng(0).permutation(count))
        if self.part == "test" or self.validation == 0:
            return order
        fits = self.validation < count
        require(fits, "validation", self.validation, f"there are {count} training rows: leave some")
        return order[-self.validation :] if self.part == "validation" else order[: -self.validation]

    def _batch(self, numbers: Tensor) -> Batch:
        reviews = self._reviews
        texts = [reviews.texts[number] for number in numbers.tolist()]
        if self.split_words:
            texts = [split_words(text, self.split_words) for text in texts]
        return asked_at_the_end(
            *filled([encode(text, self.length) for text in texts], self.length), reviews.labels[numbers]
        )


class Reviews(NamedTuple):
    """One half of the data."""

    texts: list[bytes]
    """As they are in the files."""
    labels: Tensor
    """long ``[n]``: 0 or 1."""


@lru_cache(maxsize=4)
def _read(folder: Path, half: str) -> Reviews:
    files = {name: _named(folder / half / name, points) for name, points in POINTS.items()}
    counts = [len(found) for found in files.values()]
    if len(set(counts)) > 1:
        said = " and ".join(f"{count} in {name}/" for name, count in zip(files, counts, strict=True))
        raise ValueError(f"{folder / half} has {said}; there are as many of both: unpack the archive again")
    texts: list[bytes] = []
    for file in (file for found in files.values() for file in found):
        text = file.read_bytes()
        _require_text(file, text)
        texts.append(text)
    return Reviews(texts, torch.arange(len(POINTS)).repeat_interleave(counts[0]))


def _named(place: Path, points: tuple[str, ...]) -> list[Path]:
    """The files of one class, whose names say that they are of it: 4711_8.txt got 8 of 10 points."""
    files = sorted(place.glob("*.txt"))
    if not files:
        raise ValueError(f"{place} has no reviews (*.txt): {REMEDY}")
    for file in files:
        number, _, rating = file.stem.partition("_")
        good = number.isascii() and number.isdigit() and rating in points
        remedy = f"a review in {place.name}/ is called NUMBER_POINTS.txt, with points that are {place.name}: "
        require(good, "file", str(file), f"{remedy}{points[0]} to {points[-1]}")
        require(file.is_file(), "file", str(file), "it is no file: remove it, or unpack the archive again")
    return files


def _require_text(file: Path, text: bytes) -> None:
    if not text.strip():
        raise ValueError(f"{file} is empty: unpack the archive again")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ValueError(f"{file}, line {line}: this is no UTF-8 text ({error.reason}): unpack again") from None


@lru_cache(maxsize=2)
def _made_up(test: bool) -> Reviews:
    """Rows that are no reviews: in one class some words are used that the other never uses."""
    random = np.random.default_rng(int(test))
    labels = torch.arange(400) % 2
    sizes = random.integers(20, 120, 400)
    texts = [byte_rows.words(random, int(n), label).encode() for n, label in zip(sizes, labels.tolist(), strict=True)]
    return Reviews(texts, labels)
