"""Training runs of the models that the library ships; ``recollect reproduce models`` trains them anew.

Each label is the name of a model: ``recollect.load("model:t-maze-hcam")``. The runs are rows of other recipes, some of
them shorter. A model has at most 1.5 MB, so the agents of ``catch`` and of CartPole are narrower than those of their
recipes.
"""

from dataclasses import replace

from recollect.config import lookup
from recollect.cores.recurrent import LSTMConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.recipes.attention_agents.agents import told
from recollect.recipes.attention_agents.study import STUDY
from recollect.recipes.base import Recipe, Run, Scale, Test
from recollect.recipes.gymnasium import WORLDS, gymnasium_run
from recollect.recipes.hierarchical_transformer_memory import HTM_RECIPES
from recollect.recipes.hierarchical_transformer_memory.t_maze import short_t_maze
from recollect.recipes.robots import ROBOTS
from recollect.recipes.ttm_video import TTM_VIDEO
from recollect.training import ImpalaConfig, TrainerConfig

RECIPES = {recipe.name: recipe for recipe in (*HTM_RECIPES, ROBOTS, TTM_VIDEO, STUDY)}
CATCH_WIDTH = 64


def shipped_models(core: str = "hcam", scale: Scale = "lite") -> TrainerConfig:
    """Return the config of the first shipped model around a core.

    Raises:
        ValueError: no shipped model has this core, or there is no such scale.
    """
    return lookup({run.core: run for run in reversed(MODELS.rows(scale))}, core, "core of a shipped model").config


def _rows() -> list[Run]:
    maze = short_t_maze()
    maze = replace(maze, fit=replace(maze.fit, steps=150, report_every=5, evaluate_every=25))
    return [
        replace(_row_of("t-maze-hcam", "htm-t-maze", "hcam-short"), config=maze),
        _shorter(_row_of("ballet-hcam", "htm-ballet", "hcam-imitated-lite"), 250),
        _row_of("word-learning-hcam", "htm-words", "hcam-imitated-lite"),
        _catch("catch-adaptive"),
        _cartpole("cartpole-lstm"),
        _shorter(_row_of("shape-activities-ttm", "ttm-video", "ttm-transformer-16"), 400),
        _shorter(_row_of("goal-shown-once-ttm", "ttm-robots", "ttm-goal-shown-once-lite"), 40),
    ]


def _row_of(name: str, recipe: str, label: str) -> Run:
    """Return a row of another recipe under the name of a model."""
    run = next(run for run in RECIPES[recipe].rows("lite") if run.label == label)
    tests = {test: replace(where, paper="-") for test, where in run.tests.items()}
    return replace(run, label=name, row=f"{name}: {run.row}", paper="-", tests=tests)


def _shorter(run: Run, steps: int) -> Run:
    """Return the run with another number of steps and without a limit of processor time."""
    fit = replace(run.config.fit, steps=steps, processor_seconds=None)
    return replace(run, config=replace(run.config, fit=fit))


def _catch(name: str) -> Run:
    """Return a narrow ``adaptive`` agent that is taught to catch balls in the dark."""
    run = _row_of(name, "attention-agents", "adaptive-catch-in-the-dark-imitated-lite")
    config = run.config
    assert isinstance(config, ImpalaConfig) and isinstance(config.core, TransformerXLConfig)
    core = replace(config.core, dim=CATCH_WIDTH, hidden_dim=2 * CATCH_WIDTH)
    encoders = replace(config.agent.encoders, image_dim=CATCH_WIDTH - told(config.world))
    agent = replace(config.agent, encoders=encoders)
    # float32: bfloat16 is slow on processors that have to emulate it
    return replace(run, config=replace(config, core=core, agent=agent, bfloat16=False))


def _cartpole(name: str) -> Run:
    """Return a narrow lstm that balances CartPole without seeing velocities."""
    world, rollouts = WORLDS["CartPole without velocities"]
    config = gymnasium_run(world, LSTMConfig(dim=64))
    config = replace(config, agent=replace(config.agent, width=64), fit=replace(config.fit, steps=rollouts))
    tests = {"": Test(where=world, best=True, samples=128)}
    return Run(label=name, row=f"{name}: lstm, CartPole without velocities", core="lstm", config=config, tests=tests)


MODELS = Recipe(
    name="models",
    title="Models that the library ships",
    source="ours (recipes/shipped_models.py)",
    about="Scores of the models that `recollect.load` finds under these names.",
    config=shipped_models,
    runs={"lite": _rows},
    seeds={"lite": 1},
)
