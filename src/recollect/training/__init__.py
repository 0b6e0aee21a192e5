"""The loops: one frame (``fit``) drives every trainer."""

from recollect.training.evaluate import Evaluation, evaluate, evaluate_run, load_model
from recollect.training.fit import FitConfig, Outcome, Trainer, TrainerConfig, fit
from recollect.training.impala import ImpalaConfig
from recollect.training.optimizers import OptimizerConfig
from recollect.training.run_directory import RunDirectory
from recollect.training.supervised import SupervisedConfig

TRAINERS: dict[str, type[TrainerConfig]] = {
    "supervised": SupervisedConfig,
    "impala": ImpalaConfig,
}

__all__ = [
    "TRAINERS",
    "Evaluation",
    "FitConfig",
    "ImpalaConfig",
    "OptimizerConfig",
    "Outcome",
    "RunDirectory",
    "SupervisedConfig",
    "Trainer",
    "TrainerConfig",
    "evaluate",
    "evaluate_run",
    "fit",
    "load_model",
]
