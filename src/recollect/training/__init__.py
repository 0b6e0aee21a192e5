"""The loops: one frame (``fit``) drives every trainer."""

from recollect.training.fit import FitConfig, Outcome, Trainer, TrainerConfig, fit
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.optimizers import OptimizerConfig
from recollect.training.supervised import SupervisedConfig
from recollect.training.trainers import TRAINERS

__all__ = [
    "TRAINERS",
    "FitConfig",
    "ImpalaConfig",
    "OptimizerConfig",
    "Outcome",
    "SupervisedConfig",
    "Trainer",
    "TrainerConfig",
    "fit",
]
