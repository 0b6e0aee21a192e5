"""Training detectors of activities: whole videos, the memory carried through, several labels at a frame.

    logits = model(frames);   loss = sigmoid cross-entropy, with smoothed labels, of all frames or of the last one

With ``loss_on="last"`` every batch ends at a random frame, and only that one counts: "the loss is applied to the last
step only. This allows better training for the TTM memory module" (Ryoo et al. 2023, appendix A.1).
Differs: the paper's last step is always the sixth. A random one lies in every video, and activities that always end
before the end of a video are learned too.
"""

import torch
from torch import Tensor

from recollect.agents.activity_detector import ActivityDetector
from recollect.evaluation.detection import METRICS
from recollect.objectives.detection import detection_loss
from recollect.tasks.streams.contract import Batch
from recollect.training.optimizers import split_rates
from recollect.training.streams.config import DetectionConfig
from recollect.training.streams.trainer import StreamTrainer


class DetectionTrainer(StreamTrainer[DetectionConfig, ActivityDetector]):
    """One optimiser step per batch of videos."""

    step_metrics = ("loss", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config, config.build_agent())
        if self.model.backbone is not None:
            split_rates(self.optimizer, self.model.backbone.parameters(), config.backbone_rate)

    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw the next videos; return their loss."""
        config = self.config
        batch = self._cut(config.task.sample(config.batch_size, self.generator)).to(self.device)
        with self.autocast():
            logits, _ = self.model(batch.inputs, self.model.initial_state(config.batch_size), batch.is_first)
        return detection_loss(logits, batch.targets, batch.loss_mask, config.label_smoothing), {}

    def _cut(self, batch: Batch) -> Batch:
        """End the batch at a random step of the core, whose frames alone count; with ``loss_on="all"`` change nothing.

        A step is one frame, or the frames that the backbone reads at once.
        """
        if self.config.loss_on == "all":
            return batch
        f, steps = self.model.frames_per_step, batch.is_first.shape[1]
        stop = f * int(torch.randint(1, steps // f + 1, (), generator=self.generator))
        part = batch.steps(0, stop)
        last = torch.zeros_like(part.loss_mask)
        last[:, -f:] = True
        return part._replace(loss_mask=last & part.loss_mask)
