"""Training on whole rows: an encoder reads a row at once and gives one answer for it.

    loss = cross-entropy (or squared error) of the row's answer

With ``pretraining.steps`` the first steps of the run restore hidden tokens of the task's own rows instead; encoder and
embeddings then continue from there:

    loss = cross-entropy of the hidden tokens,   each token hidden with probability ``share``

Source: masked prediction, Devlin et al., BERT (2019), section 3.1, with the mask token alone. Amos et al., Never Train
from Scratch (2024), showed that pretraining on the task's own rows lifts plain Transformers on Long Range Arena far
above the published rows.
"""

import torch
from torch import Tensor

from recollect.agents.sequence_classifier import SequenceClassifier
from recollect.objectives.answers import answer_loss, mean_score
from recollect.objectives.cross_entropy import accuracy, cross_entropy
from recollect.tasks.streams.contract import Batch
from recollect.training.streams.config import ClassificationConfig
from recollect.training.streams.trainer import StreamTrainer


class ClassificationTrainer(StreamTrainer[ClassificationConfig, SequenceClassifier]):
    """One optimiser step per batch of whole rows."""

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__(config, config.build_agent())

    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw the next rows; return their loss and score."""
        batch = self.config.task.sample(self.config.batch_size, self.generator).to(self.device)
        is_pretraining = self.updates < self.config.pretraining.steps
        with self.autocast():
            loss, score = self._restore_tokens(batch) if is_pretraining else self._answer(batch)
        return loss, {self.score_name: score}

    def _answer(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = self.model.answer(batch)
        targets = self.model.standardize_targets(batch.targets)
        loss = answer_loss(logits, targets, batch.loss_mask, self.class_weights)
        return loss, mean_score(logits.detach(), targets, batch.score_mask)

    def _restore_tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        draws = torch.rand(batch.inputs.shape, generator=self.generator).to(self.device)
        hidden = draws < self.config.pretraining.share
        if batch.padding is not None:
            hidden &= ~batch.padding
        logits = self.model.restored(batch.inputs, hidden, batch.padding)
        return cross_entropy(logits, batch.inputs, hidden), accuracy(logits.detach(), batch.inputs, hidden)
