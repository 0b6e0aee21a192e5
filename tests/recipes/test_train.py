"""What ``recollect train`` makes of its first words."""

import sys

import pytest

from recollect.cores import GRUConfig, LSTMConfig
from recollect.recipes.train import options, training
from recollect.tasks import Copying, GymnasiumConfig
from recollect.training import ImpalaConfig, SupervisedConfig

MODULE = """
from dataclasses import dataclass
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv as Cart
from recollect.cores import GRUConfig
from recollect.tasks import Copying

@dataclass(frozen=True, kw_only=True)
class Task(Copying):
    "A task of somebody's own."

@dataclass(frozen=True, kw_only=True)
class Core(GRUConfig):
    "A core of somebody's own."

long = Task(length=7)
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "a_users_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    return "a_users_module"


def test_task_and_core_of_a_module_in_the_current_folder(module):
    config = training(f"{module}:Task", f"{module}:Core")
    assert isinstance(config, SupervisedConfig)
    assert isinstance(config.task, Copying) and isinstance(config.core, GRUConfig)
    assert type(config.core).__name__ == "Core"
    assert training(f"{module}:long", "lstm").task.length == 7
    assert type(training("recall", f"{module}:Core").core).__name__ == "Core"


def test_an_environment_class_is_a_world(module):
    config = training(f"{module}:Cart", "lstm")
    assert isinstance(config, ImpalaConfig) and config.world == GymnasiumConfig(id=f"{module}:Cart")
    assert config.agent.norm_values  # the defaults of all Gymnasium environments


@pytest.mark.parametrize(
    ("task", "core", "said"),
    [
        (
            "a_users_module:number",
            "lstm",
            "is a int: name a class derived from StreamTask",
        ),
        ("a_users_module:Tusk", "lstm", "did you mean 'Task'"),
        ("recall", "a_users_module:Task", "name its config, a class derived from CoreConfig"),
        ("nowhere_to_be_found:Task", "lstm", "cannot import 'nowhere_to_be_found'"),
        ("recal", "lstm", "did you mean 'recall'"),
    ],
)
def test_what_is_no_task_or_core_is_named(module, task, core, said):
    with pytest.raises(ValueError, match=said):
        training(task, core)


def test_options_are_typed():
    typed = ["a=3", "b=0.5", "c=true", "d=None", "e=[1,2]", "f=text", "g=a=b"]
    assert options(typed) == {"a": 3, "b": 0.5, "c": True, "d": None, "e": [1, 2], "f": "text", "g": "a=b"}
    with pytest.raises(ValueError, match="give key=value"):
        options(["render_mode"])


def test_options_and_wrappers_are_of_gymnasium():
    config = training("gym:CartPole-v1", "lstm", options={"max_episode_steps": 9})
    assert config.world.options == {"max_episode_steps": 9}
    with pytest.raises(ValueError, match=r"--world\.options: only Gymnasium environments have it, not TMazeConfig"):
        training("t-maze", "lstm", options={"length": 3})


def test_recipes_still_choose_their_cores():
    assert isinstance(training("t-maze", "lstm").core, LSTMConfig)
