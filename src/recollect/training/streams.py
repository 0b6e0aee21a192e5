"""What runs on stream tasks have in common, whatever reads the rows: optimiser, generator of the rows, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from recollect.config import require
from recollect.evaluation.sequences import METRICS, require_questions
from recollect.tasks.streams.contract import StreamTask
from recollect.training.drawn import DrawnTrainer
from recollect.training.frame import TrainerConfig, evaluation_seed
from recollect.training.optimizers import OptimizerConfig

ConfigT = TypeVar("ConfigT", bound="StreamConfig")
ModelT = TypeVar("ModelT", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class StreamConfig(TrainerConfig):
    """Train a model on the rows of a stream task."""

    task: StreamTask
    """What is learned."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser and schedule, over all steps."""
    batch_size: int = 64
    """Rows that are trained together."""
    evaluation_rows: int = 256
    """Rows of an evaluation, the same ones every time; at most the validation part, for data that has one."""
    bfloat16: bool = False
    """Compute in bfloat16 where torch's autocast does."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "train at least one row")
        require(self.evaluation_rows >= 1, "evaluation_rows", self.evaluation_rows, "evaluate at least one row")

    def learning_rate(self, step: int) -> float:
        """That of the optimiser."""
        return self.optimizer.rate(step, self.fit.steps)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Rows that were trained on, and how many of them until a first perfect evaluation."""
        perfect = [int(row["step"]) for row in rows if row["score"] and float(row["score"]) >= 1.0]
        return {
            "samples": self.samples(int(rows[-1]["step"])),
            "samples_to_perfect": self.samples(perfect[0]) if perfect else None,
        }

    def samples(self, steps: int) -> int:
        """Rows that so many optimiser steps trained on."""
        return steps * self.batch_size


class StreamTrainer(DrawnTrainer[ModelT], Generic[ConfigT, ModelT]):
    """Rows of a stream task are drawn, and scored.

    Args:
        config: of the run.
        model: with new weights, on the CPU.
    """

    step_metrics = ("loss", "accuracy", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: ConfigT, model: ModelT) -> None:
        super().__init__(model, config.optimizer, config.fit, config.device)
        self.config = config
        weights = config.task.spec.class_weights
        self.class_weights = None if weights is None else torch.tensor(weights, device=self.device)

    def look_at_data(self) -> None:
        """Draw a row of what is trained on, and of what evaluations during the run use, with generators of their own.

        A part that has been read stays in memory, so that the first step and the first evaluation find it. Of the rows
        of an evaluation no more are drawn than up to the first that asks anything: most often that is the first.

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
        seed = evaluation_seed(config.fit.seed)
        task = config.task.scored_on(final=False)
        return dict(config.evaluate(self.model, task, samples=config.evaluation_rows, seed=seed).metrics())
