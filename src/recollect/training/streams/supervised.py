"""Supervised training on streams: rows of a task, cut into unrolls, memory carried from one to the next.

    for every row of b streams:                       state = initial_state
        for every unroll of it:                       logits, state = model(unroll, state)
            loss = cross-entropy (or squared error) where asked;   one optimiser step;   state = detach(state)

Without ``unroll`` a row is one unroll, and gradients reach from its end to its beginning.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from recollect.agents.sequence_model import SequenceModel
from recollect.learners import present
from recollect.objectives.answers import answer_loss, mean_score
from recollect.state import detach, map_state
from recollect.tasks.streams.contract import Batch
from recollect.training.curriculum import Curriculum, require_same_spec
from recollect.training.streams.config import SupervisedConfig
from recollect.training.streams.trainer import StreamTrainer
from recollect.training.trainer import load_state, state_tensors


class SupervisedTrainer(StreamTrainer[SupervisedConfig, SequenceModel]):
    """One optimiser step per unroll."""

    shares_rows = True

    def __init__(self, config: SupervisedConfig) -> None:
        super().__init__(config, config.build_agent())
        self.learners = present()
        self.batch_size = self.learners.share(config.batch_size)
        curriculum = config.curriculum
        levels = curriculum.levels(config.task)
        require_same_spec(levels, ("num_classes", "vocabulary", "input_dim"), curriculum.field)
        self.curriculum = Curriculum(curriculum, levels) if curriculum.field else None
        if self.curriculum is not None:
            self.step_metrics += ("level",)
            self.counters += ("level",)
        self.position = 0
        """Step of the row at which the next unroll starts."""
        self.before_row = self.generator.get_state()
        """State of the generator before the current row, which can be drawn again from it."""
        self.batch: Batch | None = None
        self.state: Any = None
        """Memory before the next unroll."""
        self.asked, self.right = 0, 0.0
        """Questions of the current rows so far, and how many of them were answered correctly; for the curriculum."""

    def step(self) -> dict[str, float]:
        """Train on the next unroll."""
        if self.position == 0:
            if self.curriculum is not None and self.curriculum.passed:
                self.curriculum.advance()
            self.batch = self._draw_rows()
            self.state = self.model.initial_state(self.batch_size)
        assert self.batch is not None
        length = self.batch.inputs.shape[1]
        stop = length if self.config.unroll is None else min(self.position + self.config.unroll, length)
        self.unroll = self.batch.steps(self.position, stop)
        numbers = super().step()
        self.position = stop % length
        self.state = self.state_after
        if self.position == 0:
            self.before_row = self.generator.get_state()
        asked = int(self.learners.total(self.unroll.score_mask.sum()))
        if not asked:  # without a question there is no score to report
            del numbers[self.score_name]
        if self.curriculum is not None:
            numbers["level"] = float(self.curriculum.level)
            self._record_score(self.curriculum, asked, numbers.get(self.score_name, 0.0))
        return numbers

    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and score of the unroll."""
        unroll = self.unroll
        with self.autocast():
            logits, state = self.model(unroll.inputs, self.state, unroll.is_first, unroll.padding, standardized=True)
        self.state_after = detach(state)
        targets = self.model.standardize_targets(unroll.targets)
        loss = answer_loss(logits, targets, unroll.loss_mask, self.class_weights)
        return loss, {self.score_name: mean_score(logits.detach(), targets, unroll.score_mask)}

    def _record_score(self, curriculum: Curriculum[Any], asked: int, accuracy: float) -> None:
        """Record the score of the rows when they end, once for all of their unrolls."""
        self.asked, self.right = self.asked + asked, self.right + asked * accuracy
        if self.position == 0:
            score = [self.right / self.asked] if self.asked else []
            curriculum.record([score] * self.config.batch_size)
            self.asked, self.right = 0, 0.0

    def _draw_rows(self) -> Batch:
        """Draw the rows that follow ``before_row``; every learner draws all of them, and keeps its own."""
        self.generator.set_state(self.before_row)
        task = self.config.task if self.curriculum is None else self.curriculum.task
        batch = task.sample(self.config.batch_size, self.generator)
        return batch.rows(self.learners.rows(self.config.batch_size)).to(self.device)

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return optimiser, data generator and, in the middle of a row, the memory."""
        tensors, data = super().save()
        tensors["generator"] = self.before_row
        if self.position:
            tensors |= state_tensors("memory.", map_state(self.learners.whole, self.state))
        data["position"] = self.position
        if self.curriculum is not None:
            data |= {"curriculum": self.curriculum.save(), "asked": self.asked, "right": self.right}
        return tensors, data

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from the return values of :meth:`save`."""
        super().load(tensors, data)
        self.position, self.before_row = data["position"], tensors["generator"]
        if self.curriculum is not None:
            self.curriculum.load(data["curriculum"])
            # Older runs did not save these; the present rows then count from here on.
            self.asked, self.right = data.get("asked", 0), data.get("right", 0.0)
        if self.position:
            self.batch = self._draw_rows()
            whole = load_state("memory.", tensors, self.model.initial_state(self.config.batch_size))
            own = self.learners.rows(self.config.batch_size)
            self.state = map_state(lambda leaf: leaf[own], whole)
