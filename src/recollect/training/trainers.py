"""The trainers, and the kinds of config that a run's JSON may name."""

from recollect.agents.kinds import KINDS as AGENT_KINDS
from recollect.training.fit import TrainerConfig
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.supervised import SupervisedConfig

TRAINERS: dict[str, type[TrainerConfig]] = {
    "supervised": SupervisedConfig,
    "impala": ImpalaConfig,
}

KINDS: dict[str, type] = {**AGENT_KINDS, **TRAINERS}
"""Cores, tasks and trainers by the keys of their tables."""
