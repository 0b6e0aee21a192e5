"""Hierarchical Transformer Memory trained as published, but small: reinforcement and reconstruction, and no help.

The loss has the weights of table 1 (policy 0.1, baseline 1, reconstruction 1); agents reconstruct what they see, which
appendix D.4 calls necessary. There is no teacher, no target for attention, no gradient into chunks and no reward for
coming nearer. Cores have four layers, as in table 1. Differs: width 64 instead of 512, symbols instead of pixels, a
larger learning rate, easier levels of the worlds, means instead of sums over a rollout, and processor time instead of a
number of steps ends a run. The worlds of the long scale also have more optimiser steps per rollout, since visual match
and the ballet stand still without them (docs/log.md, 2026-11-21), and rollouts are as long as an episode, with its last
observation, so that rows are at different steps of their episodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.config import lookup
from recollect.cores.config import CoreConfig
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.base import Recipe, Run, Scale, file_name, require_scale
from recollect.recipes.hierarchical_transformer_memory.ballet import lite_level
from recollect.recipes.hierarchical_transformer_memory.permanence import LITE as BOXES
from recollect.recipes.hierarchical_transformer_memory.rows import FULL_WINDOW, memories, read_all_chunks
from recollect.recipes.hierarchical_transformer_memory.visual_match import LITE as DOORS
from recollect.recipes.hierarchical_transformer_memory.words import LITE as WORDS
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FitConfig, ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig

LAYERS, WINDOW, CHUNK = 4, 7, 8
"""Layers, steps of their windows, and steps of a chunk; windows reach 28 steps back."""
ROWS = ("hcam", "transformer-xl", f"transformer-xl{FULL_WINDOW}", "lstm", "memoryless")
LITE_SECONDS, LONG_SECONDS = 900.0, 7200.0
"""Processor time of a run in the T-maze, and in the other worlds."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A world and the numbers of its training."""

    world: WorldConfig
    unroll: int | None = None
    """Steps of a rollout; table 1 has 64 in the ballet and 128 in the other worlds. None: an episode with its last
    observation."""
    updates: int = 16
    """Optimiser steps on a rollout of 128 rows; table 1 has one on 32 rows."""
    beyond_window: bool = False
    """The lag is at least four times the reach of the windows."""


T_MAZE = Level(world=TMazeConfig(length=120, penalty=0.05), unroll=64, updates=4, beyond_window=True)
LEVELS: Mapping[str, Level] = {
    "visual match": Level(world=replace(DOORS, distractor_steps=60)),
    "visual match, apples": Level(
        world=replace(DOORS, distractor_steps=60, apple_rewards=(0.5, 0.5), shuffle_doors=True)
    ),
    "ballet, 2 dances": Level(world=replace(lite_level(2), approach_reward=0.0)),
    "object permanence": Level(world=replace(BOXES, delays=(64,))),
    "words": Level(world=WORDS),
}
"""Worlds of the long scale. The paper plays visual match as Hung et al. (2019) made it: 5 for an apple, 10 for the
right door, and doors at drawn places. "visual match, apples" has that in the grid form."""


def as_published(core: str = "hcam", scale: Scale = "lite", world: str = "visual match") -> ImpalaConfig:
    """Return the run of a core.

    Args:
        core: key of any core.
        scale: ``lite`` (the T-maze, :data:`T_MAZE`) or ``long``.
        world: of the long scale, one of :data:`LEVELS`.
    """
    require_scale(scale, "lite", "long")
    level = T_MAZE if scale == "lite" else lookup(LEVELS, world, "world")
    return _run(core, level, LITE_SECONDS if scale == "lite" else LONG_SECONDS)


def reinforced(
    world: WorldConfig,
    core: CoreConfig,
    *,
    unroll: int,
    updates: int,
    seconds: float | None,
    learning_rate: float = 1e-3,
) -> ImpalaConfig:
    """Return the run of an agent that learns by reinforcement and reconstruction alone.

    Args:
        world: to play.
        core: memory of the agent.
        unroll: steps of a rollout.
        updates: optimiser steps on a rollout of 128 rows; with 4, on 32 rows each, as in table 1.
        seconds: processor time that ends the run; None: a million rollouts do.
        learning_rate: of Adam, constant after 100 updates.
    """
    encoders = EncoderConfig(sentence_dim=32, word_dim=16, norm_sentences=True)
    return ImpalaConfig(
        world=world,
        core=core,
        agent=ActorCriticConfig(encoders=encoders, width=64, head_dim=64, reconstruct=True),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=learning_rate, warmup_steps=100, clip_norm=1.0),
        loss=LossConfig(
            discount=0.97,
            policy_cost=0.1,
            baseline_cost=1.0,
            entropy_cost=2e-3,  # table 1: 1e-3 in the ballet, 1e-4 elsewhere
            reconstruction_cost=1.0,
            reduction="mean",
            reuse=ReuseConfig(minibatches=updates),
        ),
        batch_size=128,
        unroll=unroll,
        fit=FitConfig(
            steps=1_000_000,
            processor_seconds=seconds,
            report_every=10,
            evaluate_every=50,
            checkpoint_every=50,
            stop_score=0.98,
        ),
    )


def _run(core: str, level: Level, seconds: float) -> ImpalaConfig:
    steps = level.world.spec.max_steps
    memory = read_all_chunks(lite_core(core, steps=steps, window=WINDOW, chunk=CHUNK, layers=LAYERS))
    unroll = level.unroll or steps + 1
    return reinforced(level.world, memory, unroll=unroll, updates=level.updates, seconds=seconds)


def _rows(name: str, level: Level, seconds: float, scale: Scale) -> list[Run]:
    runs = []
    for core in ("hcam", "transformer-xl", "lstm", "memoryless"):
        config = _run(core, level, seconds)
        for row, memory in memories(core, config.core, few=4, longest=level.world.spec.max_steps):
            if row in ROWS:
                sees_all = row.endswith(FULL_WINDOW)
                runs.append(
                    Run(
                        label=f"{file_name(f'{name}: {row}')}-{scale}".replace("--", "-"),
                        row=f"{name}: {row}",
                        core=core,
                        config=replace(config, core=memory),
                        beyond_window=level.beyond_window and not sees_all,
                    )
                )
    return runs


def _long_rows() -> list[Run]:
    return [run for name, level in LEVELS.items() for run in _rows(name, level, LONG_SECONDS, "long")]


AS_PUBLISHED = Recipe(
    name="htm-as-published",
    title="As published, small",
    source="Hierarchical Transformer Memory (Lampinen et al. 2021), section 3 and table 1",
    about="Reinforcement with reconstruction alone: no teacher, no targets, no gradients into chunks, no reward for "
    "coming nearer; four layers of width 64, windows of 7 steps, symbols instead of pixels. Lite: a T-maze of 120 "
    "steps (ours), 15 minutes of one processor core. Long: two hours of one processor core in every other world.",
    config=as_published,
    runs={"lite": lambda: _rows("t-maze", T_MAZE, LITE_SECONDS, "lite"), "long": _long_rows},
    seeds={"lite": 3, "long": 3},
)
