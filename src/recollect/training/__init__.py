"""The loops: one frame (``fit``) drives every trainer."""

from recollect.training.comparison import Comparison, compare
from recollect.training.comparison_report import write_report
from recollect.training.evaluate import Evaluation, evaluate, evaluate_run, load_model
from recollect.training.evaluate_agents import AgentEvaluation, evaluate_agent
from recollect.training.fit import FitConfig, Outcome, Trainer, TrainerConfig, fit
from recollect.training.impala import ImpalaConfig
from recollect.training.optimizers import OptimizerConfig
from recollect.training.run_directory import RunDirectory
from recollect.training.supervised import SupervisedConfig
from recollect.training.videos import record_run

TRAINERS: dict[str, type[TrainerConfig]] = {
    "supervised": SupervisedConfig,
    "impala": ImpalaConfig,
}

__all__ = [
    "TRAINERS",
    "AgentEvaluation",
    "Comparison",
    "Evaluation",
    "FitConfig",
    "ImpalaConfig",
    "OptimizerConfig",
    "Outcome",
    "RunDirectory",
    "SupervisedConfig",
    "Trainer",
    "TrainerConfig",
    "compare",
    "evaluate",
    "evaluate_agent",
    "evaluate_run",
    "fit",
    "load_model",
    "record_run",
    "write_report",
]
