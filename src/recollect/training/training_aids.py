"""Teacher and training aids of a run, from its config.json only.

Tables name all of them. The config of a run in a user-defined world cannot be read as a whole; its parts that describe
training aids are then read one by one.
"""

from collections.abc import Mapping
from typing import Any

from recollect.agents.config import ActorCriticConfig, SequenceModelConfig
from recollect.config import from_json
from recollect.cores.config import CoreConfig
from recollect.training.config import TrainerConfig
from recollect.training.curriculum import CurriculumConfig
from recollect.training.imitation.config import ImitationConfig
from recollect.training.impala.config import SupervisionConfig
from recollect.training.streams.config import PretrainingConfig
from recollect.training.trainers import REGISTRY

PARTS: tuple[tuple[tuple[str, ...], type[Any]], ...] = (
    (("core",), CoreConfig),
    (("agent",), ActorCriticConfig),
    (("agent",), SequenceModelConfig),
    (("loss", "supervision"), SupervisionConfig),
    (("schedule", "curriculum"), CurriculumConfig),
    (("curriculum",), CurriculumConfig),
    (("pretraining",), PretrainingConfig),
)
"""Parts of a config with the property ``training_aids``."""
_UNREADABLE = (ValueError, LookupError, TypeError, ImportError)
"""Errors from reading a config that is user-defined, of another version or edited."""


def teacher_description(config: Mapping[str, Any]) -> str | None:
    """Describe the teacher of a run, also where its world is user-defined."""
    try:
        return from_json(config, TrainerConfig, REGISTRY).teacher_description
    except _UNREADABLE:
        pass
    try:
        if config["kind"] == "cloning":
            return f"cloned {config['teacher']['name']}"
        if config["kind"] == "decision-transformer":
            return f"offline, {config['data']['source']}"
        return from_json(config["loss"]["imitation"], ImitationConfig, REGISTRY).label(config["fit"]["steps"])
    except _UNREADABLE:
        return None


def training_aids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the training aids of a run, also where its task is user-defined."""
    try:
        return from_json(config, TrainerConfig, REGISTRY).training_aids
    except _UNREADABLE:
        pass
    found: list[str] = []
    for path, cls in PARTS:
        part: Any = config
        try:
            for key in path:
                part = part[key]
            found += from_json(part, cls, REGISTRY).training_aids
        except _UNREADABLE:
            continue
    return tuple(found)


def all_training_aids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the teacher, if any, and the training aids."""
    teacher = teacher_description(config)
    return (*(() if teacher is None else (teacher,)), *training_aids(config))
