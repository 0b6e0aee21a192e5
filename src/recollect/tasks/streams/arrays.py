"""User data: the rows of a file, split into three parts, as a stream task.

    recollect train arrays --task.path data.npz --core lstm

    goal             targets                    answer, and when it is asked
    classification   one per row                its class, at the row's last step
    labelling        one per step               its class, at every step
    regression       numbers, per row or step   their values, at the last step or at every step
    next-step        none                       the next input, at every step but the last

Classes may be any integers or text. Numbers, in inputs and targets, stay in the units of the file, in float64; their
mean and deviation in the training part are in the spec, and the models that are trained here standardize by them. The
score of numbers is 1 - (mean squared error) / (variance in the training part): 1 is perfect, and always answering the
mean gives about 0. (``standardize=False`` gives float32 numbers, models without a scale, and plain squared errors.)
``chance`` of numbers is the score of that mean; of classes it is the share of the most frequent one.

Training draws rows of its part with replacement. Evaluations during a run read the validation part once, the
evaluation of a finished run the test part, in a fixed order and up to the number of rows that they score.
File formats: tables.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from recollect.config import require, require_one_of
from recollect.lazy import np, torch
from recollect.tasks.streams.contract import Batch, DatasetTask, Part, Scale, TaskSpec, single_episode_batch
from recollect.tasks.streams.tables import SEQUENCE, TARGET, Rows, read_rows

PARTS = ("train", "validation", "test")
EXAMPLE = "example"
MOST_TOKENS = 1 << 16  # integers below this are read as tokens


@dataclass(frozen=True, kw_only=True)
class Arrays(DatasetTask):
    """Rows of a file: npz, CSV, Parquet, Hugging Face data sets."""

    path: str = EXAMPLE
    """File .npz, .csv or .parquet, folder of a saved Hugging Face data set, or hf:NAME; ``example`` is synthetic."""
    goal: Literal["auto", "classification", "labelling", "regression", "next-step"] = "auto"
    """Goal of learning; auto derives it from the targets: integers or text are classes, floats values, none: next-step.
    """
    part: Part = "train"
    """Part that rows are drawn from."""
    validation: float = 0.1
    """Share of the rows that evaluations during a run use. A column ``split`` (train, validation, test) overrides."""
    test: float = 0.1
    """Share of the rows that score a finished run."""
    split_seed: int = 0
    """Seed of the split."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the classes in the loss: equal, or larger for rarer ones, so that all classes count the same."""
    standardize: bool = True
    """Let models standardize numbers to mean 0 and variance 1; else the score is 1 - (mean squared error)."""
    inputs_are: Literal["auto", "tokens", "numbers"] = "auto"
    """Meaning of integers [rows, steps]; auto reads small ones that are not negative as tokens."""
    sequence: str = SEQUENCE
    """Column of a table with the row that a step belongs to."""
    inputs: tuple[str, ...] = ()
    """Columns of a table with the inputs; empty takes all others."""
    target: str = TARGET
    """Column of a table with the answers."""

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "give a share in [0, 1)")
        held_out = self.validation + self.test
        require(held_out < 1, "validation + test", held_out, "leave some rows to train")
        require(self.split_seed >= 0, "split_seed", self.split_seed, "give a seed of 0 or more")
        require_one_of(self, "goal", "part", "class_weights", "inputs_are")

    @property
    def spec(self) -> TaskSpec:
        """Sizes of inputs and answers, chance, weights of classes, and scales of numbers, as the file has them."""
        data = self._data
        return TaskSpec(
            vocabulary=data.vocabulary,
            input_dim=None if data.vocabulary else data.inputs.shape[-1],
            num_classes=data.outputs,
            are_values=data.targets.is_floating_point(),
            length=data.inputs.shape[1],
            chance=data.chance,
            class_weights=data.class_weights if self.class_weights == "balanced" else None,
            input_scale=data.input_scale,
            target_scale=data.target_scale,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in the file, in the order of the model's answers; empty for values and tokens."""
        return self._data.class_names

    def model_names(self) -> Mapping[str, Any]:
        """Return the names of classes and of the file's columns."""
        data, named = self._data, {}
        if data.input_scale or data.target_scale:
            named["units"] = f"raw numbers, as in {Path(self.path).name}"
        return named | {
            "class_names": data.class_names,
            "input_names": data.input_names,
            "output_names": data.output_names,
        }

    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the rows with these numbers."""
        data = self._data
        padding = torch.arange(data.asked.shape[1]) >= data.lengths[rows, None]
        return single_episode_batch(data.inputs[rows], data.targets[rows], data.asked[rows], padding=padding)

    def name_rows(self, count: int) -> tuple[str, Sequence[Any]]:
        """Return the names of the sequences in a table, or else the numbers of the rows in the file."""
        heading, numbers = super().name_rows(count)
        names = self._data.row_names
        return (self.sequence, [names[number] for number in numbers]) if names else (heading, numbers)

    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows."""
        rows = self._data.parts[self.part]
        if not len(rows):
            raise ValueError(
                f"{self.path} has no rows for {self.part}: raise {self.part}, or give some rows the split {self.part!r}"
            )
        return rows

    @cached_property
    def _data(self) -> Data:
        file = Path(self.path)
        changed = file.stat().st_mtime if file.exists() else 0.0
        return _load(replace(self, part="train", class_weights="none"), changed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Contents of a file: n rows, padded to t steps."""

    inputs: torch.Tensor  # tokens [n, t] or floats [n, t, d], the mean behind the end of a row
    targets: torch.Tensor  # classes, long [n, t], or values, float [n, t, k]
    asked: torch.Tensor  # bool [n, t]
    lengths: torch.Tensor  # long [n]: steps of each row
    parts: dict[str, torch.Tensor]  # row numbers of each part
    vocabulary: int | None
    outputs: int  # classes, or values per step (k)
    chance: float
    class_names: tuple[str, ...] = ()
    class_weights: tuple[float, ...] | None = None
    input_scale: Scale | None = None
    target_scale: Scale | None = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    row_names: tuple[Any, ...] = ()  # of the n rows; empty where they have none


@lru_cache(maxsize=4)
def _load(task: Arrays, changed: float) -> Data:
    # The time of the file's last change is part of the key.
    columns = {"sequence": task.sequence, "inputs": task.inputs, "target": task.target}
    rows = _example() if task.path == EXAMPLE else read_rows(task.path, **columns)
    count, steps = rows.inputs.shape[:2]
    parts = _split(task, rows)
    is_step = np.arange(steps) < rows.lengths[:, None]  # n t
    in_train = np.zeros((count, 1), bool)
    in_train[parts["train"].numpy()] = True
    inputs, vocabulary, input_scale = _read_inputs(task, rows, is_step, is_step & in_train)
    goal = _goal(task, rows)
    if rows.asked is not None and (goal == "next-step" or rows.targets is None or rows.targets.ndim == 1):
        raise ValueError(
            f"{task.path}: asked marks the steps at which an answer is wanted, and goal={goal!r} has its own: leave "
            "asked out, or give targets [rows, steps]"
        )
    names: tuple[str, ...] = ()
    scale = None
    if goal == "next-step":
        asked = is_step & (np.arange(steps) + 1 < rows.lengths[:, None])
        answers, scale, are_numbers = np.roll(inputs, -1, 1), input_scale, vocabulary is None
    else:
        answers, asked = _spread_targets(rows, is_step)
        _require_answers(task, answers, asked)
        are_numbers = goal == "regression"
        if are_numbers:
            answers = _to_numbers(task, answers)
            scale = _scale(answers, asked & in_train) if task.standardize else None
        else:
            answers, names = _to_classes(task, answers, asked)
    common = {"inputs": torch.from_numpy(inputs), "asked": torch.from_numpy(asked), "parts": parts}
    common |= {"lengths": torch.from_numpy(rows.lengths.astype(np.int64)), "vocabulary": vocabulary}
    common |= {"input_scale": input_scale, "target_scale": scale, "input_names": rows.input_names}
    common |= {"output_names": rows.input_names if goal == "next-step" else rows.target_names}
    common |= {"row_names": rows.row_names}
    if not (asked & in_train).any():
        raise ValueError(
            f"{task.path}: no step of the part train asks for an answer: mark some in asked, or without targets give "
            "rows of two or more steps"
        )
    if are_numbers:
        _require_variety(task, answers[asked])
        values = np.where(asked[..., None], answers, 0.0 if scale is None else scale.mean)
        values = values.astype(np.float32 if scale is None else np.float64)
        variance = float(values[asked & in_train].var(0, dtype=np.float64).mean())
        chance = 0.0 if task.standardize else 1 - variance
        return Data(**common, targets=torch.from_numpy(values), outputs=values.shape[-1], chance=chance)
    outputs = len(names) or int(vocabulary or 0)
    targets = np.where(asked, answers, 0)
    counts = np.bincount(targets[asked & in_train], minlength=outputs)
    _require_variety(task, np.asarray(names)[targets[asked]] if names else targets[asked])
    unseen = [name for name, number in zip(names, counts, strict=False) if not number]
    if unseen:
        warnings.warn(
            f"{task.path}: no row of the part train has the class {', '.join(map(repr, unseen[:8]))}, so that no model "
            "can learn it: change split_seed, or the column split",
            RuntimeWarning,
            stacklevel=2,
        )
    weights = counts.sum() / (np.maximum(counts, 1) * max(np.count_nonzero(counts), 1))
    common |= {"chance": float(counts.max() / counts.sum()), "class_weights": tuple(weights.tolist())}
    return Data(**common, targets=torch.from_numpy(targets), outputs=outputs, class_names=names)


def _split(task: Arrays, rows: Rows) -> dict[str, torch.Tensor]:
    count = len(rows.inputs)
    if rows.split is not None:
        unknown = sorted(set(map(str, rows.split)) - set(PARTS))
        require(not unknown, "split", ", ".join(unknown), f"the parts are {', '.join(PARTS)}")
        parts = {part: torch.from_numpy(np.flatnonzero(rows.split.astype(str) == part)) for part in PARTS}
        if not len(parts["train"]):
            raise ValueError(f"{task.path}: no row has the split 'train': mark those to learn from")
        return parts
    order = torch.from_numpy(np.random.default_rng(task.split_seed).permutation(count))
    sizes = [max(round(share * count), share > 0) for share in (task.validation, task.test)]
    remedy = "that is too few to split: give at least 3, to train, choose and score; cut a long row into several"
    require(sum(sizes) < count, "rows", count, remedy)
    validation, test, train = order.split([*map(int, sizes), count - sum(sizes)])
    return {"train": train, "validation": validation, "test": test}


def _goal(task: Arrays, rows: Rows) -> str:
    targets = rows.targets
    if task.goal != "next-step" and targets is not None and task.target in task.inputs:
        raise ValueError(f"inputs: {task.path}: column {task.target!r} holds the answers: leave it out")
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


def _read_inputs(
    task: Arrays, rows: Rows, is_step: np.ndarray, counted: np.ndarray
) -> tuple[np.ndarray, int | None, Scale | None]:
    """Return inputs, and their vocabulary where they are tokens, or their scale where they are standardized."""
    inputs = rows.inputs
    are_integers = inputs.ndim == 2 and inputs.dtype.kind in "iu"
    if are_integers:
        inputs = np.where(is_step, inputs, 0)  # files fill rows up with -1, or with a token of its own
    small = are_integers and inputs.min() >= 0 and inputs.max() < MOST_TOKENS
    if task.inputs_are == "tokens" and not small:
        raise ValueError(f"inputs_are='tokens': inputs are {inputs.dtype} {list(inputs.shape)}, not integers from 0 on")
    if small and task.inputs_are != "numbers":
        if rows.from_cells and task.inputs_are == "auto":
            warnings.warn(
                f"{task.path}: its inputs, whole numbers up to {inputs.max()}, are read as tokens, without an order: "
                "set inputs_are='numbers' if they are measurements, and 'tokens' if not",
                RuntimeWarning,
                stacklevel=2,
            )
        return inputs.astype(np.int64), int(inputs.max()) + 1, None
    values = (inputs[..., None] if inputs.ndim == 2 else inputs).astype(np.float64)
    _require_finite(task, values, is_step)  # before the mean, which one NaN would spoil
    with np.errstate(over="ignore", invalid="ignore"):  # named below
        scale = _scale(values, counted) if task.standardize else None
        standard = values if scale is None else (values - scale.mean) / scale.std
        narrow = np.where(is_step[..., None], standard, 0).astype(np.float32)  # as models compute
    remedy = "too large for float32" if scale is None else "too large to be standardised"
    _require_finite(task, narrow, is_step, f"{remedy}: give smaller units")
    if scale is None:
        return narrow, None, None
    return np.where(is_step[..., None], values, scale.mean), None, scale


def _require_finite(
    task: Arrays, values: np.ndarray, is_step: np.ndarray, wrong_with: str = "not finite: fill or drop them"
) -> None:
    wrong = np.argwhere(is_step & ~np.isfinite(values).all(-1))
    if len(wrong):
        row, step = wrong[0]
        raise ValueError(f"{task.path}: inputs of row {row} at step {step} are {wrong_with}")


def _scale(values: np.ndarray, counted: np.ndarray) -> Scale:
    """Return mean and deviation of ``[n, t, k]`` where ``counted [n, t]``; constant columns have a deviation of 1."""
    mean, std = np.zeros(values.shape[-1]), np.ones(values.shape[-1])
    if counted.any():
        known = values[counted]
        mean, std = known.mean(0), known.std(0)
        # Of a constant column, such as 0.1, the rounded deviation is often a little above 0.
        std = np.where((known != known[0]).any(0) & (std > 0), std, 1.0)
    return Scale(tuple(mean.tolist()), tuple(std.tolist()))


def _require_variety(task: Arrays, answers: np.ndarray) -> None:
    """Raise ``ValueError`` where all answers ``[n, ...]`` are the same."""
    if len(answers) and (answers == answers[0]).all():
        same = ", ".join(map(repr, np.atleast_1d(answers[0]).tolist()))
        raise ValueError(f"{task.path}: every answer is {same}: there is nothing to learn; give two or more")


def _spread_targets(rows: Rows, is_step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return targets of every step, and the steps that are asked."""
    targets, steps = rows.targets, is_step.shape[1]
    assert targets is not None
    if targets.ndim > 1:
        return targets, is_step if rows.asked is None else is_step & rows.asked
    last = np.arange(steps) == rows.lengths[:, None] - 1
    return np.broadcast_to(targets[:, None], is_step.shape), last


def _require_answers(task: Arrays, targets: np.ndarray, asked: np.ndarray) -> None:
    """Raise ``ValueError`` where a target that is asked for is NaN, infinite, or empty text."""
    kind = targets.dtype.kind
    if kind not in "fUS":
        return
    missing = ~np.isfinite(targets) if kind == "f" else targets == targets.dtype.type()
    wrong = np.argwhere(asked & missing.reshape(*asked.shape, -1).any(-1))
    if len(wrong):
        row, step = wrong[0]
        what = "not finite" if kind == "f" else "empty"
        raise ValueError(f"{task.path}: the target of row {row} at step {step} is {what}: fill it or drop the row")


def _to_numbers(task: Arrays, targets: np.ndarray) -> np.ndarray:
    if targets.dtype.kind not in "iuf":
        raise ValueError(f"goal='regression': targets of {task.path} are {targets.dtype}, no numbers")
    return (targets[..., None] if targets.ndim == 2 else targets).astype(np.float64)


def _to_classes(task: Arrays, targets: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class numbers, and the sorted names of all classes that are asked for."""
    if targets.ndim > 2:
        raise ValueError(
            f"{task.path}: targets are {targets.dtype} {list(targets.shape)}, and a step has one class: give "
            "[rows, steps], or goal='regression' for several values"
        )
    classes = np.unique(targets[asked])
    return np.searchsorted(classes, targets).clip(max=len(classes) - 1), tuple(str(one) for one in classes)


def _example() -> Rows:
    """Make an example: classify noisy waves by their frequency, one of three."""
    random = np.random.default_rng(0)
    targets, lengths = random.integers(0, 3, 600), random.integers(20, 41, 600)
    time, phase = np.arange(40), random.uniform(0, 2 * np.pi, (600, 1))
    waves = np.sin(phase + time * np.array([0.2, 0.4, 0.8])[targets][:, None]) + random.normal(0, 0.3, (600, 40))
    return Rows(waves[..., None], targets, lengths, None, None)
