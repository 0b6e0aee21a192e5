"""Data of others: rows of a file, split into three parts, as a stream task.

    recollect train arrays --task.path data.npz --core lstm

    goal             targets                    what is asked, and when
    classification   one per row                its class, at the row's last step
    labelling        one per step               its class, at every step
    regression       numbers, per row or step   their values, at the last step or at every step
    next-step        none                       the next input, at every step but the last

Classes may be any integers or text. Numbers, in inputs and targets, are brought to mean 0 and variance 1 by the
training part. The score of numbers is 1 - (mean squared error) / (variance in the training part): 1 is perfect, and
always to answer the mean gives about 0. (``standardize=False`` leaves numbers and squared errors as they are.)
``chance`` of numbers is the score of that mean; of classes it is the share of the commonest one.

Training draws rows of its part with replacement. Evaluations during a run go once through the validation part, the
evaluation of a finished run once through the test part, in a fixed order and up to as many rows as they are to score.
What files may look like: tables.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recollect.config import require, require_one_of
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec
from recollect.tasks.streams.tables import SEQUENCE, TARGET, Rows, read_rows

PARTS = ("train", "validation", "test")
EXAMPLE = "example"
MOST_TOKENS = 1 << 16
"""Integers up to here are taken for tokens."""


@dataclass(frozen=True, kw_only=True)
class Arrays(StreamTask):
    """Rows of a file: npz, CSV, Parquet, Hugging Face data sets."""

    path: str = EXAMPLE
    """File .npz, .csv or .parquet, folder of a saved Hugging Face data set, or hf:NAME; ``example`` is made up."""
    goal: Literal["auto", "classification", "labelling", "regression", "next-step"] = "auto"
    """What is learned; auto looks at the targets: integers or text are classes, floats are values, none: next-step."""
    part: Literal["train", "validation", "test"] = "train"
    """Part that rows are drawn from."""
    validation: float = 0.1
    """Share of the rows that evaluations during a run use. A column ``split`` (train, validation, test) wins."""
    test: float = 0.1
    """Share of the rows that score a finished run."""
    split_seed: int = 0
    """Seed of the split."""
    class_weights: Literal["none", "balanced"] = "none"
    """Loss of a class: the same for all, or larger for the rarer ones, so that all classes weigh the same."""
    standardize: bool = True
    """Bring numbers to mean 0 and variance 1; else they stay, and their score is 1 - (mean squared error)."""
    inputs_are: Literal["auto", "tokens", "numbers"] = "auto"
    """What integers [rows, steps] mean; auto takes small ones that are not negative for tokens."""
    sequence: str = SEQUENCE
    """In a table: column that says which row a step belongs to."""
    inputs: tuple[str, ...] = ()
    """In a table: columns of the inputs; empty takes all others."""
    target: str = TARGET
    """In a table: column of the answers."""

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "give a share in [0, 1)")
        require(
            self.validation + self.test < 1, "validation + test", self.validation + self.test, "leave some to train"
        )
        require(self.split_seed >= 0, "split_seed", self.split_seed, "give a seed from 0 on")
        require(self.part in PARTS, "part", self.part, f"choose one of {', '.join(PARTS)}")
        require_one_of(self, "goal", "class_weights", "inputs_are")

    @property
    def spec(self) -> TaskSpec:
        """Sizes, as they are in the file."""
        data = self._data
        return TaskSpec(
            vocabulary=data.vocabulary,
            input_dim=None if data.vocabulary else data.inputs.shape[-1],
            num_classes=data.outputs,
            length=data.inputs.shape[1],
            chance=data.chance,
            class_weights=data.class_weights if self.class_weights == "balanced" else None,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called in the file, in the order of the model's answers; empty for values and tokens."""
        return self._data.class_names

    def in_units(self, answers: Tensor) -> Tensor:
        """Values ``[..., k]`` that a model gives, in the units of the file."""
        mean, std = (torch.as_tensor(number, dtype=answers.dtype) for number in self._data.target_scale)
        return answers * std.to(answers.device) + mean.to(answers.device)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        rows = self._part
        return self._data.batch(rows[torch.randint(len(rows), (batch_size,), generator=generator)])

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Every row of this part once, at most ``num_rows``."""
        for rows in self._part[:num_rows].split(batch_size):
            yield self._data.batch(rows)

    def scored_on(self, *, final: bool) -> "Arrays":
        """The validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")

    @cached_property
    def _data(self) -> "Data":
        file = Path(self.path)
        changed = file.stat().st_mtime if file.exists() else 0.0
        return _load(replace(self, part="train", class_weights="none"), changed)

    @property
    def _part(self) -> Tensor:
        rows = self._data.parts[self.part]
        if not len(rows):
            raise ValueError(
                f"{self.path} has no rows for {self.part}: raise {self.part}, or give some rows the split {self.part!r}"
            )
        return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """A file that was read: n rows, all of t steps, padded."""

    inputs: Tensor
    """Tokens ``[n, t]`` or floats ``[n, t, d]``."""
    targets: Tensor
    """Classes, long ``[n, t]``, or values, float ``[n, t, k]``."""
    asked: Tensor
    """bool ``[n, t]``."""
    lengths: Tensor
    """long ``[n]``: steps of each row."""
    parts: dict[str, Tensor]
    """Numbers of the rows of each part."""
    vocabulary: int | None
    outputs: int
    """Classes, or values per step (k)."""
    chance: float
    class_names: tuple[str, ...] = ()
    class_weights: tuple[float, ...] | None = None
    target_scale: tuple[np.ndarray, np.ndarray]
    """Mean and deviation of the values in the file."""

    def batch(self, rows: Tensor) -> Batch:
        """Some of the rows."""
        asked = self.asked[rows]
        is_first = torch.zeros_like(asked)
        is_first[:, 0] = True
        source = torch.full_like(asked, -1, dtype=torch.long)
        padding = torch.arange(asked.shape[1]) >= self.lengths[rows, None]
        return Batch(self.inputs[rows], is_first, self.targets[rows], asked, asked, source, padding)


