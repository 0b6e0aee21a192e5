"""Training: ``fit`` runs any trainer of the table ``TRAINERS``. Settings import without torch."""

from typing import TYPE_CHECKING

from recollect.lazy import attach
from recollect.training.config import (
    FRESH_SEED,
    EvaluationConfig,
    FitConfig,
    OptimizerConfig,
    TrainerConfig,
    fresh_seed,
)
from recollect.training.curriculum import CurriculumConfig
from recollect.training.imitation.cloning import CloningConfig, CloningLossConfig, make_cloning_config
from recollect.training.imitation.config import ImitationConfig, TeacherConfig
from recollect.training.impala.config import (
    ImpalaConfig,
    LossConfig,
    ReuseConfig,
    ScheduleConfig,
    SupervisionConfig,
    VTraceConfig,
)
from recollect.training.offline.config import OfflineConfig, OfflineDataConfig, TargetsConfig
from recollect.training.streams.config import (
    ClassificationConfig,
    DetectionConfig,
    PretrainingConfig,
    SelfSupervisedConfig,
    SupervisedConfig,
)
from recollect.training.trainers import REGISTRY, TRAINERS, find_trainer

if TYPE_CHECKING:
    from recollect.training.loop import Outcome as Outcome
    from recollect.training.loop import fit as fit
    from recollect.training.saved_models import load_model as load_model
    from recollect.training.saved_run import evaluate_run as evaluate_run
    from recollect.training.saved_run import load_config as load_config
    from recollect.training.saved_run import record_run as record_run
    from recollect.training.trainer import Trainer as Trainer

__getattr__ = attach(
    __name__,
    {
        "Outcome": "loop",
        "Trainer": "trainer",
        "evaluate_run": "saved_run",
        "fit": "loop",
        "load_config": "saved_run",
        "load_model": "saved_models",
        "record_run": "saved_run",
    },
)
__all__ = [
    "FRESH_SEED",
    "REGISTRY",
    "TRAINERS",
    "ClassificationConfig",
    "CloningConfig",
    "CloningLossConfig",
    "CurriculumConfig",
    "DetectionConfig",
    "EvaluationConfig",
    "FitConfig",
    "ImitationConfig",
    "ImpalaConfig",
    "LossConfig",
    "OfflineConfig",
    "OfflineDataConfig",
    "OptimizerConfig",
    "PretrainingConfig",
    "ReuseConfig",
    "ScheduleConfig",
    "SelfSupervisedConfig",
    "SupervisedConfig",
    "SupervisionConfig",
    "TargetsConfig",
    "TeacherConfig",
    "TrainerConfig",
    "VTraceConfig",
    "find_trainer",
    "fresh_seed",
    "make_cloning_config",
]
