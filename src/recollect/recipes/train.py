"""Default configs of ``recollect train TASK --core KEY``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.config import load_object, lookup, parse_value, require, require_name
from recollect.cores import CORES
from recollect.cores.find import make_core_config
from recollect.evaluation.recorded_world import PREFIX, RecordingConfig
from recollect.lazy import gymnasium
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.attention_agents import attention_agent
from recollect.recipes.base import MakeConfig
from recollect.recipes.gymnasium import gymnasium_run
from recollect.recipes.htm_inference import inference
from recollect.recipes.recall import RECALL
from recollect.recipes.robots import covered_objects, goal_shown_once, order_shown_once
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.recipes.ttm_video import ttm_video
from recollect.tasks import TASKS, GymnasiumConfig, StreamTask, WorldConfig
from recollect.training import (
    TRAINERS,
    CloningConfig,
    CloningLossConfig,
    ImpalaConfig,
    LossConfig,
    OfflineConfig,
    TeacherConfig,
    TrainerConfig,
    find_trainer,
    make_cloning_config,
)

TRAINING: dict[str, MakeConfig] = {
    "copying": COPYING.config,
    "recall": RECALL.config,
    "t-maze": htm.t_maze,
    "visual-match": htm.visual_match,
    "ballet": htm.ballet,
    "word-learning": htm.words,
    "object-permanence": htm.permanence,
    "street-learn": htm.streets,
    "associative-inference": inference,
    "goal-shown-once": goal_shown_once,
    "order-shown-once": order_shown_once,
    "covered-objects": covered_objects,
    "shape-activities": ttm_video,
}
"""Tasks whose settings come from a recipe; other tasks start from the trainer's defaults."""


def training(
    task: str | WorldConfig, core: str, *, trainer: str | None = None, agent: str | None = None, **fields: Any
) -> TrainerConfig:
    """Return the complete config of a run of a core on a task.

    Args:
        task: key of a task, ``gym:ID`` for a Gymnasium environment, ``recording:FILE`` for recorded episodes, a name
            that an installed package declares, or ``package.module:Name`` for a stream task, a user-defined world or
            Gymnasium environment, installed or in the current folder. With an agent also the config of a world.
        core: key of a core, a name that an installed package declares, or ``package.module:Name`` for the config of a
            user-defined core.
        agent: name of a whole agent for worlds of images, which brings its own core; ``core`` is then ignored.
        trainer: key of a trainer; None takes the task's own. ``cloning`` takes sizes and optimiser from there.
        fields: fields of a Gymnasium environment's config.

    Raises:
        ValueError: an unknown task, core or trainer, a trainer that does not train on such a task, or fields for a task
            that is no Gymnasium environment.
    """
    config = _run_of_agent(agent, task, fields) if agent is not None else _own_run(str(task), core, fields)
    if trainer is None or isinstance(config, lookup(TRAINERS, trainer, "trainer")):
        return config
    if isinstance(config.trained_on, RecordingConfig):
        raise ValueError(f"--trainer {trainer}: {task} has no world to act in: leave --trainer away, or name a world")
    if trainer == "cloning" and isinstance(config, ImpalaConfig):
        return make_cloning_config(config)
    if trainer == "impala" and isinstance(config, CloningConfig):
        return replace(config.learner, loss=LossConfig())
    if trainer == "decision-transformer" and isinstance(config, ImpalaConfig | CloningConfig):
        where = config.learner if isinstance(config, CloningConfig) else config
        return OfflineConfig(world=where.world, core=where.core, fit=config.fit, device=where.device)
    if trainer in ("classification", "self-supervised"):
        raise ValueError(
            f"--trainer {trainer}: it trains encoders of whole rows, not cores: use recollect reproduce listops, "
            f"or tlb-images, or {TRAINERS[trainer].__name__} in Python (docs/datasets.md, docs/images.md)"
        )
    raise ValueError(f"--trainer {trainer}: it does not train on {task}; leave --trainer away")


def _run_of_agent(agent: str, task: str | WorldConfig, fields: Mapping[str, Any]) -> TrainerConfig:
    where = with_fields(find_task(task) if isinstance(task, str) else task, fields)
    if not isinstance(where, WorldConfig):
        raise ValueError(f"--agent {agent}: it acts in worlds, and {task} is none: use --core")
    return attention_agent(agent, where)


def _own_run(task: str, core: str, fields: Mapping[str, Any]) -> TrainerConfig:
    where, memory = with_fields(find_task(task), fields), make_core_config(core)
    if isinstance(where, GymnasiumConfig):
        return gymnasium_run(where, memory)
    if isinstance(where, RecordingConfig):
        loss, teacher = CloningLossConfig(baseline_cost=0.0), TeacherConfig(name=where.path)
        return CloningConfig(world=where, core=memory, teacher=teacher, loss=loss)
    if task in TRAINING:
        return TRAINING[task](core) if core in CORES else replace(TRAINING[task]("lstm"), core=memory)  # type: ignore[call-arg]
    trainer = find_trainer(type(where))
    return trainer(**{trainer.task_field: where, "core": memory})


def with_fields(task: Any, fields: Mapping[str, Any]) -> Any:
    """Return a Gymnasium environment's config with other fields; any task unchanged if there are no fields.

    Raises:
        ValueError: fields for a task that is no Gymnasium environment.
    """
    if fields and not isinstance(task, GymnasiumConfig):
        raise ValueError(
            f"--world.{next(iter(fields))}: only Gymnasium environments have it, not {type(task).__name__}"
        )
    return replace(task, **fields) if fields else task


def options(words: Sequence[str]) -> dict[str, Any]:
    """Parse keywords of an environment: ``key=value``.

    Raises:
        ValueError: a word of another form.
    """
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        good = bool(key and equals)
        require(
            good, "--world.options", word, "give key=value, for example --world.options size=7 render_mode=rgb_array"
        )
        found[key] = parse_value(value)
    return found


def find_task(task: str) -> StreamTask | WorldConfig:
    """Return the config that the name of a task, an environment or a recording stands for."""
    if task.startswith("gym:"):
        return GymnasiumConfig(id=task.removeprefix("gym:"))
    if task.startswith(PREFIX):
        return RecordingConfig(path=task.removeprefix(PREFIX))
    task = require_name("tasks", task, TASKS)
    if ":" not in task:
        return TASKS[task]()
    found = load_object(task, "task")
    if isinstance(found, (StreamTask, WorldConfig)):
        return found
    if isinstance(found, type) and issubclass(found, (StreamTask, WorldConfig)):
        return found()
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return GymnasiumConfig(id=task)
    raise ValueError(
        f"task={task!r} is a {type(found).__name__}: name a class derived from StreamTask, WorldConfig or gymnasium.Env"
    )


def task_name(config: TrainerConfig) -> str:
    """Return the name of a run's task on the command line: its key, ``gym:ID``, or ``package.module:Class``."""
    task = config.trained_on
    if isinstance(task, RecordingConfig):
        return f"{PREFIX}{task.path}"
    return f"gym:{task.id}" if isinstance(task, GymnasiumConfig) else _name(type(task), TASKS)


def core_name(config: Any) -> str:
    """Return the name of a run's core on the command line: its key, or ``package.module:Class``."""
    return _name(type(config.core), CORES)


def _name(cls: type, table: Mapping[str, type]) -> str:
    return next((key for key, known in table.items() if known is cls), f"{cls.__module__}:{cls.__qualname__}")
