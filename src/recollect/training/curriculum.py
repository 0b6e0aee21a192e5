"""A curriculum: the task becomes harder, one field of its config at a time, as it is learned.

Levels 0 to n - 1 are the task with ``field`` at each of its ``values``, level n is the task as configured. A level ends
when the mean score of the last ``episodes`` episodes (in a stream task rows) reaches ``success``, or the level's entry
in ``successes``; with ``patience`` also after that many rollouts (batches of rows), whatever the score.

All rows have the same share in that mean: the newest ceil(episodes / rows) scores of each row count, and a level cannot
end before every row has that many. Counted in the order in which they end, short episodes would be over-represented,
and where success is short a level would end far below its score. Rows in which a teacher acts are not counted.

Evaluations are always at the last level. A level begins between two rollouts (or two batches of rows), with new
episodes and new memories; unfinished episodes are dropped. Level and recent scores are in every checkpoint.

Source: the schedule is the naive one of Zaremba and Sutskever (2014), Learning to execute: every episode is of the
present level.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from recollect.config import did_you_mean, require, require_types
from recollect.learners import present

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """A field of the task that grows with success; off without a field."""

    field: str = ""
    """Field of the task's config, such as ``delays``: a number, or a list of numbers, which then gets one entry."""
    values: tuple[float, ...] = ()
    """Values of the field, level by level. The last level is the task as it is configured."""
    success: float = 0.9
    """Mean score in training at which the next level begins."""
    successes: tuple[float, ...] = ()
    """One ``success`` for each of the values: a score may be easy at one level and hard at another."""
    episodes: int = 200
    """Newest finished episodes (rows of a stream task) in the mean; rounded up to the same number in every row."""
    patience: int | None = None
    """Rollouts (batches of rows) after which a level ends without success, so that an agent whose memory fails at an
    easy level still trains on the task itself; None waits for success."""

    def __post_init__(self) -> None:
        require_types(self)
        remedy = "name the field of the task" if self.values else "give the field's values, level by level"
        require(bool(self.field) == bool(self.values), "curriculum.values", self.values, remedy)
        fits = not self.successes or len(self.successes) == len(self.values)
        counts = f"give one for each of the values, {len(self.values)} of them, or none and one success for all"
        require(fits, "curriculum.successes", self.successes, counts)
        only = "successes are given, one for each of the values: leave success out"
        require(not self.successes or self.success == 0.9, "curriculum.success", self.success, only)
        require(self.episodes >= 1, "curriculum.episodes", self.episodes, "look at one at least")
        waits = self.patience is None or self.patience >= 1
        require(waits, "curriculum.patience", self.patience, "give 1 rollout or more, or None to wait for success")

    def success_at(self, level: int) -> float:
        """Return the score that ends a level."""
        return self.successes[level] if self.successes else self.success

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Name of the curriculum in tables."""
        return (f"curriculum over {self.field}",) if self.field else ()

    def levels(self, task: T) -> tuple[T, ...]:
        """Return the configs of all levels, the task itself last; only that without a curriculum.

        Raises:
            ValueError: the task has no such field, the field is no number, or it cannot have one of the values.
        """
        if not self.field:
            return (task,)
        name = type(task).__name__
        fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}  # type: ignore[arg-type]
        numbers = [key for key, value in fields.items() if _is_number(value)]
        known = f"{did_you_mean(self.field, numbers)}{name} has the numbers {', '.join(numbers) or '(none)'}"
        require(self.field in numbers, "curriculum.field", self.field, known)
        levels = []
        for value in self.values:
            try:
                levels.append(dataclasses.replace(task, **{self.field: _convert(value, fields[self.field])}))  # type: ignore[type-var]
            except ValueError as error:
                raise ValueError(f"curriculum.values: {value:g} is no value of {self.field}: {error}") from None
        return tuple(levels if levels[-1] == task else [*levels, task])


class Curriculum(Generic[T]):
    """Present level of a run, and the recent scores that end it.

    Args:
        config: of the curriculum.
        levels: return value of :meth:`CurriculumConfig.levels`.
    """

    def __init__(self, config: CurriculumConfig, levels: tuple[T, ...]) -> None:
        size = present().size
        remedy = f"the {size} learners of a run would pass its levels at different steps: start one process"
        require(size == 1, "curriculum.field", config.field, remedy)
        self.config, self.levels = config, levels
        self.level, self.rollouts = 0, 0  # rollouts of this level
        self._scores: list[list[float] | None] = []  # newest scores of each row; None where a teacher acts

    @property
    def task(self) -> T:
        """Task of the present level."""
        return self.levels[self.level]

    def record(self, finished: Sequence[Sequence[float] | None]) -> None:
        """Record the episodes of a rollout.

        Args:
            finished: for each row the scores of its finished episodes, in order; None where a teacher acts.
        """
        self.rollouts += 1
        share = self._share(finished)
        kept = self._scores or [[]] * len(finished)
        rows = zip(kept, finished, strict=True)
        self._scores = [None if new is None else [*(old or ()), *new][-share:] for old, new in rows]

    @property
    def passed(self) -> bool:
        """Whether the present level has ended; the last one never does."""
        if self.level == len(self.levels) - 1:
            return False
        if self.config.patience is not None and self.rollouts >= self.config.patience:
            return True
        rows = [scores for scores in self._scores if scores is not None]
        share = self._share(rows)
        if not rows or min(map(len, rows)) < share:
            return False
        total = math.fsum(score for scores in rows for score in scores)
        return total >= len(rows) * share * self.config.success_at(self.level)

    def _share(self, rows: Sequence[Sequence[float] | None]) -> int:
        """Return how many scores of each row count."""
        return math.ceil(self.config.episodes / max(sum(row is not None for row in rows), 1))

    def advance(self) -> None:
        """Begin the next level of the curriculum."""
        self.level, self.rollouts = self.level + 1, 0
        self._scores = []

    def save(self) -> dict[str, Any]:
        """Return level and scores, as JSON data."""
        return {"level": self.level, "rollouts": self.rollouts, "scores": self._scores}

    def load(self, data: Mapping[str, Any]) -> None:
        """Continue from a saved curriculum."""
        # Older runs did not save rollouts, and scores not by row: their present level then counts from here on.
        self.level, self.rollouts = data["level"], data.get("rollouts", 0)
        self._scores = [None if row is None else list(row) for row in data.get("scores", [])]


def require_same_spec(levels: tuple[Any, ...], shapes: tuple[str, ...], field: str) -> None:
    """Raise ``ValueError`` unless the specs of all levels agree in the fields ``shapes``, so that one agent fits all.

    Args:
        levels: configs with a ``spec``.
        shapes: fields of the spec.
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


def _convert(value: float, example: Any) -> Any:
    """Return the value with the type of an example: a whole number, a number, or a tuple of one."""
    if isinstance(example, tuple):
        return (_convert(value, example[0]),)
    if isinstance(example, int):
        if not math.isfinite(value) or value != int(value):
            raise ValueError("give a whole number")
        return int(value)
    return float(value)
