"""Pairs of papers as bytes: decide whether one cites the other. The task Retrieval of Long Range Arena.

    inputs     bytes + 1 of the first text up to ``length``, padding, then the second likewise (two parts of a row)
    asked      at the last byte: 0 or 1

Data source and synthetic replacement: docs/datasets.md.

Paper:    Radev et al. 2013 (ACL Anthology Network); Tay et al. 2021, Long Range Arena: 147 086, 18 090 and 17 437 rows
          of columns label, id of one, id of the other, text of one, text of the other, with tabs between them.
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
    synthesize_text,
)
from recollect.tasks.streams.contract import Batch, DatasetTask, Part, TaskSpec

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
TOPICS = 4  # topics of synthetic rows


@dataclass(frozen=True, kw_only=True)
class AAN(DatasetTask):
    """Decide whether one paper cites the other, byte by byte (Long Range Arena's Retrieval)."""

    path: str = ""
    """Folder with the three files new_aan_pairs.*.tsv; empty: ``tsv_data`` below $RECOLLECT_DATA. ``stand-in`` takes
    synthetic rows, which are no papers."""
    length: int = 4000
    """Bytes of each text that are read; a row has twice as many steps."""
    part: Part = "train"
    """Part that rows are drawn from."""

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", self.length, "read at least one byte")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """257 tokens with the padding, two answers, two parts of a row."""
        return TaskSpec(vocabulary=VOCABULARY, num_classes=2, length=2 * self.length, chance=0.5, parts=2)

    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows."""
        return torch.arange(len(self._pairs.labels))

    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the pairs with these numbers."""
        pairs = self._pairs
        halves = [
            pad_rows([encode(texts[row], self.length) for row in rows.tolist()], self.length)
            for texts in (pairs.one, pairs.other)
        ]
        inputs, padding = (torch.cat(both, 1) for both in zip(*halves, strict=True))
        return ask_at_last_step(inputs, padding, pairs.labels[rows])

    @property
    def _pairs(self) -> Pairs:
        if self.path == STAND_IN:
            return _synthesize(self.part)
        return _read(task_folder(self.path, "tsv_data") / FILES[self.part], self.length)


class Pairs(NamedTuple):
    """Pairs of papers in a file, and whether one cites the other."""

    labels: torch.Tensor  # long [n]: 0 or 1
    one: list[bytes]  # the first texts
    other: list[bytes]  # the second texts


@lru_cache(maxsize=4)
def _read(file: Path, length: int) -> Pairs:
    if not file.is_file():
        raise ValueError(f"{file} does not exist: {REMEDY}")
    labels: list[int] = []
    texts: tuple[list[bytes], list[bytes]] = ([], [])
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip(b"\r\n").split(b"\t")
            labels.append(_parse_label(file, number, cells))
            if not line.endswith(b"\n"):
                remedy = "download the file again, or end the line"
                raise ValueError(f"{file}, line {number}: the line does not end, as if it were cut short: {remedy}")
            for kept, text in zip(texts, cells[3:], strict=True):
                kept.append(text[:length])
    if not labels:
        raise ValueError(f"{file} is empty: {REMEDY}")
    return Pairs(torch.tensor(labels), *texts)


def _parse_label(file: Path, line: int, cells: list[bytes]) -> int:
    where = f"{file}, line {line}"
    if len(cells) != 5:
        raise ValueError(f"{where}: {len(cells)} columns; 5 are needed: label, id, id, text, text. Is it cut short?")
    if cells[0] not in (b"0", b"1", b"0.0", b"1.0"):
        raise ValueError(f"{where}: the label is {cells[0][:20].decode(errors='replace')!r}; it must be 0 or 1")
    for text in cells[3:]:
        if not text.strip():
            raise ValueError(f"{where}: a text is empty: download the file again")
        require_utf8(text, file, line, "download the file again")
    return int(float(cells[0]))


@lru_cache(maxsize=4)
def _synthesize(part: str) -> Pairs:
    """Draw pairs of synthetic texts that share rare words where one cites the other."""
    random = np.random.default_rng(list(FILES).index(part))
    labels = torch.arange(4000 if part == "train" else 500) % 2  # a few hundred pairs would soon be memorized
    one, other = [], []
    for label in labels.tolist():
        first, second = random.choice(TOPICS, 2, replace=False).tolist()
        for kept, topic in ((one, first), (other, first if label else second)):
            kept.append(synthesize_text(random, int(random.integers(20, 60)), topic).encode())
    return Pairs(labels, one, other)
