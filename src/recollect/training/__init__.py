"""The loops: ``fit`` drives every trainer; a trainer is one file and one line in ``trainers.py``."""

from recollect.training.classification import ClassificationConfig, PretrainingConfig
from recollect.training.detection import DetectionConfig
from recollect.training.fit import Outcome, fit
from recollect.training.frame import FitConfig, Trainer, TrainerConfig
from recollect.training.imitation.cloning import CloningConfig
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.optimizers import OptimizerConfig
from recollect.training.self_supervised import SelfSupervisedConfig
from recollect.training.supervised import SupervisedConfig
from recollect.training.trained import evaluate_run, load_config, load_model, record_run
from recollect.training.trainers import TRAINERS

__all__ = [
    "TRAINERS",
    "ClassificationConfig",
    "CloningConfig",
    "DetectionConfig",
    "FitConfig",
    "ImpalaConfig",
    "OptimizerConfig",
    "Outcome",
    "PretrainingConfig",
    "SelfSupervisedConfig",
    "SupervisedConfig",
    "Trainer",
    "TrainerConfig",
    "evaluate_run",
    "fit",
    "load_config",
    "load_model",
    "record_run",
]
