"""Table of the trainers, and of the kinds of config that a run's JSON may name."""

from recollect.agents.registry import REGISTRY as AGENT_REGISTRY
from recollect.training.config import TrainerConfig
from recollect.training.imitation.cloning import CloningConfig
from recollect.training.impala.config import ImpalaConfig
from recollect.training.offline.config import OfflineConfig
from recollect.training.streams.config import (
    ClassificationConfig,
    DetectionConfig,
    SelfSupervisedConfig,
    SupervisedConfig,
)

TRAINERS: dict[str, type[TrainerConfig]] = {
    "detection": DetectionConfig,  # before "supervised", which takes any stream task
    "supervised": SupervisedConfig,
    "impala": ImpalaConfig,
    "cloning": CloningConfig,
    "classification": ClassificationConfig,
    "self-supervised": SelfSupervisedConfig,
    "decision-transformer": OfflineConfig,
}

REGISTRY: dict[str, type] = {**AGENT_REGISTRY, **TRAINERS}
"""Cores, encoders, tasks and trainers by the keys of their tables."""


def find_trainer(task: type) -> type[TrainerConfig]:
    """Return the first trainer in the table that can train on a class of tasks.

    Raises:
        ValueError: there is none.
    """
    for trainer in TRAINERS.values():
        if issubclass(task, trainer.task_class()):
            return trainer
    raise ValueError(f"no trainer takes a {task.__name__}: trainers are {', '.join(TRAINERS)}")
