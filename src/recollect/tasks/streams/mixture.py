"""Several stream tasks at once: every batch is of one of them, drawn anew.

One model can so be trained on many levels of a task, and then be asked at each of them. All tasks read the same kind of
input and give the same kind of answer; their rows may differ in length.

Source: ours.
"""

from dataclasses import dataclass
from math import nan

import torch

from recollect.config import require
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec
from recollect.tasks.streams.recall import Recall


@dataclass(frozen=True, kw_only=True)
class Mixture(StreamTask):
    """Learn several tasks, or levels of one, with one model."""

    tasks: tuple[StreamTask, ...] = (Recall(), Recall(min_blank=0, max_blank=4, length=24))
    """The tasks; each is drawn equally often."""

    def __post_init__(self) -> None:
        require(len(self.tasks) > 0, "tasks", self.tasks, "give at least one")
        forms = {(task.spec.vocabulary, task.spec.input_dim, task.spec.num_classes) for task in self.tasks}
        remedy = "all of them must read the same inputs and give the same answers: vocabulary, width, classes"
        require(len(forms) == 1, "tasks", sorted(forms, key=str), remedy)

    @property
    def spec(self) -> TaskSpec:
        """Inputs and answers of any of the tasks; the longest row and span, the mean of the chances and oracles."""
        specs = [task.spec for task in self.tasks]
        solved = [nan if spec.solved is None else spec.solved for spec in specs]
        mean = sum(solved) / len(specs)
        return TaskSpec(
            vocabulary=specs[0].vocabulary,
            input_dim=specs[0].input_dim,
            num_classes=specs[0].num_classes,
            length=max(spec.length for spec in specs),
            chance=sum(spec.chance for spec in specs) / len(specs),
            oracle=sum(spec.oracle for spec in specs) / len(specs),
            solved=None if mean != mean else mean,
            memory_span=max(spec.memory_span for spec in specs),
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw ``batch_size`` fresh rows of one of the tasks."""
        which = int(torch.randint(len(self.tasks), (), generator=generator))
        return self.tasks[which].sample(batch_size, generator)
