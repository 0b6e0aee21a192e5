"""What a supervised stream task is: rows of steps, made on the fly, with an answer wanted at some of them.

    batch = task.sample(batch_size, generator)

A task is a frozen dataclass whose fields are its difficulty. It holds no randomness of its own: the same
generator state gives the same batch, so a run resumes from the generator's state alone. Beside the inputs it
tells a probe (never the model) its secret: which past step each answer depends on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recollect.config import CheckedConfig


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a model and a table need to know about a task."""

    vocabulary: int | None
    """Number of input tokens; None when inputs are floats."""
    input_dim: int | None
    """Width of a float input; None when inputs are tokens."""
    num_classes: int
    """Number of answers to choose from; of values that are asked for at a step, where answers are numbers."""
    length: int
    """Steps in a row."""
    chance: float = float("nan")
    """Exact expected score of any answer that uses only the current step; NaN when nobody knows it."""
    oracle: float = 1.0
    """Expected score of the best answers."""
    solved: float | None = None
    """Score from which the task counts as solved; None when nobody knows it."""
    memory_span: int = 0
    """Most steps between a query and the past step that its answer depends on; 0 when nobody knows it."""
    bits: float = float("nan")
    """Most that must be kept for an answer that is still to come, in bits; NaN when nobody knows it."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None weighs all alike."""
    parts: int = 1
    """Sequences of equal length side by side in a row, which one answer compares; for models that read whole rows."""
    given_memory: bool = False
    """The first episode of a row is a memory and each later one a question about it: a model must be given it."""


class Batch(NamedTuple):
    """b independent rows of t steps."""

    inputs: Tensor
    """Tokens, long ``[b, t]``, or floats ``[b, t, d]``; of video tasks frames, uint8 ``[b, t, y, x, 3]``."""
    is_first: Tensor
    """bool ``[b, t]``: an episode starts at this step."""
    targets: Tensor
    """The right class, long ``[b, t]``, or the right values, float ``[b, t, k]``; 0 where nothing is asked."""
    loss_mask: Tensor
    """bool ``[b, t]``: steps that are trained on."""
    score_mask: Tensor
    """bool ``[b, t]``: steps that are scored."""
    source: Tensor
    """long ``[b, t]``: the step of the same row that the answer depends on; -1 where there is none. For probes."""
    padding: Tensor | None = None
    """bool ``[b, t]``: steps that only fill a row up, for models that read whole rows; None where rows are full."""

    def steps(self, start: int, stop: int) -> "Batch":
        """The steps from ``start`` up to ``stop`` of every row (``source`` still counts from the row's start)."""
        return self._each(lambda field: field[:, start:stop])

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on another device."""
        return self._each(lambda field: field.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(**{name: change(field) for name, field in self._asdict().items() if field is not None})


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

    def things(self, batch: Batch) -> Tensor | None:
        """How many things each step shows, long ``[b, t]``: cues, pairs, and distractors that look like them.

        For the ruler, which counts those between what is to be kept and its use. Questions and blanks are no things; a
        thing of several steps counts at one of them. None where the task does not say.
        """
        return None

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """The rows of an evaluation: ``num_rows`` fresh ones, or fewer where there are no more."""
        for start in range(0, num_rows, batch_size):
            yield self.sample(min(batch_size, num_rows - start), generator)

    def scored_on(self, *, final: bool) -> "StreamTask":
        """The task that scores a model: itself, where rows are always fresh.

        Args:
            final: the run is over; else this evaluation may decide how it goes on.
        """
        return self
