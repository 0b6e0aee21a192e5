"""ListOps: the value of a long expression of nested list operations.

    inputs     [MAX 2 9 [MIN 4 7 ] 0 ]  and padding (token 0) up to ``max_length``       15 kinds of token, 1..15
    asked      at the expression's last token: its value, 0..9

The rows are made once, in shards with their own seeds, and cached on disk; repeated expressions are dropped, so that no
part repeats one of another. Training draws rows of its part with replacement, evaluations read theirs once.

Paper:    Tay et al. 2021, Long Range Arena; Nangia & Bowman 2018. Didolkar et al. 2022, section 3.3, use it.
Differs:  the published data is the output of one run of that generator. Ours draws trees of the same distribution
          (expressions.py) from seeds; the published parts are 96 000, 2000 and 2000 rows, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.machine import exit_with_parent
from recollect.tasks.disk_cache import cached_arrays, data_folder, expand_folder
from recollect.tasks.long_range.bytes import ask_at_last_step, pad_rows
from recollect.tasks.long_range.expressions import WORDS, Rows, Shape, draw
from recollect.tasks.streams.contract import Batch, DatasetTask, Part, TaskSpec

FORMAT = 1  # version of the generator, part of the file's name
FEWEST_SHARDS, MOST_SHARDS = 100, 4000
CHANCE_ROWS = 4000


@dataclass(frozen=True, kw_only=True)
class ListOps(DatasetTask):
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
    """Expressions for evaluations during a run."""
    test_rows: int = 2000
    """Expressions that score a finished run."""
    data_seed: int = 0
    """Seed of the expressions."""
    part: Part = "train"
    """Part that rows are drawn from."""
    folder: str = ""
    """Cache folder of the expressions; empty takes $RECOLLECT_DATA, or else ~/.cache/recollect."""

    def __post_init__(self) -> None:
        require(self.min_length >= 3, "min_length", self.min_length, "give at least 3: a digit alone is no question")
        enough = self.max_length > self.min_length + 1
        require(enough, "max_length", self.max_length, f"give more than min_length + 1 = {self.min_length + 1}")
        require(self.max_depth >= 2, "max_depth", self.max_depth, "give at least 2: an operator and its digits")
        require(2 <= self.max_args <= 100, "max_args", self.max_args, "give 2 to 100")
        longest, limits = _longest(self.shape), f"max_depth={self.max_depth} and max_args={self.max_args}"
        remedy = f"with {limits} no expression has more than {longest} tokens: give less, or raise one of the two"
        require(longest > self.min_length, "min_length", self.min_length, remedy)
        for name in ("train_rows", "validation_rows", "test_rows"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "give at least one")
        require(self.data_seed >= 0, "data_seed", self.data_seed, "give 0 or more")
        require_one_of(self, "part")

    @property
    def spec(self) -> TaskSpec:
        """Sixteen tokens with the padding, ten answers; chance is the share of the most frequent value."""
        chance = _most_frequent_share(self.shape)
        return TaskSpec(vocabulary=len(WORDS), num_classes=10, length=self.max_length, chance=chance)

    @property
    def shape(self) -> Shape:
        """Lengths, depth and arguments of the expressions."""
        return Shape(self.min_length, self.max_length, self.max_depth, self.max_args)

    def prepare(self, processes: int = 1) -> Path:
        """Make and cache the expressions, where that has not been done.

        Args:
            processes: that draw in parallel; the expressions are the same. With more than one, a script must call this
                below ``if __name__ == "__main__":``, as :mod:`multiprocessing` requires.

        Returns:
            The path of the file.
        """
        path = self._path
        _load_or_make(path, self._all_parts(), processes)  # reads the disk: rows in memory may have outlived their file
        return path

    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows."""
        sizes = {"train": self.train_rows, "validation": self.validation_rows, "test": self.test_rows}
        names = list(sizes)
        first = sum(sizes[name] for name in names[: names.index(self.part)])
        return torch.arange(first, first + sizes[self.part])

    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the expressions with these numbers."""
        data = _rows(self._path, self._all_parts())
        inputs, padding = pad_rows([data.row(row) for row in rows.tolist()], self.max_length)
        return ask_at_last_step(inputs, padding, torch.from_numpy(data.labels[rows.numpy()].astype(np.int64)))

    @property
    def _path(self) -> Path:
        name = hashlib.sha256(json.dumps(_config(self)).encode()).hexdigest()[:12]
        return (expand_folder(self.folder, "folder") if self.folder else data_folder()) / f"listops-{name}.npz"

    def _all_parts(self) -> ListOps:
        """Return the task that all parts and folders share."""
        return replace(self, part="train", folder="")


@lru_cache(maxsize=4)
def _rows(path: Path, task: ListOps) -> Rows:
    return _load_or_make(path, task, 1)


def _load_or_make(path: Path, task: ListOps, processes: int) -> Rows:
    found = cached_arrays(path, lambda: _make(task, processes)._asdict(), _config(task))
    return Rows(found["tokens"], found["ends"], found["labels"])


def _config(task: ListOps) -> list[int]:
    """Return all that determines the expressions of all parts."""
    return [FORMAT, *task.shape, task.train_rows + task.validation_rows + task.test_rows, task.data_seed]


def _longest(shape: Shape) -> int:
    """Return the tokens of the longest expression of any length, or some number above ``min_length``."""
    length = 1
    for _ in range(shape.max_depth - 1):
        if length > shape.min_length:
            break
        length = 2 + shape.max_args * length
    return length


def _make(task: ListOps, processes: int) -> Rows:
    """Draw as many different expressions as the task has in all its parts."""
    wanted = task.train_rows + task.validation_rows + task.test_rows
    tokens, labels, seen = [], [], set()
    for shard, rows in _shards(task, processes):
        for number in range(len(rows.labels)):
            row = rows.row(number).tobytes()
            key = hashlib.blake2b(row, digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                tokens.append(row)
                labels.append(rows.labels[number])
            if len(labels) == wanted:
                ends = np.cumsum([len(row) for row in tokens], dtype=np.int64)
                return Rows(np.frombuffer(bytearray(b"").join(tokens), np.uint8), ends, np.array(labels, np.uint8))
        if shard >= FEWEST_SHARDS and len(labels) * MOST_SHARDS < wanted * shard:
            fields = ("min_length", "max_depth", "max_args", "train_rows", "validation_rows", "test_rows")
            given = ", ".join(f"{name}={getattr(task, name)}" for name in fields)
            remedy = "raise max_length, max_depth or max_args, lower min_length, or use fewer rows"
            too_few = f"with {given} there are too few such expressions ({len(labels)} were found): {remedy}"
            require(False, "max_length", task.max_length, too_few)
    raise AssertionError("shards never end")


def _shards(task: ListOps, processes: int) -> Iterator[tuple[int, Rows]]:
    """Yield shards of expressions, always the same ones in the same order."""
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
def _most_frequent_share(shape: Shape) -> float:
    """Estimate the share of the most frequent value from a few thousand expressions that belong to no task."""
    found: list[int] = []
    for number in range(100):
        found += draw(shape, np.random.default_rng([number, 0x11570])).labels.tolist()
        if len(found) >= CHANCE_ROWS:
            break
    return round(int(np.bincount(found, minlength=10).max()) / max(len(found), 1), 3)
