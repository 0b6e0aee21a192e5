"""ListOps: the value of a long expression of nested list operations.

    inputs     [MAX 2 9 [MIN 4 7 ] 0 ]  and padding (token 0) up to ``max_length``       15 kinds of token, 1..15
    asked      at the expression's last token: its value, 0..9

The rows are made once, in shards that have seeds of their own, and kept on disk; expressions that came before are left
out, so that no part repeats one of another. Training draws rows of its part with replacement, evaluations go through
theirs once.

Paper:    Tay et al. 2021, Long Range Arena; Nangia & Bowman 2018. Didolkar et al. 2022, section 3.3, use it.
Differs:  the published data is what one run of that generator wrote. Ours draws trees of the same distribution
          (expressions.py) from seeds; the published parts are 96 000, 2000 and 2000 rows, too.
"""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recollect.config import require
from recollect.machine import exit_with_parent
from recollect.tasks.disk_cache import cached_arrays, data_folder, expand_folder
from recollect.tasks.long_range.expressions import WORDS, Rows, Shape, draw
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec

FORMAT = 1
"""Part of the file's name: rows of another generator are other rows."""
FEWEST_SHARDS, MOST_SHARDS = 100, 4000
CHANCE_ROWS = 4000


@dataclass(frozen=True, kw_only=True)
class ListOps(StreamTask):
    """The value of nested list operations, such as [MAX 2 9 [MIN 4 7 ] 0 ]."""

    min_length: int = 500
    """Expressions have more tokens than this."""
    max_length: int = 2000
    """Expressions have fewer tokens than this; steps of a row."""
    max_depth: int = 10
    """Depth at which there are only digits; that of the outermost operator is 1."""
    max_args: int = 10
    """Most arguments of an operator; the fewest are 2."""
    train_rows: int = 96_000
    """Expressions to train on."""
    validation_rows: int = 2000
    """Expressions that score a run on the way."""
    test_rows: int = 2000
    """Expressions that score a finished run."""
    data_seed: int = 0
    """Seed of the expressions."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that rows are drawn from."""
    folder: str = ""
    """Where the expressions are kept; empty takes $RECOLLECT_DATA, or else ~/.cache/recollect."""

    def __post_init__(self) -> None:
        require(self.min_length >= 3, "min_length", self.min_length, "give at least 3: a digit alone asks for nothing")
        enough = self.max_length > self.min_length + 1
        require(enough, "max_length", self.max_length, f"give more than min_length + 1 = {self.min_length + 1}")
        require(self.max_depth >= 2, "max_depth", self.max_depth, "give at least 2: an operator and its digits")
        require(2 <= self.max_args <= 100, "max_args", self.max_args, "give 2 to 100")
        longest = _longest(self.shape)
        which = (
            f"with max_depth={self.max_depth} and max_args={self.max_args} no expression has more than {longest} tokens"
        )
        require(
            longest > self.min_length, "min_length", self.min_length, f"{which}: give less, or raise one of the two"
        )
        for name in ("train_rows", "validation_rows", "test_rows"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least one")
        require(self.data_seed >= 0, "data_seed", self.data_seed, "give 0 or more")
        parts = ("train", "validation", "test")
        require(self.part in parts, "part", self.part, f"choose one of {', '.join(parts)}")

    @property
    def spec(self) -> TaskSpec:
        """Sixteen tokens with the padding, ten answers; chance is the share of the commonest value."""
        return TaskSpec(
            vocabulary=len(WORDS),
            input_dim=None,
            num_classes=10,
            length=self.max_length,
            chance=_commonest(self.shape),
        )

    @property
    def shape(self) -> Shape:
        """Which expressions."""
        return Shape(self.min_length, self.max_length, self.max_depth, self.max_args)

    def prepare(self, processes: int = 1) -> Path:
        """Make the expressions and keep them, where that has not been done.

        Args:
            processes: that draw side by side; the expressions are the same. With more than one, a script of yours must
                call this below ``if __name__ == "__main__":``, as :mod:`multiprocessing` asks for.

        Returns:
            The path of the file.
        """
        path = self._path
        _kept(path, self._whole(), processes)  # looks at the disk: the rows in memory may have outlived their file
        return path

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        first, rows = self._part
        return self._batch(first + torch.randint(rows, (batch_size,), generator=generator))

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every row of this part once, at most ``num_rows``."""
        first, rows = self._part
        for numbers in torch.arange(first, first + min(rows, num_rows)).split(batch_size):
            yield self._batch(numbers)

    def scored_on(self, *, final: bool) -> "ListOps":
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    @property
    def _part(self) -> tuple[int, int]:
        """Where the part begins, and how many rows it has."""
        sizes = {"train": self.train_rows, "validation": self.validation_rows, "test": self.test_rows}
        names = list(sizes)
        return sum(sizes[name] for name in names[: names.index(self.part)]), sizes[self.part]

    @property
    def _path(self) -> Path:
        name = hashlib.sha256(json.dumps(_config(self)).encode()).hexdigest()[:12]
        return (expand_folder(self.folder, "folder") if self.folder else data_folder()) / f"listops-{name}.npz"

    def _whole(self) -> "ListOps":
        """The task that all parts have in common, and all folders."""
        return replace(self, part="train", folder="")

    def _batch(self, numbers: Tensor) -> Batch:
        rows = _rows(self._path, self._whole())
        inputs = torch.zeros(len(numbers), self.max_length, dtype=torch.long)
        targets, asked = torch.zeros_like(inputs), torch.zeros(inputs.shape, dtype=torch.bool)
        lengths = torch.empty(len(numbers), dtype=torch.long)
        for place, number in enumerate(numbers.tolist()):
            tokens = rows.row(number)
            inputs[place, : len(tokens)] = torch.from_numpy(tokens)
            asked[place, len(tokens) - 1] = True
            targets[place, len(tokens) - 1] = int(rows.labels[number])
            lengths[place] = len(tokens)
        is_first = torch.zeros_like(asked)
        is_first[:, 0] = True
        padding = torch.arange(self.max_length) >= lengths[:, None]
        return Batch(inputs, is_first, targets, asked, asked, torch.full_like(inputs, -1), padding)


@lru_cache(maxsize=4)
def _rows(path: Path, task: ListOps) -> Rows:
    return _kept(path, task, 1)


def _kept(path: Path, task: ListOps, processes: int) -> Rows:
    found = cached_arrays(path, lambda: _made(task, processes)._asdict(), _config(task))
    return Rows(found["tokens"], found["ends"], found["labels"])


def _config(task: ListOps) -> list[int]:
    """What decides on the expressions of all parts."""
    return [FORMAT, *task.shape, task.train_rows + task.validation_rows + task.test_rows, task.data_seed]


def _longest(shape: Shape) -> int:
    """Tokens of the longest expression of any length, or some number above ``min_length``."""
    length = 1
    for _ in range(shape.max_depth - 1):
        if length > shape.min_length:
            break
        length = 2 + shape.max_args * length
    return length


def _made(task: ListOps, processes: int) -> Rows:
    """As many different expressions as the task has in all its parts."""
    wanted = task.train_rows + task.validation_rows + task.test_rows
    tokens, labels, seen = [], [], set()
    for shard, rows in _shards(task, processes):
        for number in range(len(rows.labels)):
            row = rows.row(number).tobytes()
            known = hashlib.blake2b(row, digest_size=16).digest()
            if known not in seen:
                seen.add(known)
                tokens.append(row)
                labels.append(rows.labels[number])
            if len(labels) == wanted:
                ends = np.cumsum([len(row) for row in tokens], dtype=np.int64)
                return Rows(np.frombuffer(bytearray(b"").join(tokens), np.uint8), ends, np.array(labels, np.uint8))
        if shard >= FEWEST_SHARDS and len(labels) * MOST_SHARDS < wanted * shard:
            fields = ("min_length", "max_depth", "max_args", "train_rows", "validation_rows", "test_rows")
            given = ", ".join(f"{name}={getattr(task, name)}" for name in fields)
            remedy = "raise max_length, max_depth or max_args, lower min_length, or ask for fewer rows"
            too_few = f"with {given} there are too few such expressions ({len(labels)} were found): {remedy}"
            require(False, "max_length", task.max_length, too_few)
    raise AssertionError("shards never end")


def _shards(task: ListOps, processes: int) -> Iterator[tuple[int, Rows]]:
    """Stretches of expressions, always the same ones in the same order."""
    require(processes >= 1, "processes", processes, "use at least 1")
    if processes == 1:
        yield from ((number, _shard(task.shape, task.data_seed, number)) for number in count())
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=exit_with_parent) as pool:
        ahead = [pool.submit(_shard, task.shape, task.data_seed, number) for number in range(4 * processes)]
        for number in count():
            yield number, ahead.pop(0).result()
            ahead.append(pool.submit(_shard, task.shape, task.data_seed, number + 4 * processes))


def _shard(shape: Shape, seed: int, number: int) -> Rows:
    return draw(shape, np.random.default_rng([seed, number]))


@lru_cache(maxsize=64)
def _commonest(shape: Shape) -> float:
    """Share of the commonest value, in a few thousand expressions that belong to no task."""
    found: list[int] = []
    for number in range(100):
        found += draw(shape, np.random.default_rng([number, 0x11570])).labels.tolist()
        if len(found) >= CHANCE_ROWS:
            break
    return round(max(np.bincount(found, minlength=10)) / max(len(found), 1), 3)
