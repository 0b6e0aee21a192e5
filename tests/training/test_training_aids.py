"""Teacher and training aids of a run whose task or world is user-defined, so that its config cannot be read whole."""

import pytest

from recollect.config import to_json
from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.tasks import TASKS, TMazeConfig
from recollect.training import (
    REGISTRY,
    ClassificationConfig,
    CloningConfig,
    OfflineConfig,
    OfflineDataConfig,
    PretrainingConfig,
    TeacherConfig,
)
from recollect.training.training_aids import teacher_description, training_aids

GRU = CORES["gru"](dim=8)


def elsewhere(config):
    """The config, with its task as one of a package that is not installed."""
    data = to_json(config, REGISTRY)
    return data | {config.task_field: {"kind": "a_package_elsewhere:TaskConfig"}}


@pytest.mark.parametrize(
    ("config", "teacher"),
    [
        (CloningConfig(world=TMazeConfig(), core=GRU), "cloned oracle"),
        (CloningConfig(world=TMazeConfig(), core=GRU, teacher=TeacherConfig(name="a.npz")), "cloned a.npz"),
        (OfflineConfig(world=TMazeConfig(), core=GRU, data=OfflineDataConfig(source="a.npz")), "offline, a.npz"),
    ],
)
def test_the_teacher_is_named(config, teacher):
    assert config.teacher_description == teacher_description(to_json(config, REGISTRY)) == teacher
    assert teacher_description(elsewhere(config)) == teacher


def test_pretraining_is_named():
    task, encoder = TASKS["listops"](), next(iter(ENCODERS.values()))()
    config = ClassificationConfig(task=task, encoder=encoder, pretraining=PretrainingConfig(steps=5))
    assert config.training_aids == ("pretrained on its own rows",)
    assert training_aids(elsewhere(config)) == training_aids(to_json(config, REGISTRY)) == config.training_aids
