"""Pairs of papers as bytes: does one cite the other? The task Retrieval of Long Range Arena.

    inputs     bytes + 1 of the first text up to ``length``, padding, then the second likewise (two parts of a row)
    asked      at the last byte: 0 or 1

Where the data is from and what is generated instead: docs/datasets.md.

Paper:    Radev et al. 2013 (ACL Anthology Network); Tay et al. 2021, Long Range Arena: 147 086, 18 090 and 17 437 rows
          of columns label, id of one, id of the other, text of one, text of the other, with tabs between them.
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
from recollect.tasks.long_range.bytes import (
    STAND_IN,
    VOCABULARY,
    asked_at_the_end,
    batches_of,
    encode,
    filled,
    where,
    words,
)
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
TOPICS = 4
"""Of made-up rows."""
REMEDY = "download it as docs/datasets.md says, or set path to its folder, or to 'stand-in' for made-up rows"


@dataclass(frozen=True, kw_only=True)
class AAN(StreamTask):
    """Does one paper cite the other, byte by byte (Long Range Arena's Retrieval)."""

    path: str = ""
    """Folder with the three files new_aan_pairs.*.tsv; empty: ``tsv_data`` below $RECOLLECT_DATA. ``stand-in`` makes
    rows up, which are no papers."""
    length: int = 4000
    """Bytes of each text that are read; a row has twice as many steps."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", self.length, "read at least one byte")
        require(self.part in FILES, "part", self.part, f"choose one of {', '.join(FILES)}")

    @property
    def spec(self) -> TaskSpec:
        """257 tokens with the padding, two answers, two parts of a row."""
        return TaskSpec(
            vocabulary=VOCABULARY, input_dim=None, num_classes=2, length=2 * self.length, chance=0.5, parts=2
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        count = len(self._pairs.labels)
        return self._batch(torch.randint(count, (batch_size,), generator=generator))

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every row of this part once, at most ``num_rows``."""
        count = min(len(self._pairs.labels), num_rows)
        return batches_of(torch.arange(count), batch_size, self._batch)

    def scored_on(self, *, final: bool) -> "AAN":
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _pairs(self) -> "Pairs":
        if self.path == STAND_IN:
            return _made_up(self.part)
        return _read(where(self.path, "tsv_data") / FILES[self.part], self.length)

    def _batch(self, numbers: Tensor) -> Batch:
        pairs = self._pairs
        halves = [
            filled([encode(texts[number], self.length) for number in numbers.tolist()], self.length)
            for texts in (pairs.one, pairs.other)
        ]
        inputs, padding = (torch.cat(both, 1) for both in zip(*halves, strict=True))
        return asked_at_the_end(inputs, padding, pairs.labels[numbers])


class Pairs(NamedTuple):
    """A file."""

    labels: Tensor
    """long ``[n]``: 0 or 1."""
    one: list[bytes]
    """The first texts."""
    other: list[bytes]
    """The second texts."""


@lru_cache(maxsize=4)
def _read(file: Path, length: int) -> Pairs:
    if not file.is_file():
        raise ValueError(f"{file} does not exist: {REMEDY}")
    labels: list[int] = []
    texts: tuple[list[bytes], list[bytes]] = ([], [])
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip(b"\r\n").split(b"\t")
            labels.append(_checked(file, number, cells))
            if not line.endswith(b"\n"):
                remedy = "download the file again, or end the line"
                raise ValueError(f"{file}, line {number}: the line does not end, as if it were cut short: {remedy}")
            for kept, text in zip(texts, cells[3:], strict=True):
                kept.append(text[:length])
    if not labels:
        raise ValueError(f"{file} is empty: {REMEDY}")
    return Pairs(torch.tensor(labels), *texts)


def _checked(file: Path, line: int, cells: list[bytes]) -> int:
    where_ = f"{file}, line {line}"
    if len(cells) != 5:
        raise ValueError(f"{where_}: {len(cells)} columns; 5 are wanted: label, id, id, text, text. Is it cut short?")
    if cells[0] not in (b"0", b"1", b"0.0", b"1.0"):
        raise ValueError(f"{where_}: the label is {cells[0][:20].decode(errors='replace')!r}; it must be 0 or 1")
    for text in cells[3:]:
        if not text.strip():
            raise ValueError(f"{where_}: a text is empty: download the file again")
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{where_}: this is no UTF-8 text ({error.reason}): download the file again") from None
    return int(float(cells[0]))


@lru_cache(maxsize=4)
def _made_up(part: str) -> Pairs:
    """Rows that are no papers: texts belong together where they share rare words."""
    random = np.random.default_rng(list(FILES).index(part))
    labels = torch.arange(4000 if part == "train" else 500) % 2  # of a few hundred pairs each is soon known by heart
    one, other = [], []
    for label in labels.tolist():
        first, second = random.choice(TOPICS, 2, replace=False).tolist()
        for kept, topic in ((one, first), (other, first if label else second)):
            kept.append(words(random, int(random.integers(20, 60)), topic).encode())
    return Pairs(labels, one, other)