@lru_cache(maxsize=4)
def _load(task: Arrays, changed: float) -> Data:
    # The time of the file's last change is part of the key.
    rows = (
        _example()
        if task.path == EXAMPLE
        else read_rows(task.path, sequence=task.sequence, inputs=task.inputs, target=task.target)
    )
    count, steps = rows.inputs.shape[:2]
    parts = _split(task, rows)
    lives = np.arange(steps) < rows.lengths[:, None]  # n t
    train = np.zeros(count, bool)
    train[parts["train"].numpy()] = True
    inputs, vocabulary, scale = _inputs(task, rows, lives & train[:, None])
    goal = _goal(task, rows)
    if rows.asked is not None and (goal == "next-step" or rows.targets is None or rows.targets.ndim == 1):
        raise ValueError(
            f"{task.path}: asked says at which steps an answer is wanted, and goal={goal!r} asks at its own: leave "
            "asked out, or give targets [rows, steps]"
        )
    if goal == "next-step":
        asked = lives & (np.arange(steps) + 1 < rows.lengths[:, None])
        shifted = np.roll(inputs, -1, 1)
        answers, numbers, names = shifted, vocabulary is None, ()
    else:
        answers, asked = _per_step(rows, lives)
        _require_told(task, answers, asked)
        numbers, names, scale = goal == "regression", (), (np.zeros(1), np.ones(1))
        if numbers:
            answers, scale = _scaled(_as_numbers(task, answers), asked & train[:, None], task.standardize)
        else:
            answers, names = _classes(answers, asked)
    common = {"inputs": torch.from_numpy(inputs), "asked": torch.from_numpy(asked), "parts": parts}
    common |= {"lengths": torch.from_numpy(rows.lengths.astype(np.int64))}
    common |= {"vocabulary": vocabulary, "target_scale": scale}
    if numbers:
        values = torch.from_numpy(np.where(asked[..., None], answers, 0).astype(np.float32))
        told = values.numpy()[asked & train[:, None]]
        chance = 0.0 if task.standardize else 1 - float(told.var(0, dtype=np.float64).mean())
        return Data(**common, targets=values, outputs=values.shape[-1], chance=chance)
    outputs = len(names) or int(vocabulary or 0)
    targets = torch.from_numpy(np.where(asked, answers, 0))
    counts = np.bincount(targets.numpy()[asked & train[:, None]], minlength=outputs)
    weights = counts.sum() / (np.maximum(counts, 1) * max(np.count_nonzero(counts), 1))
    common |= {"chance": float(counts.max() / counts.sum()), "class_weights": tuple(weights.tolist())}
    return Data(**common, targets=targets, outputs=outputs, class_names=names)


def _split(task: Arrays, rows: Rows) -> dict[str, Tensor]:
    count = len(rows.inputs)
    if rows.split is not None:
        unknown = sorted(set(map(str, rows.split)) - set(PARTS))
        require(not unknown, "split", ", ".join(unknown), f"parts are called {', '.join(PARTS)}")
        parts = {part: torch.from_numpy(np.flatnonzero(rows.split.astype(str) == part)) for part in PARTS}
        if not len(parts["train"]):
            raise ValueError(f"{task.path}: no row has the split 'train': mark those to learn from")
        return parts
    order = torch.from_numpy(np.random.default_rng(task.split_seed).permutation(count))
    sizes = [max(round(share * count), share > 0) for share in (task.validation, task.test)]
    require(sum(sizes) < count, "rows", count, "that is too few to split: give more, or validation=0 and test=0")
    validation, test, train = order.split([*map(int, sizes), count - sum(sizes)])
    return {"train": train, "validation": validation, "test": test}


