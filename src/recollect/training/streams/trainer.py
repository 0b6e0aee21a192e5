"""Base of the trainers on stream tasks: rows are drawn from the task, and scored."""

from typing import TypeVar

import torch
from torch import nn

from recollect.evaluation.sequences import METRICS, require_questions
from recollect.training.config import StreamConfig, evaluation_seed
from recollect.training.trainer import SampledDataTrainer

ConfigT = TypeVar("ConfigT", bound=StreamConfig)
ModelT = TypeVar("ModelT", bound=nn.Module)


class StreamTrainer(SampledDataTrainer[ConfigT, ModelT]):
    """One optimiser step per batch of rows of a stream task."""

    evaluation_metrics = METRICS

    def __init__(self, config: ConfigT, model: ModelT) -> None:
        super().__init__(config, model)
        spec, weights = config.task.spec, config.task.spec.class_weights
        self.score_name = "training_score" if spec.are_values else "accuracy"
        """Metric of the training rows: values are not right or wrong."""
        if spec.are_values:
            self.step_metrics = tuple(self.score_name if name == "accuracy" else name for name in self.step_metrics)
            self.shown = {"loss": "loss", self.score_name: "training score", "score": "score"}
        self.class_weights = None if weights is None else torch.tensor(weights, device=self.device)

    def check_data(self) -> None:
        """Draw a training row, and rows of the evaluation up to the first with a question.

        Both use generators of their own. Parts that have been read stay in memory for the first step and evaluation.

        Raises:
            ValueError: there are no data, they cannot be read, or there is nothing to score.
        """
        task, most = self.config.task, self.config.evaluation_rows
        task.sample(1, torch.Generator())
        scored = task.scored_on(final=False)
        rows = scored.batches(most, 1, torch.Generator())
        require_questions(any(bool(row.score_mask.any()) for row in rows), scored, most)

    def evaluate(self) -> dict[str, float]:
        """Score on the validation part, or on fresh rows, the same at every evaluation."""
        config = self.config
        task, seed = config.task.scored_on(final=False), evaluation_seed(config.fit.seed)
        return dict(config.evaluate(self.model, task, samples=config.evaluation_rows, seed=seed).metrics())
