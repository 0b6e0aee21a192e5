"""Settings of the trainers on stream tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from recollect.agents.config import ActivityDetectorConfig, SequenceClassifierConfig, SequenceModelConfig, SiTConfig
from recollect.config import require, require_one_of, require_types
from recollect.cores.config import CoreConfig
from recollect.encoders.config import EncoderConfig
from recollect.lazy import torch
from recollect.tasks.images.contract import ImageTask
from recollect.tasks.videos.contract import VideoTask
from recollect.training.config import StreamConfig
from recollect.training.curriculum import CurriculumConfig

if TYPE_CHECKING:
    from recollect.agents.activity_detector import ActivityDetector
    from recollect.agents.sequence_classifier import SequenceClassifier
    from recollect.agents.sequence_model import SequenceModel
    from recollect.agents.sit import SiT
    from recollect.evaluation.score import Score
    from recollect.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(StreamConfig):
    """Train a sequence model around a core on a stream task."""

    core: CoreConfig
    """The memory."""
    agent: SequenceModelConfig = field(default_factory=SequenceModelConfig)
    """Model around the memory."""
    unroll: int | None = None
    """Steps per optimiser step; the memory is carried on, the gradient is not. None takes whole rows."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """A field of the task that grows with success."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.unroll is None or self.unroll >= 1, "unroll", self.unroll, "give at least one step, or None")
        given = self.agent.given_memory
        if self.task.spec.given_memory:
            remedy = "the task asks about the first episode of a row: choose 'shared' (hcam) or 'streamed'"
            require(given != "none", "agent.given_memory", given, remedy)
        needs_rows = given != "none" or self.agent.whole_rows
        name = "whole_rows" if self.agent.whole_rows else "given_memory"
        require(not needs_rows or self.unroll is None, "unroll", self.unroll, f"{name} needs whole rows: give None")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Those of core, model and curriculum."""
        return (*self.core.training_aids, *self.agent.training_aids, *self.curriculum.training_aids)

    def samples(self, steps: int) -> int:
        """Return the rows whose first unroll was trained on; shorter rows count like the longest ones."""
        unrolls = 1 if self.unroll is None else -(-self.task.spec.length // self.unroll)
        return super().samples(-(-steps // unrolls))

    def build_agent(self) -> SequenceModel:
        """Build the model with new weights, on the CPU."""
        spec = self.task.spec
        names = ("num_classes", "vocabulary", "input_dim", "input_scale", "target_scale")
        return self.agent.build(self.core, **{name: getattr(spec, name) for name in names})

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.streams.supervised import SupervisedTrainer

        return SupervisedTrainer(self)

    def score(self, model: Any, task: Any, samples: int, seed: int, batch_size: int) -> Score:
        """Score a model on rows of a task."""
        from recollect.evaluation.sequences import evaluate

        how: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "unroll": self.unroll}
        return evaluate(model, task, num_rows=samples, bfloat16=self.bfloat16, **how)


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Settings of pretraining that restores hidden tokens."""

    steps: int = 0
    """The first steps of the run, which restore hidden tokens of the task's rows; 0 for no pretraining."""
    share: float = 0.15
    """Share of the tokens that are hidden."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.steps >= 0, "steps", self.steps, "give 0 or more")
        require(0 < self.share < 1, "share", self.share, "give a share between 0 and 1")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Name of the pretraining in tables."""
        return ("pretrained on its own rows",) if self.steps else ()


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(StreamConfig):
    """Train an encoder to give one answer for a whole row of a stream task."""

    encoder: EncoderConfig
    """Encoder of the row."""
    agent: SequenceClassifierConfig = field(default_factory=SequenceClassifierConfig)
    """Model around the encoder."""
    batch_size: int = 32
    evaluation_rows: int = 512
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Restore hidden tokens first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.pretraining.steps
        require(first < self.fit.steps, "pretraining.steps", first, f"leave some of the {self.fit.steps} steps")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Pretraining, if there is any."""
        return self.pretraining.training_aids

    def build_agent(self) -> SequenceClassifier:
        """Build the model with new weights, on the CPU."""
        return self.agent.build(self.encoder, self.task.spec, restores=self.pretraining.steps > 0)

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.streams.classification import ClassificationTrainer

        return ClassificationTrainer(self)

    def score(self, model: Any, task: Any, samples: int, seed: int, batch_size: int) -> Score:
        """Score a model on rows of a task."""
        from recollect.evaluation.sequences import score_answers

        how: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "bfloat16": self.bfloat16}
        return score_answers(model, model.answer, task, num_rows=samples, **how)


@dataclass(frozen=True, kw_only=True)
class DetectionConfig(StreamConfig):
    """Train a detector of activities around a core on a video task."""

    task: VideoTask
    """Task to learn."""
    core: CoreConfig
    """The memory."""
    agent: ActivityDetectorConfig = field(default_factory=ActivityDetectorConfig)
    """Model around the memory."""
    batch_size: int = 16
    label_smoothing: float = 0.0
    """Share of a label that is given to the absent ones (0.1 in Ryoo et al. 2023)."""
    loss_on: Literal["all", "last"] = "all"
    """Frames that are trained on: all, or the last one of a video that is cut at a random frame."""
    backbone_rate: float = 1.0
    """Factor of the learning rate for the backbone's weights (0.1 in Ryoo et al. 2023)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "give a share in [0, 1)")
        require_one_of(self, "loss_on")
        require(self.backbone_rate >= 0, "backbone_rate", self.backbone_rate, "give 0 or more")

    @property
    def has_predictions(self) -> bool:
        """None: a frame may have several activities, and its score is a rank."""
        return False

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids that the core offers."""
        return self.core.training_aids

    @property
    def reach(self) -> int | None:
        """Frames back that the core's windows show, where a frame may be several steps of the core."""
        reach = self.core.reach
        steps = self.agent.num_tokens if self.agent.vector_tokens == "steps" else 1
        return None if reach is None else reach // steps

    def build_agent(self) -> ActivityDetector:
        """Build the detector with new weights, on the CPU."""
        return self.agent.build(
            self.core,
            class_names=self.task.class_names,
            frame_shape=self.task.frame_shape,
            feature_dim=self.task.spec.input_dim,
        )

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.streams.detection import DetectionTrainer

        return DetectionTrainer(self)

    def score(self, model: Any, task: Any, samples: int, seed: int, batch_size: int) -> Score:
        """Score a detector on videos of a task."""
        from recollect.evaluation.detection import evaluate_detector

        how: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "bfloat16": self.bfloat16}
        return evaluate_detector(model, task, num_rows=samples, **how)


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedConfig(StreamConfig):
    """Train an encoder on pictures without labels; a linear probe scores it."""

    task: ImageTask
    """The pictures."""
    encoder: EncoderConfig
    """Encoder of the patches."""
    agent: SiTConfig = field(default_factory=SiTConfig)
    """Model around the encoder."""
    probe_rows: int = 2000
    """Pictures with labels that a probe is trained on, at most the training part."""
    evaluation_rows: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.probe_rows >= 2, "probe_rows", self.probe_rows, "give at least two pictures")
        remedy = "the contrastive loss compares pictures: give at least 2"
        require(self.batch_size >= 2, "batch_size", self.batch_size, remedy)

    @property
    def title(self) -> str:
        """Names of the pictures and of the encoder."""
        return super().title.replace(" · ", " without labels · ")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Those of the pairs of pictures."""
        return self.task.training_aids

    def build_agent(self) -> SiT:
        """Build the model with new weights, on the CPU."""
        return self.agent.build(self.encoder, self.task.spec)

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.streams.self_supervised import SelfSupervisedTrainer

        return SelfSupervisedTrainer(self)

    def score(self, model: Any, task: Any, samples: int, seed: int, batch_size: int) -> Score:
        """Score a linear probe of a model on pictures of a task."""
        from recollect.evaluation.probe import linear_probe
        from recollect.evaluation.sequences import eval_mode

        require(samples >= 1, "samples", samples, "score one picture at least")
        device = next(model.parameters()).device

        def features(inputs: torch.Tensor) -> torch.Tensor:
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
                return model.features(inputs.to(device)).float()

        how: dict[str, Any] = {"batch_size": batch_size, "seed": seed}
        with eval_mode(model):
            return linear_probe(features, task, train_rows=self.probe_rows, test_rows=samples, **how)
