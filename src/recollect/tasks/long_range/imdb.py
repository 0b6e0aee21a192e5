"""IMDB reviews as bytes: is the review positive? The task Text of Long Range Arena.

    inputs     bytes + 1 of the review, up to ``length``; then padding (0)       256 kinds of token
    asked      at the last byte: 0 (negative) or 1 (positive)

Data source and synthetic replacement: docs/datasets.md.

Paper:    Maas et al. 2011; Tay et al. 2021, Long Range Arena: 25 000 rows to train, and 25 000 that validate and test.
Differs:  a part of the training rows validates, the last 2500 of a fixed order, so that the test part is seen once;
          ``validation=0`` validates on the test part, as the arena does: its score is then no score of unseen rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.tasks.disk_cache import task_folder
from recollect.tasks.long_range.bytes import (
    REMEDY,
    STAND_IN,
    VOCABULARY,
    ask_at_last_step,
    encode,
    pad_rows,
    require_utf8,
    split_words,
    synthesize_text,
)
from recollect.tasks.streams.contract import Batch, DatasetTask, Part, TaskSpec, hold_out_last

POINTS = {"neg": ("1", "2", "3", "4"), "pos": ("7", "8", "9", "10")}  # classes, 0 and 1, and their ratings of 10 points


@dataclass(frozen=True, kw_only=True)
class IMDB(DatasetTask):
    """Classify film reviews as positive or negative, byte by byte (Long Range Arena's Text)."""

    path: str = ""
    """Folder ``aclImdb`` with train/pos, train/neg, test/pos and test/neg; empty: below $RECOLLECT_DATA. ``stand-in``
    takes synthetic rows, which are no reviews."""
    length: int = 4000
    """Bytes of a review that are read, and steps of a row."""
    validation: int = 2500
    """Training rows that evaluations during a run use. 0 takes the test part, the same rows in the same order: a
    checkpoint chosen by these evaluations is then chosen on the rows whose score is reported."""
    split_words: int = 0
    """Insert spaces so that every word crosses the border of two chunks of this length; 0 leaves the text alone."""
    part: Part = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", self.length, "read at least one byte")
        require(self.validation >= 0, "validation", self.validation, "give 0 or more rows")
        require(self.split_words >= 0, "split_words", self.split_words, "give the length of a chunk, or 0")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """257 tokens with the padding, two answers."""
        return TaskSpec(vocabulary=VOCABULARY, num_classes=2, length=self.length, chance=0.5)

    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows, in a fixed random order."""
        count = len(self._reviews.texts)
        order = torch.from_numpy(np.random.default_rng(0).permutation(count))
        if self.part == "test" or self.validation == 0:
            return order
        return order[hold_out_last(count, self.validation, self.part)]

    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the reviews with these numbers."""
        texts = [self._reviews.texts[row] for row in rows.tolist()]
        if self.split_words:
            texts = [split_words(text, self.split_words) for text in texts]
        inputs, padding = pad_rows([encode(text, self.length) for text in texts], self.length)
        return ask_at_last_step(inputs, padding, self._reviews.labels[rows])

    @property
    def _reviews(self) -> Reviews:
        test = self.part == "test" or (self.part == "validation" and self.validation == 0)
        if self.path == STAND_IN:
            return _synthesize(test)
        return _read(task_folder(self.path, "aclImdb"), "test" if test else "train")


class Reviews(NamedTuple):
    """Training or test reviews."""

    texts: list[bytes]  # contents of the files
    labels: torch.Tensor  # long [n]: 0 or 1


@lru_cache(maxsize=4)
def _read(folder: Path, half: str) -> Reviews:
    files = {name: _list_reviews(folder / half / name, points) for name, points in POINTS.items()}
    counts = [len(found) for found in files.values()]
    if len(set(counts)) > 1:
        found = " and ".join(f"{count} in {name}/" for name, count in zip(files, counts, strict=True))
        raise ValueError(f"{folder / half} has {found}; both must be equal: unpack the archive again")
    texts: list[bytes] = []
    for file in (*files["neg"], *files["pos"]):
        text = file.read_bytes()
        if not text.strip():
            raise ValueError(f"{file} is empty: unpack the archive again")
        require_utf8(text, file, 1, "unpack the archive again")
        texts.append(text)
    return Reviews(texts, torch.arange(len(POINTS)).repeat_interleave(counts[0]))


def _list_reviews(place: Path, points: tuple[str, ...]) -> list[Path]:
    """List the files of one class, and check the rating in their names: 4711_8.txt has 8 of 10 points."""
    files = sorted(place.glob("*.txt"))
    if not files:
        raise ValueError(f"{place} has no reviews (*.txt): {REMEDY}")
    for file in files:
        number, _, rating = file.stem.partition("_")
        good = number.isascii() and number.isdigit() and rating in points
        remedy = f"a review in {place.name}/ is called NUMBER_POINTS.txt, with {place.name} points: "
        require(good, "file", str(file), f"{remedy}{points[0]} to {points[-1]}")
        require(file.is_file(), "file", str(file), "it is no file: remove it, or unpack the archive again")
    return files


@lru_cache(maxsize=2)
def _synthesize(test: bool) -> Reviews:
    """Draw synthetic reviews: each class has some words that the other never uses."""
    random = np.random.default_rng(int(test))
    labels = torch.arange(400) % 2
    sizes = random.integers(20, 120, 400)
    texts = [synthesize_text(random, int(n), label).encode() for n, label in zip(sizes, labels.tolist(), strict=True)]
    return Reviews(texts, labels)
