"""Training on whole rows: an encoder reads a row at once, and gives one answer for it.

    loss = cross-entropy (or squared error) of the row's answer

With ``pretraining.steps`` the first of the run's steps restore hidden tokens of the task's own rows instead (the
encoder and the embeddings go on from there):

    loss = cross-entropy of the hidden tokens,   each token hidden with probability ``share``

Source: masked prediction, Devlin et al., BERT (2019), section 3.1, with the mask token alone. Amos et al., Never Train
from Scratch (2024), showed that pretraining on the task's own rows lifts plain Transformers on Long Range Arena far
above the published rows.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.agents.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from recollect.config import require, require_types
from recollect.encoders.contract import EncoderConfig
from recollect.evaluation.sequences import Evaluation, score_answers
from recollect.objectives.answers import answer_loss, mean_score
from recollect.objectives.cross_entropy import accuracy, cross_entropy
from recollect.tasks.streams.contract import Batch, StreamTask
from recollect.training.optimizers import begin_step, drawing_again, take_step
from recollect.training.streams import StreamConfig, StreamTrainer


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Restore hidden tokens first."""

    steps: int = 0
    """The first steps of the run, which restore hidden tokens of the task's rows; 0 does without."""
    share: float = 0.15
    """Share of the tokens that are hidden."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.steps >= 0, "steps", self.steps, "give 0 or more")
        require(0 < self.share < 1, "share", self.share, "give a share between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(StreamConfig):
    """Train an encoder to give one answer for a whole row of a stream task."""

    encoder: EncoderConfig
    """What reads the row."""
    agent: SequenceClassifierConfig = field(default_factory=SequenceClassifierConfig)
    """What surrounds it."""
    batch_size: int = 32
    evaluation_rows: int = 512
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Restore hidden tokens first."""

    def __post_init__(self) -> None:
        super().__post_init__()
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


class ClassificationTrainer(StreamTrainer[ClassificationConfig, SequenceClassifier]):
    """One optimiser step per batch of whole rows.

    Args:
        config: of the run.
    """

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__(config, config.build_agent())

    def step(self) -> dict[str, float]:
        """Train on the next rows."""
        config = self.config
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        restoring = self.updates < config.pretraining.steps
        with drawing_again(self.generator):
            batch = config.task.sample(config.batch_size, self.generator).to(self.device)
            self.model.train()
            begin_step(self.optimizer, rate)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
                loss, score = self._restoring(batch) if restoring else self._answering(batch)
            numbers = take_step(
                self.model, self.optimizer, config.optimizer, loss, finite={"loss": loss}, others={"accuracy": score}
            )
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
