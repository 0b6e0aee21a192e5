"""What tables say of a run that had help in learning, from its config.json alone.

A teacher who was imitated, targets that only the world knows, a curriculum: no table leaves them out. The config of a
run in somebody else's world cannot be read as a whole; then the parts that know about help are read one by one.
"""

from collections.abc import Mapping
from typing import Any

from recollect.agents.config import ActorCriticConfig
from recollect.config import from_json
from recollect.cores.config import CoreConfig
from recollect.training.config import TrainerConfig
from recollect.training.curriculum import CurriculumConfig
from recollect.training.imitation.config import ImitationConfig
from recollect.training.impala.config import SupervisionConfig
from recollect.training.trainers import REGISTRY

HELPS: tuple[tuple[tuple[str, ...], type[Any]], ...] = (
    (("core",), CoreConfig),
    (("agent",), ActorCriticConfig),
    (("loss", "supervision"), SupervisionConfig),
    (("schedule", "curriculum"), CurriculumConfig),
    (("curriculum",), CurriculumConfig),
)
"""Parts of a config that know what helps in learning."""
_UNKNOWN = (ValueError, LookupError, TypeError, ImportError)
"""What reading a config raises that is of somebody else, of another version or edited."""


def teacher_description(config: Mapping[str, Any]) -> str | None:
    """What :attr:`TrainerConfig.teacher_description` says, also where the world is of somebody else."""
    try:
        return from_json(config, TrainerConfig, REGISTRY).teacher_description
    except _UNKNOWN:
        pass
    try:
        if config["kind"] == "cloning":
            return f"cloned {config['teacher']['name']}"
        return from_json(config["loss"]["imitation"], ImitationConfig, REGISTRY).label(config["fit"]["steps"])
    except _UNKNOWN:
        return None


def training_aids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What :attr:`TrainerConfig.training_aids` says, also where the task is of somebody else."""
    try:
        return from_json(config, TrainerConfig, REGISTRY).training_aids
    except _UNKNOWN:
        pass
    found: list[str] = []
    for path, cls in HELPS:
        part: Any = config
        try:
            for key in path:
                part = part[key]
            found += from_json(part, cls, REGISTRY).training_aids
        except _UNKNOWN:
            continue
    return tuple(found)


def all_training_aids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Both, the teacher first."""
    teacher = teacher_description(config)
    return (*(() if teacher is None else (teacher,)), *training_aids(config))
