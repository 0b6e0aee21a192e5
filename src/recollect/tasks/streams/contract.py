"""Supervised stream tasks: rows of steps with an answer wanted at some of them.

    batch = task.sample(batch_size, generator)

A task is a frozen dataclass whose fields set its difficulty. It holds no randomness: the same generator state gives the
same batch, so a run resumes from the generator's state alone. ``source`` tells probes, never the model, on which past
step each answer depends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from recollect.config import CheckedConfig, require
from recollect.lazy import torch

Part = Literal["train", "validation", "test"]


class Scale(NamedTuple):
    """Mean and standard deviation of every number of a step, in the training data."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Sizes, chance and memory requirements of a task."""

    vocabulary: int | None = None
    """Number of input tokens; None when inputs are floats."""
    input_dim: int | None = None
    """Width of a float input; None when inputs are tokens."""
    num_classes: int
    """Number of classes, or of values per step where answers are numbers."""
    are_values: bool = False
    """Whether answers are values instead of classes."""
    length: int
    """Steps in a row."""
    chance: float = float("nan")
    """Exact expected score of the best answers from the current step alone; NaN when unknown."""
    oracle: float = 1.0
    """Expected score of the best answers."""
    solved: float | None = None
    """Score from which the task counts as solved; None when unknown."""
    memory_span: int = 0
    """Most steps between a query and the past step that its answer depends on; 0 when unknown."""
    bits: float = float("nan")
    """Most bits that must be remembered for future answers; NaN when unknown."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None weighs all alike."""
    input_scale: Scale | None = None
    """Scale by which a model standardises float inputs, which are then float64; None: inputs are used as they are."""
    target_scale: Scale | None = None
    """Scale by which a model standardises values that it answers; loss and score are of standardised values."""
    parts: int = 1
    """Sequences of equal length side by side in a row, which one answer compares; for models that read whole rows."""
    given_memory: bool = False
    """The first episode of a row is a memory and each later one a question about it: a model must be given it."""


class Batch(NamedTuple):
    """b independent rows of t steps."""

    inputs: torch.Tensor
    """Tokens, long ``[b, t]``, or floats ``[b, t, d]`` in the units of the data; of video tasks frames, uint8
    ``[b, t, y, x, 3]``."""
    is_first: torch.Tensor
    """bool ``[b, t]``: an episode starts at this step."""
    targets: torch.Tensor
    """The right class, long ``[b, t]``, or the right values, float ``[b, t, k]``; 0 where nothing is asked."""
    loss_mask: torch.Tensor
    """bool ``[b, t]``: steps that are trained on."""
    score_mask: torch.Tensor
    """bool ``[b, t]``: steps that are scored."""
    source: torch.Tensor
    """long ``[b, t]``: the step of the same row that the answer depends on; -1 where there is none. For probes."""
    padding: torch.Tensor | None = None
    """bool ``[b, t]``: steps that only fill a row up, for models that read whole rows; None where rows are full."""

    def steps(self, start: int, stop: int) -> Batch:
        """Cut out steps ``start`` up to ``stop`` of every row (``source`` still counts from the row's start)."""
        return self._each(lambda field: field[:, start:stop])

    def rows(self, chosen: slice) -> Batch:
        """Return some of the rows; the batch itself where these are all of them."""
        return self if chosen == slice(0, len(self.inputs)) else self._each(lambda field: field[chosen])

    def to(self, device: torch.device | str) -> Batch:
        """Move the batch to a device."""
        return self._each(lambda field: field.to(device, non_blocking=True))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        return Batch(**{name: change(field) for name, field in self._asdict().items() if field is not None})


def single_episode_batch(
    inputs: torch.Tensor,
    targets: torch.Tensor,
    asked: torch.Tensor,
    *,
    source: torch.Tensor | None = None,
    padding: torch.Tensor | None = None,
) -> Batch:
    """Make a batch whose rows are one episode each, trained and scored at the steps ``asked``, bool ``[b, t]``."""
    is_first = torch.zeros_like(asked)
    is_first[:, 0] = True
    source = torch.full(asked.shape, -1) if source is None else source
    return Batch(inputs, is_first, targets, asked, asked, source, padding)


@dataclass(frozen=True, kw_only=True)
class StreamTask(CheckedConfig, ABC):
    """Base of all supervised stream tasks. Every row starts with an episode (``is_first[:, 0]`` is True)."""

    @property
    @abstractmethod
    def spec(self) -> TaskSpec:
        """Sizes, chance and the score that counts as solved, for these fields."""

    @abstractmethod
    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows on the CPU. All randomness comes from ``generator``."""

    def count_items(self, batch: Batch) -> torch.Tensor | None:
        """Count the items that each step shows, long ``[b, t]``: cues, pairs, and distractors that look like them.

        Used to measure how many items lie between a cue and its use. Questions and blanks are no items; an item of
        several steps counts at one of them. None where the task does not define items.
        """
        return None

    def model_names(self) -> Mapping[str, Any]:
        """Return what a trained model's spec says of inputs and outputs: class_names, input_names, ..., units."""
        return {}

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the rows of an evaluation: ``num_rows`` fresh ones, or fewer where there are no more."""
        for start in range(0, num_rows, batch_size):
            yield self.sample(min(batch_size, num_rows - start), generator)

    def name_rows(self, count: int) -> tuple[str, Sequence[Any]]:
        """Return the heading and the names of the first ``count`` rows of :meth:`batches`, for tables of answers."""
        return "row", range(count)

    def scored_on(self, *, final: bool) -> Self:
        """Return the task that scores a model: itself, where rows are always fresh.

        Args:
            final: the run is over; else this evaluation may choose hyper-parameters or a checkpoint.
        """
        return self


class DatasetTask(StreamTask):
    """Base of tasks with a fixed set of rows in three parts, chosen by the field ``part`` of the subclass.

    Training draws rows of its part with replacement; an evaluation reads every row of its part once, in order.
    """

    part: Part

    @abstractmethod
    def part_rows(self) -> torch.Tensor:
        """Return the numbers of this part's rows, long ``[n]``."""

    @abstractmethod
    def make_batch(self, rows: torch.Tensor) -> Batch:
        """Make a batch of the rows with these numbers."""

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw rows of this part, with replacement."""
        rows = self.part_rows()
        return self.make_batch(rows[torch.randint(len(rows), (batch_size,), generator=generator)])

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield every row of this part once, at most ``num_rows``."""
        for rows in self.part_rows()[:num_rows].split(batch_size):
            yield self.make_batch(rows)

    def name_rows(self, count: int) -> tuple[str, Sequence[Any]]:
        """Return the numbers of the rows in the data."""
        return "row", self.part_rows()[:count].tolist()

    def scored_on(self, *, final: bool) -> Self:
        """Return the validation part, or the test part for a finished run."""
        return replace(self, part="test" if final else "validation")


def hold_out_last(count: int, validation: int, part: Part) -> torch.Tensor:
    """Return the numbers of the rows of a part whose validation rows are the last ones of the training file.

    Args:
        count: rows in the file that the part comes from.
        validation: training rows that validate.
        part: which.

    Raises:
        ValueError: no training row is left.
    """
    if part == "test":
        return torch.arange(count)
    require(validation < count, "validation", validation, f"there are {count} training rows: leave some")
    cut = count - validation
    return torch.arange(cut, count) if part == "validation" else torch.arange(cut)
