"""Training detectors of activities: whole videos, the memory carried through, several labels at a frame.

    logits = model(frames);   loss = sigmoid cross-entropy, with smoothed labels, of all frames or of the last one

With ``loss_on="last"`` every batch ends at a frame that is drawn, and only that one counts: "the loss is applied to
the last step only. This allows better training for the TTM memory module" (Ryoo et al. 2023, appendix A.1).
Differs: the paper's last step is always the sixth. Drawn, it is one that every film has, and activities that never go
on at the end of a video are learned too.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch

from recollect.agents.activity_detector import ActivityDetector, ActivityDetectorConfig
from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.evaluation.detection import METRICS, DetectionScore, evaluate_detector
from recollect.objectives.detection import detection_loss
from recollect.tasks.streams.contract import Batch
from recollect.tasks.videos.contract import VideoTask
from recollect.training.optimizers import begin_step, drawing_again, split_rates, take_step
from recollect.training.streams import StreamConfig, StreamTrainer


@dataclass(frozen=True, kw_only=True)
class DetectionConfig(StreamConfig):
    """Train a detector of activities around a core on a video task."""

    task: VideoTask
    """What is learned."""
    core: CoreConfig
    """The memory."""
    agent: ActivityDetectorConfig = field(default_factory=ActivityDetectorConfig)
    """What surrounds the memory."""
    batch_size: int = 16
    label_smoothing: float = 0.0
    """Share of a label that is given to the absent ones (0.1 in Ryoo et al. 2023)."""
    loss_on: Literal["all", "last"] = "all"
    """Frames that are trained on: all, or the last one of a video that is cut anywhere."""
    backbone_rate: float = 1.0
    """Factor of the learning rate for the backbone's weights (0.1 in Ryoo et al. 2023)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "give a share in [0, 1)")
        require(self.loss_on in ("all", "last"), "loss_on", self.loss_on, "choose 'all' or 'last'")
        require(self.backbone_rate >= 0, "backbone_rate", self.backbone_rate, "give 0 or more")

    @property
    def helps(self) -> tuple[str, ...]:
        """Those of the core."""
        return self.core.helps

    @property
    def reach(self) -> int | None:
        """Frames back that the core's windows show, where a frame may be several steps of the core."""
        reach = self.core.reach
        steps = self.agent.num_tokens if self.agent.vector_tokens == "steps" else 1
        return None if reach is None else reach // steps

    @property
    def title(self) -> str:
        """Task and core."""
        return f"{type(self.task).__name__.lower()} · {type(self.core).__name__.removesuffix('Config')}"

    def build_agent(self) -> ActivityDetector:
        """The detector alone, with new weights, on the CPU."""
        return self.agent.build(
            self.core,
            class_names=self.task.class_names,
            frame_shape=self.task.frame_shape,
            feature_dim=self.task.spec.input_dim,
        )

    def build(self) -> "DetectionTrainer":
        """The trainer."""
        return DetectionTrainer(self)

    def evaluate(
        self,
        model: ActivityDetector,
        task: VideoTask | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> DetectionScore:
        """Score a detector on ``samples`` videos it has not seen. See :meth:`TrainerConfig.evaluate`."""
        where = self.task.scored_on(final=True) if task is None else task
        assert isinstance(where, VideoTask)
        return evaluate_detector(
            model,
            where,
            num_rows=samples,
            batch_size=self.batch_size if batch_size is None else batch_size,
            seed=seed,
            bfloat16=self.bfloat16,
        )


class DetectionTrainer(StreamTrainer[DetectionConfig, ActivityDetector]):
    """One optimiser step per batch of videos.

    Args:
        config: of the run.
    """

    step_metrics = ("loss", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: DetectionConfig) -> None:
        super().__init__(config, config.build_agent())
        if self.model.backbone is not None:
            split_rates(self.optimizer, self.model.backbone.parameters(), config.backbone_rate)

    def step(self) -> dict[str, float]:
        """Train on the next videos."""
        config = self.config
        with drawing_again(self.generator):
            batch = self._cut(config.task.sample(config.batch_size, self.generator)).to(self.device)
            self.model.train()
            rate = config.optimizer.rate(self.updates, config.fit.steps)
            begin_step(self.optimizer, rate)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
                logits, _ = self.model(batch.inputs, self.model.initial_state(config.batch_size), batch.is_first)
            loss = detection_loss(logits, batch.targets, batch.loss_mask, config.label_smoothing)
            numbers = take_step(self.model, self.optimizer, config.optimizer, loss, finite={"loss": loss})
        self.updates += 1
        return numbers | {"learning_rate": rate}

    def _cut(self, batch: Batch) -> Batch:
        """The batch up to a drawn frame, which alone counts; the batch as it is where all frames count."""
        if self.config.loss_on == "all":
            return batch
        f, steps = self.model.frames_per_step, batch.is_first.shape[1]
        stop = f * int(torch.randint(1, steps // f + 1, (), generator=self.generator))
        part = batch.steps(0, stop)
        last = torch.zeros_like(part.loss_mask)
        last[:, -f:] = True
        return part._replace(loss_mask=last & part.loss_mask)
