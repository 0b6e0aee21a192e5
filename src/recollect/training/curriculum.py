"""A curriculum: what is learned becomes harder, field by field of its config, as it is learned.

    level 0 .. n - 1: the task with ``field`` = ``values[i]``        level n: the task as it is configured
    a level is over when the mean score of the last ``episodes`` (rows of a stream task) reaches ``success``, or its own
    of ``successes``; or, with ``patience``, after so many rollouts (batches of rows), whatever was reached

All rows have the same share in that mean: of each the newest ceil(episodes / rows) scores count, and nothing is decided
before every row has so many. Of episodes that play at the same time short ones end first; counted as they come, they
would be more than their share, and where success is short a level would be over far below the score that it asks for.
Rows in which a teacher acts are not counted.

Evaluations are always at the last level. A level begins at the border of two rollouts (of two batches of rows), with
new episodes and new memories; what was half played is dropped. Level and recent scores are in every checkpoint.

Source: the schedule is that of Zaremba and Sutskever (2014), Learning to execute, in its naive form: every episode is
of the present level.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from recollect.config import did_you_mean, require, require_types

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """A field of the task that grows with success; off without a field."""

    field: str = ""
    """Field of the task's config, as ``delays``: a number, or a list of numbers, which then gets one entry."""
    values: tuple[float, ...] = ()
    """What it is from level to level. After them comes the task as it is configured."""
    success: float = 0.9
    """Mean score in training at which the next level begins."""
    successes: tuple[float, ...] = ()
    """In place of ``success`` one for each of the values: a score may be easy at one level and hard at another."""
    episodes: int = 200
    """Newest finished episodes (rows of a stream task) whose mean counts; as many of every row, so a few more."""
    patience: int | None = None
    """Rollouts (batches of rows) after which a level is over without success; None: it waits for it. An agent whose
    memory cannot do what an easy level asks comes to the task itself all the same."""

    def __post_init__(self) -> None:
        require_types(self)
        remedy = (
            "name the field of the task that they are for" if self.values else "give the values that it goes through"
        )
        require(bool(self.field) == bool(self.values), "curriculum.values", self.values, remedy)
        fits = not self.successes or len(self.successes) == len(self.values)
        counts = f"give one for each of the values, {len(self.values)} of them, or none and one success for all"
        require(fits, "curriculum.successes", self.successes, counts)
        only = "successes are given, one for each of the values: leave success out"
        require(not self.successes or self.success == 0.9, "curriculum.success", self.success, only)
        require(self.episodes >= 1, "curriculum.episodes", self.episodes, "look at one at least")
        waits = self.patience is None or self.patience >= 1
        require(waits, "curriculum.patience", self.patience, "give 1 rollout or more, or None to wait for success")

    def asked(self, level: int) -> float:
        """The score that ends a level."""
        return self.successes[level] if self.successes else self.success

    @property
    def helps(self) -> tuple[str, ...]:
        """What helps in learning, for tables."""
        return (f"curriculum over {self.field}",) if self.field else ()

    def levels(self, task: T) -> tuple[T, ...]:
        """The configs of all levels, the task itself last; only that where there is no curriculum.

        Raises:
            ValueError: the task has no such field, the field is no number, or a value is none for it.
        """
        if not self.field:
            return (task,)
        name = type(task).__name__
        fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}  # type: ignore[arg-type]
        numbers = [key for key, value in fields.items() if _is_number(value)]
        known = f"{did_you_mean(self.field, numbers)}{name} has the numbers {', '.join(numbers) or '(none)'}"
        require(self.field in numbers, "curriculum.field", self.field, known)
        made = []
        for value in self.values:
            try:
                made.append(dataclasses.replace(task, **{self.field: _like(fields[self.field], value)}))  # type: ignore[type-var]
            except ValueError as error:
                raise ValueError(f"curriculum.values: {value:g} is none for {self.field}: {error}") from None
        return tuple(made if made[-1] == task else [*made, task])


class Curriculum(Generic[T]):
    """Where a run stands in its curriculum.

    Args:
        config: of the curriculum.
        levels: what :meth:`CurriculumConfig.levels` gave.
    """

    def __init__(self, config: CurriculumConfig, levels: tuple[T, ...]) -> None:
        self.config, self.levels = config, levels
        self.level, self.rollouts = 0, 0  # rollouts of this level
        self._scores: list[list[float] | None] = []  # of each row: the newest; None where a teacher acts

    @property
    def task(self) -> T:
        """What is learned now."""
        return self.levels[self.level]

    def record(self, finished: Sequence[Sequence[float] | None]) -> None:
        """Take the episodes of a rollout into account.

        Args:
            finished: scores of those that ended, in this order, of each row; None of a row in which a teacher acts.
        """
        self.rollouts += 1
        share = self._share(finished)
        kept = self._scores or [[]] * len(finished)
        rows = zip(kept, finished, strict=True)
        self._scores = [None if new is None else [*(old or ()), *new][-share:] for old, new in rows]

    @property
    def passed(self) -> bool:
        """Whether the present level is over; the last one never is."""
        if self.level == len(self.levels) - 1:
            return False
        if self.config.patience is not None and self.rollouts >= self.config.patience:
            return True
        rows = [scores for scores in self._scores if scores is not None]
        share = self._share(rows)
        if not rows or min(map(len, rows)) < share:
            return False
        total = math.fsum(score for scores in rows for score in scores)
        return total >= len(rows) * share * self.config.asked(self.level)

    def _share(self, rows: Sequence[Sequence[float] | None]) -> int:
        """How many scores of each row count."""
        return math.ceil(self.config.episodes / max(sum(row is not None for row in rows), 1))

    def advance(self) -> None:
        """Go on to the next level."""
        self.level, self.rollouts = self.level + 1, 0
        self._scores = []

    def save(self) -> dict[str, Any]:
        """All of it, as JSON data."""
        return {"level": self.level, "rollouts": self.rollouts, "scores": self._scores}

    def load(self, data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.level, self.rollouts = data["level"], data.get("rollouts", 0)  # of runs before there was patience: 0
        # Older files have the scores of rollouts, not of rows: the level then counts from here on.
        self._scores = [None if row is None else list(row) for row in data.get("scores", [])]


def require_alike(levels: tuple[Any, ...], shapes: tuple[str, ...], field: str) -> None:
    """Raise ``ValueError`` unless the specs of all levels agree in some fields, so that one agent fits them all.

    Args:
        levels: configs with a ``spec``.
        shapes: names of fields of the spec.
        field: of the config that the levels differ in.
    """
    last = levels[-1].spec
    for level in levels[:-1]:
        spec = level.spec
        for shape in shapes:
            here, there = getattr(spec, shape), getattr(last, shape)
            require(
                here == there,
                "curriculum.field",
                field,
                f"its value {getattr(level, field)!r} changes the {shape.replace('_', ' ')} from {there} to {here}, "
                "and one agent has to fit all levels: schedule a field that leaves it as it is",
            )


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_is_number(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _like(now: Any, value: float) -> Any:
    """The value as the field's present one is: a whole number, a number, or a tuple of one."""
    if isinstance(now, tuple):
        return (_like(now[0], value),)
    if isinstance(now, int):
        if not math.isfinite(value) or value != int(value):
            raise ValueError("give a whole number")
        return int(value)
    return float(value)
