"""A mixture of stream tasks: every batch comes from one of them, drawn at random; an evaluation covers all equally.

So one model can be trained on many levels of a task and evaluated at each of them. All tasks share the kind of input
and of answer; their rows may differ in length.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import nan
from typing import Any, Self

from recollect.config import require
from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec
from recollect.tasks.streams.recall import Recall

SHARED = (
    "vocabulary",
    "input_dim",
    "num_classes",
    "are_values",
    "class_weights",
    "input_scale",
    "target_scale",
    "parts",
    "given_memory",
)
"""Fields of a spec in which all tasks must agree."""


@dataclass(frozen=True, kw_only=True)
class Mixture(StreamTask):
    """Learn several tasks, or several levels of one task, with one model."""

    tasks: tuple[StreamTask, ...] = (Recall(), Recall(min_blank=0, max_blank=4, length=24))
    """The tasks; each is drawn equally often."""

    def __post_init__(self) -> None:
        require(len(self.tasks) > 0, "tasks", self.tasks, "give at least one")
        for name in SHARED:
            found = list(dict.fromkeys(getattr(task.spec, name) for task in self.tasks))
            require(len(found) == 1, f"{name} of tasks", found, "one model has to fit all of them: make them agree")

    @property
    def spec(self) -> TaskSpec:
        """Fields that all share, the longest row and span, the most bits, the mean of the chances and oracles."""
        specs = [task.spec for task in self.tasks]
        solved = [nan if spec.solved is None else spec.solved for spec in specs]
        mean = sum(solved) / len(specs)
        return TaskSpec(
            **{name: getattr(specs[0], name) for name in SHARED},
            length=max(spec.length for spec in specs),
            chance=sum(spec.chance for spec in specs) / len(specs),
            oracle=sum(spec.oracle for spec in specs) / len(specs),
            solved=None if mean != mean else mean,
            memory_span=max(spec.memory_span for spec in specs),
            bits=nan if any(spec.bits != spec.bits for spec in specs) else max(spec.bits for spec in specs),
        )

    def model_names(self) -> Mapping[str, Any]:
        """Return the names of inputs and outputs on which all tasks that have them agree."""
        named = [task.model_names() for task in self.tasks]
        found = {key: {names[key] for names in named if names.get(key)} for key in chain(*named)}
        return {key: values.pop() for key, values in found.items() if len(values) == 1}

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows of one of the tasks."""
        which = int(torch.randint(len(self.tasks), (), generator=generator))
        return self.tasks[which].sample(batch_size, generator)

    def batches(self, num_rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the rows of an evaluation, one task after the other: equally many of each, to within one."""
        share, left = divmod(num_rows, len(self.tasks))
        for number, task in enumerate(self.tasks[:num_rows]):
            yield from task.batches(share + (number < left), batch_size, generator)

    def scored_on(self, *, final: bool) -> Self:
        """Return the mixture of the tasks that score each of them."""
        return replace(self, tasks=tuple(task.scored_on(final=final) for task in self.tasks))
