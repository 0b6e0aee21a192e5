"""Training on whole rows: an encoder reads a row at once, and gives one answer for it.

    loss = cross-entropy (or squared error) of the row's answer

With ``pretraining.steps`` the first of the run's steps restore hidden tokens of the task's own rows instead (the
encoder and the embeddings go on from there):

    loss = cross-entropy of the hidden tokens,   each token hidden with probability ``share``

Source: masked prediction, Devlin et al., BERT (2019), section 3.1, with the mask token alone. Amos et al., Never Train
from Scratch (2024), showed that pretraining on the task's own rows lifts plain Transformers on Long Range Arena far
above the published rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recollect.agents.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from recollect.config import require
from recollect.encoders.contract import EncoderConfig
from recollect.evaluation.sequences import METRICS, Evaluation, score_answers
from recollect.objectives.answers import answer_loss, mean_score
from recollect.objectives.cross_entropy import accuracy, cross_entropy
from recollect.tasks.streams.contract import Batch, StreamTask
from recollect.training.devices import choose_device
from recollect.training.frame import EVALUATION_SEED, Trainer, TrainerConfig, below
from recollect.training.optimizers import OptimizerConfig, begin_step, load_optimizer, optimizer_tensors, take_step


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Restore hidden tokens first."""

    steps: int = 0
    """The first steps of the run, which restore hidden tokens of the task's rows; 0 does without."""
    share: float = 0.15
    """Share of the tokens that are hidden."""

    def __post_init__(self) -> None:
        require(self.steps >= 0, "steps", self.steps, "give 0 or more")
        require(0 < self.share < 1, "share", self.share, "give a share between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(TrainerConfig):
    """Train an encoder to give one answer for a whole row of a stream task."""

    task: StreamTask
    """What is learned."""
    encoder: EncoderConfig
    """What reads the row."""
    agent: SequenceClassifierConfig = field(default_factory=SequenceClassifierConfig)
    """What surrounds it."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser and schedule, over all steps."""
    batch_size: int = 32
    """Rows that are trained together."""
    evaluation_rows: int = 512
    """Rows of an evaluation, the same ones every time; at most the validation part, for data that has one."""
    bfloat16: bool = False
    """Compute in bfloat16 where torch's autocast does."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Restore hidden tokens first."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "train at least one row")
        require(self.evaluation_rows >= 1, "evaluation_rows", self.evaluation_rows, "evaluate at least one row")
        first = self.pretraining.steps
        require(first < self.fit.steps, "pretraining.steps", first, f"leave some of the {self.fit.steps} steps")

    @property
    def helps(self) -> tuple[str, ...]:
        """Pretraining, where there is some."""
        return ("pretrained on its own rows",) if self.pretraining.steps else ()

    @property
    def title(self) -> str:
        """Task and encoder."""
        return f"{type(self.task).__name__.lower()} · {type(self.encoder).__name__.removesuffix('Config')}"

    def build_agent(self) -> SequenceClassifier:
        """The model alone, with new weights, on the CPU."""
        return self.agent.build(self.encoder, self.task.spec, restores=self.pretraining.steps > 0)

    def learning_rate(self, step: int) -> float:
        """That of the optimiser."""
        return self.optimizer.rate(step, self.fit.steps)

    def build(self) -> "ClassificationTrainer":
        """The trainer."""
        return ClassificationTrainer(self)

    def evaluate(
        self,
        model: SequenceClassifier,
        task: StreamTask | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> Evaluation:
        """Score a model on ``samples`` rows it has not seen. See :meth:`TrainerConfig.evaluate`."""
        return score_answers(
            model,
            model.answer,
            self.task.scored_on(final=True) if task is None else task,
            num_rows=samples,
            batch_size=self.batch_size if batch_size is None else batch_size,
            seed=seed,
            bfloat16=self.bfloat16,
        )

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Rows that were trained on, and how many of them until a first perfect evaluation."""
        perfect = [int(row["step"]) for row in rows if row["score"] and float(row["score"]) >= 1.0]
        return {
            "samples": int(rows[-1]["step"]) * self.batch_size,
            "samples_to_perfect": perfect[0] * self.batch_size if perfect else None,
        }


class ClassificationTrainer(Trainer):
    """One optimiser step per batch of whole rows.

    Args:
        config: of the run.
    """

    step_metrics = ("loss", "accuracy", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: ClassificationConfig) -> None:
        self.config = config
        self.device = choose_device(config.device)
        self.model = config.build_agent().to(self.device)
        self.optimizer = config.optimizer.build(self.model)
        self.generator = torch.Generator().manual_seed(config.fit.seed)
        weights = config.task.spec.class_weights
        self.class_weights = None if weights is None else torch.tensor(weights, device=self.device)
        self.updates = 0

    @property
    def agent(self) -> SequenceClassifier:
        """The model."""
        return self.model

    def step(self) -> dict[str, float]:
        """Train on the next rows."""
        config = self.config
        before = self.generator.get_state()
        batch = config.task.sample(config.batch_size, self.generator).to(self.device)
        self.model.train()
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        begin_step(self.optimizer, rate)
        restoring = self.updates < config.pretraining.steps
        with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
            loss, score = self._restoring(batch) if restoring else self._answering(batch)
        try:
            numbers = take_step(
                self.model, self.optimizer, config.optimizer, loss, finite={"loss": loss}, others={"accuracy": score}
            )
        except BaseException:
            self.generator.set_state(before)
            raise
        self.updates += 1
        return numbers | {"learning_rate": rate}

    def _answering(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss and score of the rows' answers."""
        logits = self.model.answer(batch)
        loss = answer_loss(logits, batch.targets, batch.loss_mask, self.class_weights)
        return loss, mean_score(logits.detach(), batch.targets, batch.score_mask)

    def _restoring(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss and score of the tokens that were hidden."""
        drawn = torch.rand(batch.inputs.shape, generator=self.generator).to(self.device)
        hidden = drawn < self.config.pretraining.share
        if batch.padding is not None:
            hidden &= ~batch.padding
        logits = self.model.restored(batch.inputs, hidden, batch.padding)
        return cross_entropy(logits, batch.inputs, hidden), accuracy(logits.detach(), batch.inputs, hidden)

    def evaluate(self) -> dict[str, float]:
        """Score on the validation part, or on fresh rows, the same at every evaluation."""
        config = self.config
        seed = config.fit.seed + EVALUATION_SEED
        task = config.task.scored_on(final=False)
        return config.evaluate(self.model, task, samples=config.evaluation_rows, seed=seed).metrics()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser and data generator."""
        tensors = {"generator": self.generator.get_state()}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        return tensors, {"updates": self.updates}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.updates = data["updates"]
        self.generator.set_state(tensors["generator"])
        load_optimizer(self.optimizer, below("optimizer.", tensors))