def _goal(task: Arrays, rows: Rows) -> str:
    targets = rows.targets
    found = "next-step"
    if targets is not None and targets.dtype.kind == "f":
        found = "regression"
    elif targets is not None:
        found = "classification" if targets.ndim == 1 else "labelling"
    if task.goal in ("auto", found):
        return found
    if task.goal == "next-step" or (task.goal == "regression" and targets is not None):
        return task.goal
    if targets is None:
        raise ValueError(f"goal={task.goal!r}: {task.path} has no targets ({task.target!r} in a table)")
    if (task.goal == "classification") != (targets.ndim == 1):
        raise ValueError(f"goal={task.goal!r}: targets are {list(targets.shape)}; classification has one for a row")
    return task.goal


def _inputs(
    task: Arrays, rows: Rows, counted: np.ndarray
) -> tuple[np.ndarray, int | None, tuple[np.ndarray, np.ndarray]]:
    inputs = rows.inputs
    whole = inputs.ndim == 2 and inputs.dtype.kind in "iu"
    small = whole and inputs.min() >= 0 and inputs.max() < MOST_TOKENS
    if task.inputs_are == "tokens" and not small:
        raise ValueError(f"inputs_are='tokens': inputs are {inputs.dtype} {list(inputs.shape)}, not integers from 0 on")
    if small and task.inputs_are != "numbers":
        return inputs.astype(np.int64), int(inputs.max()) + 1, (np.zeros(1), np.ones(1))
    numbers = (inputs[..., None] if inputs.ndim == 2 else inputs).astype(np.float64)
    lives = np.arange(inputs.shape[1]) < rows.lengths[:, None]
    _require_finite(task, numbers, lives)  # one that is not would make the mean of all so
    scaled, scale = _scaled(numbers, counted, task.standardize)
    scaled = np.where(lives[..., None], scaled, 0).astype(np.float32)
    _require_finite(task, scaled, lives)
    return scaled, None, scale


def _require_finite(task: Arrays, numbers: np.ndarray, lives: np.ndarray) -> None:
    wrong = np.argwhere(lives & ~np.isfinite(numbers).all(-1))
    if len(wrong):
        row, step = wrong[0]
        raise ValueError(f"{task.path}: inputs of row {row} at step {step} are not finite: fill or drop them")


def _scaled(
    numbers: np.ndarray, counted: np.ndarray, standardize: bool
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """``[n, t, k]`` with mean 0 and variance 1 where ``counted [n, t]``; what never changes stays as it is."""
    mean, std = np.zeros(numbers.shape[-1]), np.ones(numbers.shape[-1])
    if standardize and counted.any():
        mean, std = numbers[counted].mean(0), numbers[counted].std(0)
        std = np.where(std > 0, std, 1.0)
    return (numbers - mean) / std, (mean, std)


def _per_step(rows: Rows, lives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Targets of every step, and the steps that are asked."""
    targets, steps = rows.targets, lives.shape[1]
    assert targets is not None
    if targets.ndim > 1:
        return targets, lives if rows.asked is None else lives & rows.asked
    last = np.arange(steps) == rows.lengths[:, None] - 1
    return np.broadcast_to(targets[:, None], lives.shape), last


def _require_told(task: Arrays, targets: np.ndarray, asked: np.ndarray) -> None:
    """Raise ``ValueError`` where a target that is asked for is no number, infinite, or empty text."""
    kind = targets.dtype.kind
    if kind not in "fUS":
        return
    untold = ~np.isfinite(targets) if kind == "f" else targets == targets.dtype.type()
    wrong = np.argwhere(asked & untold.reshape(*asked.shape, -1).any(-1))
    if len(wrong):
        row, step = wrong[0]
        what = "not finite" if kind == "f" else "empty"
        raise ValueError(f"{task.path}: the target of row {row} at step {step} is {what}: fill it or drop the row")


def _as_numbers(task: Arrays, targets: np.ndarray) -> np.ndarray:
    if targets.dtype.kind not in "iuf":
        raise ValueError(f"goal='regression': targets of {task.path} are {targets.dtype}, no numbers")
    return (targets[..., None] if targets.ndim == 2 else targets).astype(np.float64)


def _classes(targets: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of classes, and their names: all that are asked for, sorted."""
    kinds = np.unique(targets[asked])
    return np.searchsorted(kinds, targets).clip(max=len(kinds) - 1), tuple(str(kind) for kind in kinds)


def _example() -> Rows:
    """Waves of three speeds in noise; which speed? To try things, and to see what a file holds."""
    random = np.random.default_rng(0)
    targets, lengths = random.integers(0, 3, 600), random.integers(20, 41, 600)
    time, phase = np.arange(40), random.uniform(0, 2 * np.pi, (600, 1))
    waves = np.sin(phase + time * np.array([0.2, 0.4, 0.8])[targets][:, None]) + random.normal(0, 0.3, (600, 40))
    return Rows(waves[..., None], targets, lengths, None, None)
